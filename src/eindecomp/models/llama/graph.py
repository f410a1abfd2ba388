"""LLaMA as a graph of EinSums: a whole prompt at once, or one more token with a cache.

Labels: b sequences, s positions of the tokens that are read now, t positions of keys, r places of
the latest keys, which are not among those yet, a the width
of the residual stream, h heads of keys and values, g the query heads that share one, d the size of
a head, f the width of the feed-forward net, o what is added to the stream, v the vocabulary. A head
that is rotated is viewed as pairs e of two numbers, c before and k after the rotation. The two
conventions of rotation differ only in which of c and e is the outer dimension. Weights have Hugging
Face's layout, output dimensions outermost.
"""

from __future__ import annotations

from math import sqrt

from eindecomp.errors import check_whole
from eindecomp.graph.graph import Graph
from eindecomp.graph.text.elaborate import parse
from eindecomp.models.llama.config import Config

LATEST = 64
"""How many tokens are read one by one before their keys and values are stored with the others."""

_EMBED = """
input ids[b: {b}, s: {s}] int32, E[v: {v}, a: {a}] {dtype}
input R[b, s, k: 2, c: 2, e: {e}] {dtype}
X0[b,s,a] <- E[ids[b,s], a]
"""

# Sums of squares and of exponentials are kept in float32, whatever the model computes in.
_PROJECT = """
input N{l}[a] {dtype}
input WQ{l}[h: {h}, g: {g}, c: 2, e: {e}, a] {dtype}
input WK{l}[h, c, e, a] {dtype}, WV{l}[h, d: {d}, a] {dtype}, WO{l}[a, h, g, d] {dtype}
SX{l}[b,s]           <- sum float32(X{l}[b,s,a])**2 / {a}
XN{l}[b,s,a]         <- {dtype}(X{l}[b,s,a] * rsqrt(SX{l}[b,s] + {eps}) * N{l}[a])
K{l}[b,s,h,c,e]      <- sum XN{l}[b,s,a] * WK{l}[h,c,e,a]
V{l}[b,h,s,d]        <- sum XN{l}[b,s,a] * WV{l}[h,d,a]
Q{l}[b,s,h,g,c,e]    <- sum XN{l}[b,s,a] * WQ{l}[h,g,c,e,a]
QR{l}[b,h,g,s,k,e]   <- sum Q{l}[b,s,h,g,c,e] * R[b,s,k,c,e] * {scale}
KR{l}[b,h,s,k,e]     <- sum K{l}[b,s,h,c,e] * R[b,s,k,c,e]
"""

_ATTEND = """
T{l}[b,h,g,s,t] <- sum QR{l}[b,h,g,s,k,e] * KR{l}[b,h,t,k,e]
C{l}[b,h,g,s]   <- max where(M[s,t], T{l}[b,h,g,s,t], -inf)
P{l}[b,h,g,s,t] <- where(M[s,t], exp(T{l}[b,h,g,s,t] - C{l}[b,h,g,s]), 0)
Z{l}[b,h,g,s]   <- sum float32(P{l}[b,h,g,s,t])
A{l}[b,s,h,g,d] <- sum P{l}[b,h,g,s,t] * V{l}[b,h,t,d]
O{l}[b,s,h,g,d] <- {dtype}(A{l}[b,s,h,g,d] / Z{l}[b,h,g,s])
"""

