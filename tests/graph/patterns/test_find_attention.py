"""What is attention, what only looks like it, and which roles its vertices and labels have."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import pytest
from hypothesis import given

from eindecomp.graph.graph import Graph
from eindecomp.graph.patterns.attention import Attention, find_attention
from eindecomp.graph.rewrites.rewrite import rewrite
from eindecomp.graph.text.elaborate import parse
from eindecomp.lang.scalar import to_text
from eindecomp.models.llama.config import CONFIGS
from eindecomp.models.llama.graph import prefill_graph, step_graph
from strategies import graphs

HEADS = "input Q[b: 2, h: 3, s: 8, e: 4], K[b, h, t: 8, e], V[b, h, t, d: 5]\n"
SCORES = "T[b,h,s,t] <- sum Q[b,h,s,e] * K[b,h,t,e]\n"
SOFTMAX = "P[b,h,s,t] <- softmax[t] U[b,h,s,t]\nO[b,h,s,d] <- sum P[b,h,s,t] * V[b,h,t,d]\noutput O"
CHAIN = {
    "T": "T[b,h,s,t] <- sum Q[b,h,s,e] * K[b,h,t,e]",
    "C": "C[b,h,s] <- max T[b,h,s,t]",
    "P": "P[b,h,s,t] <- exp(T[b,h,s,t] - C[b,h,s])",
    "Z": "Z[b,h,s] <- sum P[b,h,s,t]",
    "A": "A[b,s,h,d] <- sum P[b,h,s,t] * V[b,h,t,d]",
    "O": "O[b,s,h,d] <- A[b,s,h,d] / Z[b,h,s]",
    "more": "output O",
}


def chain(**changed: str) -> Graph:
    return parse(HEADS + "\n".join((CHAIN | changed).values()))


def softmax(scores: str, before: str = "") -> Graph:
    return parse(f"{HEADS}{before}\n{SCORES}U[b,h,s,t] <- {scores}\n{SOFTMAX}")


def both(graph: Graph) -> tuple[Attention, Attention]:
    """What is found in a graph as it is written and in the one that is planned."""
    (written,), (planned,) = find_attention(graph), find_attention(rewrite(graph))
    return written, planned


def test_roles_of_a_chain() -> None:
    for found in both(chain()):
        (part,) = found.parts
        assert (str(found.q), str(part.k), str(part.v)) == (
            "Q[b,h,s,e]", "K[b,h,t,e]", "V[b,h,t,d]",
        )  # fmt: skip
        assert (found.batch, found.groups, found.queries) == (("b", "h"), (), ("s",))
        assert (found.inner, found.values, part.key) == (("e",), ("d",), "t")
        assert not part.divided_early
        assert (found.result, found.replaces) == ("O", tuple("TCPZAO"))
        assert part.mask is None
        assert part.bias is None
        assert part.scale == 1
        assert found.sizes == {"b": 2, "h": 3, "s": 8, "t": 8, "e": 4, "d": 5}


@pytest.mark.parametrize(
    "changed",
    [
        {"P": "P[b,h,s,t] <- exp(float32(T[b,h,s,t]) - C[b,h,s])"},
        {"Z": "Z[b,h,s] <- sum exp(T[b,h,s,t] - C[b,h,s])"},
        {"Z": "D[b,h,s,t] <- T[b,h,s,t] - C[b,h,s]\nZ[b,h,s] <- sum exp(D[b,h,s,t])"},
        {
            "A": "N[b,h,s,t] <- P[b,h,s,t] / Z[b,h,s]",
            "O": "O[b,h,s,d] <- sum V[b,h,t,d] * N[b,h,s,t]",
        },
        {"A": "", "O": "O[b,h,s,d] <- sum P[b,h,s,t] * V[b,h,t,d] / Z[b,h,s]"},
        {"O": "F[b,s,h,d] <- A[b,s,h,d] / Z[b,h,s]\nO[b,h,s,d] <- F[b,s,h,d]"},
        {"C": "C[b,h,s] <- max T[b,h,s,u]"},
    ],
)
def test_arrangements(changed: dict[str, str]) -> None:
    for found in both(chain(**changed)):
        assert found.result == "O"
        assert found.parts[0].scale == 1


@pytest.mark.parametrize("scale", ["* 0.5", "/ 2", "/ sqrt(size(e))", "* 2 / 4"])
def test_scale_of_scores(scale: str) -> None:
    for found in both(softmax(f"T[b,h,s,t] {scale}")):
        assert found.parts[0].scale == 0.5


@pytest.mark.parametrize(
    "changed",
    [
        {"T": "T[b,h,s,t] <- sum 0.5 * Q[b,h,s,e] * K[b,h,t,e]"},
        {"T": "T[b,h,s,t] <- sum Q[b,h,s,e] * (K[b,h,t,e] / 2)"},
        {"P": "P[b,h,s,t] <- exp(0.5 * (T[b,h,s,t] - C[b,h,s]))"},
        {
            "C": "C[b,h,s] <- max 0.5 * T[b,h,s,t]",
            "P": "P[b,h,s,t] <- exp(T[b,h,s,t] / 2 - C[b,h,s])",
        },
    ],
)
def test_scale_elsewhere(changed: dict[str, str]) -> None:
    for found in both(chain(**changed)):
        assert found.parts[0].scale == 0.5


@pytest.mark.parametrize(
    ("mask", "offset"),
    [
        ("t <= s", 0),
        ("s >= t", 0),
        ("t < s", -1),
        ("t <= s + 3", 3),
        ("s - t > -3", 2),
        ("not (t > s)", 0),
        ("t - 1 < s", 0),
    ],
)
def test_causal_masks(mask: str, offset: int) -> None:
    fill = f"M[s: 8, t: 8] <- fill {mask}"
    for graph in (
        softmax("where(M[s,t], T[b,h,s,t], -inf)", fill),
        softmax("where(not M[s,t], -inf, T[b,h,s,t])", fill),
        chain(
            T=f"{CHAIN['T']}\n{fill}",
            C="C[b,h,s] <- max where(M[s,t], T[b,h,s,t], -inf)",
            P="P[b,h,s,t] <- where(M[s,t], exp(T[b,h,s,t] - C[b,h,s]), 0)",
        ),
    ):
        for found in both(graph):
            told = found.parts[0].mask
            assert told is not None
            assert (told.is_causal, told.query, told.offset) == (True, "s", offset)


@pytest.mark.parametrize(
    ("before", "mask", "kind"),
    [
        ("", "index(t) <= index(s)", "causal"),
        ("M[s: 8, t: 8] <- fill t % 2 == s % 2", "M[s,t]", ""),
        ("M[s: 8, t: 8] <- fill t <= s and t > s - 3", "M[s,t]", ""),
        ("input M[b: 2, t: 8] bool", "M[b,t]", ""),
        (
            "input n[b: 2] int32\nI[t: 8] <- fill t\nM[b,t] <- I[t] < n[b]",
            "M[b,t]",
            "length",
        ),
        ("input n[b: 2] float32", "index(t) < n[b]", ""),
        ("scalar n int32", "index(t) <= n", "length"),
    ],
)
def test_kinds_of_masks(before: str, mask: str, kind: str) -> None:
    for found in both(softmax(f"where({mask}, T[b,h,s,t] / 2, -inf)", before)):
        part = found.parts[0]
        assert part.mask is not None
        assert part.mask.is_causal == (kind == "causal")
        assert (part.mask.length is not None) == (kind == "length")
        assert part.scale == 0.5
        if part.mask.length is not None:
            names = [str(read) for read in part.mask.length.reads]
            assert to_text(part.mask.length.expr, names) in ("n[b]", "n + 1")


def test_bias_and_mask() -> None:
    before = "input B[h: 3, s: 8, t: 8]\nM[s: 8, t: 8] <- fill t <= s"
    for found in both(softmax("where(M[s,t], (T[b,h,s,t] + B[h,s,t]) / 2, -inf)", before)):
        part = found.parts[0]
        assert part.mask is not None
        assert part.mask.is_causal
        assert part.bias is not None
        assert part.bias.labels == {"h", "s", "t"}
        assert to_text(part.bias.expr, ["B"]) == "B * 0.5"


def test_macros_and_cross_attention() -> None:
    text = "O[b,s,h,d] <- {}attention[{}t,e](Q[b,s,h,e], K[b,h,t,e], V[b,h,t,d])\noutput O"
    sizes = "input Q[b: 2, s: 6, h: 3, e: 4], K[b, h, t: 9, e], V[b, h, t, d: 5]\n"
    for found in find_attention(parse(sizes + text.format("", ""))):
        assert found.parts[0].mask is None
        assert found.parts[0].scale == 0.5
    for found in find_attention(parse(sizes + text.format("causal_", "s,"))):
        assert found.parts[0].mask is not None
        assert found.parts[0].mask.offset == 3


@pytest.mark.parametrize("name", CONFIGS)
def test_llama(name: str) -> None:
    config = replace(CONFIGS[name], layers=2)
    for graph in (prefill_graph(config, 2, 16), rewrite(prefill_graph(config, 2, 16))):
        found = find_attention(graph)
        assert [one.result for one in found] == ["O0", "O1"]
        for one in found:
            assert (one.groups, one.queries, one.inner) == (("g",), ("s",), ("k", "e"))
            assert one.parts[0].mask is not None
            assert one.parts[0].mask.is_causal
            assert len(one.replaces) == 6


@pytest.mark.parametrize("name", ["7B", "3-8B"])
def test_llama_with_cache(name: str) -> None:
    config = replace(CONFIGS[name], layers=2, dtype="bfloat16")
    for graph in (step_graph(config, 2, 32), rewrite(step_graph(config, 2, 32))):
        found = find_attention(graph)
        assert [one.result for one in found] == ["O0", "O1"]
        for one in found:
            stored, latest = one.parts
            assert (stored.key, latest.key, one.queries) == ("t", "r", ("g", "s"))
            assert stored.mask is not None
            assert stored.mask.length is not None
            assert latest.mask is not None
            assert latest.mask.length is not None
            assert to_text(stored.mask.length.expr, ["length"]) == "length"
            assert to_text(latest.mask.length.expr) == "latest + 1"
            assert len(one.replaces) == 11


@pytest.mark.parametrize(
    "changed",
    [
        {"more": "Y[b,h,s] <- 2 * C[b,h,s]\noutput O, Y"},
        {"more": "output O, T"},
        {"more": "output O, P"},
        {"more": "output O, Z"},
        {"more": "Y[b,h] <- sum P[b,h,s,t]\noutput O, Y"},
        {"more": "Y[b,h,s,d] <- 2 * A[b,s,h,d]\noutput O, Y"},
        {"Z": "Z[b,h,t] <- sum P[b,h,s,t]", "O": "O[b,s,h,d] <- A[b,s,h,d] / Z[b,h,s]"},
        {"C": "C[b,h,t] <- max T[b,h,s,t]", "P": "P[b,h,s,t] <- exp(T[b,h,s,t] - C[b,h,t])"},
        {"P": "P[b,h,s,t] <- exp(C[b,h,s] - T[b,h,s,t])"},
        {"P": "P[b,h,s,t] <- exp(-2 * (T[b,h,s,t] - C[b,h,s]))"},
        {"P": "P[b,h,s,t] <- T[b,h,s,t] - C[b,h,s]"},
        {"Z": "Z[b,h,s] <- sum P[b,h,s,t]**2"},
        {"Z": "Z[b,h,s] <- max P[b,h,s,t]"},
        {"A": "A[b,s,h,d] <- max P[b,h,s,t] * V[b,h,t,d]"},
        {"A": "A[b,s,h,d] <- sum P[b,h,s,t] + V[b,h,t,d]"},
        {"A": "A[b,s,h,d] <- sum 2 * P[b,h,s,t] * V[b,h,t,d]"},
        {"O": "O[b,s,h,d] <- A[b,s,h,d] * Z[b,h,s]"},
        {"O": "O[b,s,h,d] <- A[b,s,h,d] / (Z[b,h,s] + 1)"},
        {"T": "T[b,h,s,t] <- max Q[b,h,s,e] * K[b,h,t,e]"},
        {"T": "T[b,h,s,t] <- sum (Q[b,h,s,e] - K[b,h,t,e])**2"},
        {"T": "T[b,h,s,t] <- sum float64(Q[b,h,s,e] * K[b,h,t,e])"},
    ],
)
def test_near_misses(changed: dict[str, str]) -> None:
    graph = chain(**changed)
    assert find_attention(graph) == ()
    assert find_attention(rewrite(graph)) == ()


@pytest.mark.parametrize(
    "changed",
    [
        {"C": "C[b,h,s] <- min T[b,h,s,t]"},
        {"C": "C[b,h,s] <- max 2 * T[b,h,s,t]"},
        {"C": "C[b,h,s] <- max abs(T[b,h,s,t])"},
        {"C": "D[b,h,s] <- max T[b,h,s,t]\nC[b,h,s] <- 1 + D[b,h,s]"},
        {"C": "C[b,h] <- max T[b,h,s,t]", "P": "P[b,h,s,t] <- exp(T[b,h,s,t] - C[b,h])"},
        {"C": "", "P": "P[b,h,s,t] <- exp(T[b,h,s,t])"},
    ],
)
def test_what_all_keys_of_a_row_share_cancels(changed: dict[str, str]) -> None:
    for found in both(chain(**changed)):
        assert (found.result, found.parts[0].scale, found.parts[0].bias) == ("O", 1, None)
        assert found.parts[0].mask is None


def test_a_bias_of_rows_that_is_not_made_of_scores_counts() -> None:
    for found in both(softmax("T[b,h,s,t] + B[s]", "input B[s: 8]")):
        assert found.parts[0].bias is not None
        assert found.parts[0].bias.labels == {"s"}


def test_only_masks_of_weights_hide_keys() -> None:
    fills = f"{CHAIN['T']}\nM[s: 8, t: 8] <- fill t <= s\nN[s: 8, t: 8] <- fill t < s"
    maximum = "C[b,h,s] <- max where(N[s,t], T[b,h,s,t], -inf)"
    weights = "P[b,h,s,t] <- where(M[s,t], exp(T[b,h,s,t] - C[b,h,s]), 0)"
    for graph in (chain(T=fills, C=maximum, P=weights), chain(T=fills, P=weights)):
        for found in both(graph):
            assert found.parts[0].mask is not None
            assert found.parts[0].mask.offset == 0
    for found in both(chain(T=fills, C=maximum)):
        assert found.parts[0].mask is None


def test_inner_labels_do_not_clash() -> None:
    text = "input Q[s: 8, d: 4], K[t: 8, d], V[t, d: 4]\n"
    text += "O[s,d] <- attention[t,e](Q[s,e], K[t,e], V[t,d])\noutput O"
    (found,) = find_attention(parse(text))
    assert found.values == ("d",)
    assert set(found.inner).isdisjoint(found.values)
    assert found.parts[0].scale == 1 / sqrt(4)


@given(graphs())
def test_graphs_of_all_kinds_can_be_searched(graph: Graph) -> None:
    for found in find_attention(graph):
        assert set(found.replaces) <= set(graph)
