"""A few queries against many keys: every key is read once, by many multiprocessors at a time.

The keys of one head are shared out among programs, which each attend to theirs; their results are
merged by their log-sum-exps. Shares follow from the number of keys that count, which only the
device knows: keys past it are never read. A second part, such as the latest keys, is computed by
further programs of the same launch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from eindecomp.kernels.torch import flash_decoding_kernel
from eindecomp.kernels.torch.attention_backends import dense

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_kernels: Any = flash_decoding_kernel
KEYS = 64
"""How many keys a program reads at a time."""
_PROGRAMS_EACH = 2
"""How many programs each multiprocessor should get."""
_LOG2_E = 1.4426950408889634
_MOST_PARTS = 2


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys [b, h, t, e], values [b, h, t, d], how many of them count [b, h] or all, the scale."""

    k: Tensor
    v: Tensor
    length: Tensor | None
    scale: float


def decode(q: Tensor, parts: Sequence[Keys]) -> tuple[Tensor, Tensor]:
    """Attention of queries [b, h, s, e] to all parts, [b, h, s, d], and the log-sum-exps [b, h, s].

    A row without any key is 0, and its log-sum-exp is -∞.
    """
    found: list[tuple[Tensor, Tensor]] = []
    for k in range(0, len(parts), _MOST_PARTS):
        some = parts[k : k + _MOST_PARTS]
        shares = [_shares(q, part.k.shape[2]) for part in some]
        found.append(
            decode_shares(
                q,
                [part.k for part in some],
                [part.v for part in some],
                [part.length for part in some],
                [part.scale for part in some],
                shares,
            )
        )
    outs, lses = (torch.cat(list(each), 2) for each in zip(*found, strict=True))
    maximum = lses.amax(2, keepdim=True)
    weights = (lses - torch.where(maximum == -torch.inf, 0, maximum)).exp()
    total = weights.sum(2)
    out = (outs * weights.unsqueeze(-1)).sum(2) / torch.where(total > 0, total, 1).unsqueeze(-1)
    return out.to(q.dtype), maximum.squeeze(2) + total.log()


def _shares(q: Tensor, keys: int) -> int:
    """Among how many programs the keys of one head are shared out."""
    processors = _processors(q.device)
    heads = q.shape[0] * q.shape[1]
    wanted = -(-_PROGRAMS_EACH * processors // heads)
    return max(1, min(wanted, -(-keys // KEYS)))


def _processors(device: torch.device) -> int:
    """How many multiprocessors a device has, 1 where Triton's interpreter takes its place."""
    if device.type != "cuda":
        return 1
    cuda: Any = torch.cuda
    return cuda.get_device_properties(device).multi_processor_count


def _room(size: int) -> int:
    """The power of two, at least 16, that matrix units compute a size as."""
    return max(16, 1 << (size - 1).bit_length())


@torch.library.custom_op(
    "eindecomp::decode_shares",
    mutates_args=(),
    schema=(
        "(Tensor q, Tensor[] keys, Tensor[] values, Tensor?[] lengths, float[] scales, "
        "int[] shares) -> (Tensor, Tensor)"
    ),
)
def decode_shares(
    q: Tensor,
    keys: Sequence[Tensor],
    values: Sequence[Tensor],
    lengths: Sequence[Tensor | None],
    scales: Sequence[float],
    shares: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """The float32 results [b, h, share, s, d] and log-sum-exps [b, h, share, s] of all shares."""
    batch, heads, rows, size = q.shape
    q, *both = (dense(x) for x in (q, *keys, *values))
    keys, values = both[: len(keys)], both[len(keys) :]
    out, lse = _room_for(q, values, shares)
    value = values[0].shape[3]
    given: list[Any] = []
    for k in range(_MOST_PARTS):
        part = k if k < len(keys) else 0
        n = lengths[part]
        for x in (keys[part], values[part]):
            given += [x, *x.stride()[:3]]
        given += [q, 0, 0] if n is None else [n, *n.stride()]
        given += [keys[part].shape[2], scales[part] * _LOG2_E, shares[part]]
    sizes, all_values = (_room(x) for x in (size, value))
    kernel = _kernels.decode_kernel
    with torch.cuda.device_of(q):
        kernel[(batch * heads, sum(shares))](
            q, *q.stride()[:3], *given, out, lse, heads, rows,
            HAS_N0=lengths[0] is not None, HAS_N1=lengths[-1] is not None, TWO=len(keys) > 1,
            ROWS=_room(rows), SIZE=size, VALUE=value,
            SIZES=sizes, VALUES=all_values,
            BLOCK=KEYS if max(sizes, all_values) * q.element_size() <= 256 else KEYS // 2,
            num_warps=4,
        )  # fmt: skip
    return out, lse


def _room_for(q: Tensor, values: Sequence[Tensor], shares: Sequence[int]) -> tuple[Tensor, Tensor]:
    shape = (*q.shape[:2], sum(shares), q.shape[2])
    out = q.new_empty((*shape, values[0].shape[3]), dtype=torch.float32)
    return out, q.new_empty(shape, dtype=torch.float32)


@decode_shares.register_fake
def _(  # pyright: ignore[reportUnusedFunction]
    q: Tensor,
    keys: Sequence[Tensor],
    values: Sequence[Tensor],
    lengths: Sequence[Tensor | None],
    scales: Sequence[float],
    shares: Sequence[int],
) -> tuple[Tensor, Tensor]:
    del keys, lengths, scales
    return _room_for(q, values, shares)