# The new key is written among the latest ones, which are few: to rewrite them all for every token
# costs next to nothing. The stored ones are read in place, and share the maximum and the sum.
_ATTEND_CACHED = """
input KC{l}[b, h, t: {t}, k, e] {dtype}, VC{l}[b, h, t, d] {dtype}
input KL{l}[b, h, r: {r}, k, e] {dtype}, VL{l}[b, h, r, d] {dtype}
new_KL{l}[b,h,r,k,e] <- sum where(J[r] == latest, KR{l}[b,h,s,k,e], KL{l}[b,h,r,k,e])
new_VL{l}[b,h,r,d]   <- sum where(J[r] == latest, V{l}[b,h,s,d], VL{l}[b,h,r,d])
T{l}[b,h,g,s,t] <- sum QR{l}[b,h,g,s,k,e] * KC{l}[b,h,t,k,e]
U{l}[b,h,g,s,r] <- sum QR{l}[b,h,g,s,k,e] * new_KL{l}[b,h,r,k,e]
CT{l}[b,h,g,s]  <- max where(M[b,t], T{l}[b,h,g,s,t], -inf)
C{l}[b,h,g,s]   <- max where(J[r] <= latest, max(U{l}[b,h,g,s,r], CT{l}[b,h,g,s]), -inf)
P{l}[b,h,g,s,t] <- where(M[b,t], exp(T{l}[b,h,g,s,t] - C{l}[b,h,g,s]), 0)
PL{l}[b,h,g,s,r] <- where(J[r] <= latest, exp(U{l}[b,h,g,s,r] - C{l}[b,h,g,s]), 0)
Z{l}[b,h,g,s]   <- sum float32(P{l}[b,h,g,s,t])
ZL{l}[b,h,g,s]  <- sum float32(PL{l}[b,h,g,s,r])
A{l}[b,s,h,g,d] <- sum P{l}[b,h,g,s,t] * VC{l}[b,h,t,d]
AL{l}[b,s,h,g,d] <- sum PL{l}[b,h,g,s,r] * new_VL{l}[b,h,r,d]
O{l}[b,s,h,g,d] <- {dtype}(
    (A{l}[b,s,h,g,d] + AL{l}[b,s,h,g,d]) / (Z{l}[b,h,g,s] + ZL{l}[b,h,g,s])
)
"""

_FEED = """
input NF{l}[a] {dtype}, WG{l}[f: {f}, a] {dtype}, WU{l}[f, a] {dtype}, WD{l}[a, f] {dtype}
Y{l}[b,s,o]  <- sum O{l}[b,s,h,g,d] * WO{l}[o,h,g,d]
H{l}[b,s,a]  <- X{l}[b,s,a] + Y{l}[b,s,a]
SH{l}[b,s]   <- sum float32(H{l}[b,s,a])**2 / {a}
HN{l}[b,s,a] <- {dtype}(H{l}[b,s,a] * rsqrt(SH{l}[b,s] + {eps}) * NF{l}[a])
G{l}[b,s,f]  <- sum HN{l}[b,s,a] * WG{l}[f,a]
F{l}[b,s,f]  <- sum HN{l}[b,s,a] * WU{l}[f,a]
B{l}[b,s,f]  <- silu(G{l}[b,s,f]) * F{l}[b,s,f]
D{l}[b,s,o]  <- sum B{l}[b,s,f] * WD{l}[o,f]
X{n}[b,s,a]  <- H{l}[b,s,a] + D{l}[b,s,a]
"""

_KEEP = "output KR{l}, V{l}\n"
_TIE = "output new_KL{l}, new_VL{l}\ntie KL{l} <- new_KL{l}, VL{l} <- new_VL{l}\n"

_LAST = """
input last[b] int32
L[b,a]      <- X{n}[b, last[b], a]
SL[b]       <- sum float32(L[b,a])**2 / {a}
LN[b,a]     <- {dtype}(L[b,a] * rsqrt(SL[b] + {eps}) * N[a])
logits[b,v] <- sum LN[b,a] * {head}[v,a]
"""

_EVERY = """
SL[b,s]       <- sum float32(X{n}[b,s,a])**2 / {a}
LN[b,s,a]     <- {dtype}(X{n}[b,s,a] * rsqrt(SL[b,s] + {eps}) * N[a])
logits[b,s,v] <- sum LN[b,s,a] * {head}[v,a]
"""


def prefill_graph(
    config: Config, batch: int, tokens: int, *, every: bool = False, keep: bool = True
) -> Graph:
    """Reads whole sequences: the logits after token `last` of each, and all keys and values.

    Inputs besides the weights: `ids`, the rotations `R` of positions 0, 1, …, and `last`. Outputs:
    `logits`, and for layer l the rotated keys `KR{l}` and the values `V{l}`, by head and position.
    Tokens after `last` have no effect, as long as their activations are finite.

    Args:
        config: The model's, such as `CONFIGS["7B"]`.
        batch: The number of sequences, such as `1`.
        tokens: The length of each, such as `64`.
        every: Whether logits are those after every token, such as `True`.
        keep: Whether keys and values are outputs; `False` for none.

    Examples:
        >>> from eindecomp.models.llama.config import CONFIGS
        >>> prefill_graph(CONFIGS["3.2-1B"], 1, 64)["logits"].shape
        (1, 128256)
    """
    check_whole(batch=batch, tokens=tokens)
    start = f"M[s: {tokens}, t: {tokens}] <- fill t <= s"
    end, kept = _EVERY if every else _LAST, _KEEP if keep else ""
    return _build(config, batch, tokens, 0, start, _ATTEND + _FEED + kept, end)


def step_graph(config: Config, batch: int, cached: int) -> Graph:
    """Reads one more token of each sequence, after the tokens before it.

    `KC{l}` and `VC{l}` have room for the keys and values of `cached` tokens, of which the first
    `length` are there. Those of the `latest` tokens after them are in `KL{l}` and `VL{l}`, which
    are tied to `new_KL{l}` and `new_VL{l}`: there the new one stands, too. What lies beyond has no
    effect, but must be finite. Once `LATEST` tokens are there, `store_graph` makes room.

    Args:
        config: The model's, such as `CONFIGS["7B"]`.
        batch: The number of sequences, such as `1`.
        cached: The room of the cache, such as `128`.

    Examples:
        >>> from eindecomp.models.llama.config import CONFIGS
        >>> step_graph(CONFIGS["3.2-1B"], 1, 128)["KC0"].sizes["t"]
        128
    """
    check_whole(batch=batch, cached=cached)
    start = (
        f"scalar latest int32\ninput length[b] int32\nI[t: {cached}] <- fill t\n"
        f"J[r: {LATEST}] <- fill r\nM[b,t] <- I[t] < length[b]"
    )
    return _build(config, batch, 1, cached, start, _ATTEND_CACHED + _FEED + _TIE, _EVERY)


_STORE = """
input KC{l}[b, h: {h}, t: {t}, k: 2, e: {e}] {dtype}, VC{l}[b, h, t: {t}, d: {d}] {dtype}
input KL{l}[b, h, r: {r}, k, e] {dtype}, VL{l}[b, h, r, d] {dtype}
KA{l}[b,h,t,k,e]   <- concat[t](KC{l}[b,h,t,k,e], KL{l}[b,h,t,k,e])
VA{l}[b,h,t,d]     <- concat[t](VC{l}[b,h,t,d], VL{l}[b,h,t,d])
new_KC{l}[b,h,u,k,e] <- KA{l}[b,h,at[b,u],k,e]
new_VC{l}[b,h,u,d]   <- VA{l}[b,h,at[b,u],d]
output new_KC{l}, new_VC{l}
"""


def store_graph(config: Config, batch: int, cached: int, room: int) -> Graph:
    """Stores the latest keys and values with those before them.

    Place u of a sequence gets what is at place `at[b,u]` of the old cache followed by the latest.

    Args:
        config: The model's, such as `CONFIGS["7B"]`.
        batch: The number of sequences, such as `1`.
        cached: The room of the cache, such as `128`.
        room: That of the new cache, such as `256`.

    Examples:
        >>> from eindecomp.models.llama.config import CONFIGS
        >>> store_graph(CONFIGS["3.2-1B"], 1, 128, 256)["new_KC0"].sizes["u"]
        256
    """
    check_whole(batch=batch, cached=cached, room=room)
    sizes = _sizes(config, cached)
    parts = [f"input at[b: {batch}, u: {room}] int32"]
    parts += [_STORE.format(l=k, **sizes) for k in range(config.layers)]
    if room == cached:
        parts += [f"tie KC{k} <- new_KC{k}, VC{k} <- new_VC{k}" for k in range(config.layers)]
    return parse("\n".join(parts))


def _build(
    config: Config, batch: int, tokens: int, cached: int, start: str, layer: str, end: str
) -> Graph:
    sizes = {"b": batch, "s": tokens, **_sizes(config, cached)}
    layer = _PROJECT + layer
    table = "" if config.tied else f", H[v, a] {config.dtype}"
    parts = [_EMBED.format(**sizes), start, f"input N[a] {config.dtype}{table}"]
    parts += [layer.format(l=k, n=k + 1, **sizes) for k in range(config.layers)]
    parts += [end.format(n=config.layers, **sizes), "output logits"]
    return parse("\n".join(parts))


def _sizes(config: Config, cached: int) -> dict[str, object]:
    half = config.head_size // 2
    return {
        "t": cached, "r": LATEST, "v": config.vocabulary, "a": config.width,
        "h": config.kv_heads, "g": config.groups, "d": config.head_size, "e": half,
        "f": config.hidden, "eps": config.epsilon, "scale": 1 / sqrt(config.head_size),
        "dtype": config.dtype, "head": "E" if config.tied else "H",
    }  # fmt: skip
