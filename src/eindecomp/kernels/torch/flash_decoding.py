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
from eindecomp.kernels.torch.overlap import launch_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_kernels: Any = flash_decoding_kernel
_KEYS = 64
"""How many keys a program reads at a time."""
_SHARES = 16
"""How many programs' results are merged at a time."""
_PROGRAMS_EACH = 2
"""How many programs each multiprocessor should get."""
_LOG2_E = 1.4426950408889634


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
    return flash_decoding(
        q,
        [part.k for part in parts],
        [part.v for part in parts],
        [part.length for part in parts],
        [part.scale for part in parts],
        [_shares(q, part.k.shape[2]) for part in parts],
    )


def _shares(q: Tensor, keys: int) -> int:
    """Among how many programs the keys of one head are shared out."""
    heads = q.shape[0] * q.shape[1]
    wanted = -(-_PROGRAMS_EACH * _processors(q.device) // heads)
    return max(1, min(wanted, -(-keys // _KEYS)))


def _processors(device: torch.device) -> int:
    """How many multiprocessors a device has, 1 where Triton's interpreter takes its place."""
    if device.type != "cuda":
        return 1
    cuda: Any = torch.cuda
    return cuda.get_device_properties(device).multi_processor_count


@torch.library.custom_op(
    "eindecomp::flash_decoding",
    mutates_args=(),
    schema=(
        "(Tensor q, Tensor[] keys, Tensor[] values, Tensor?[] lengths, float[] scales, "
        "int[] shares) -> (Tensor, Tensor)"
    ),
)
def flash_decoding(
    q: Tensor,
    keys: Sequence[Tensor],
    values: Sequence[Tensor],
    lengths: Sequence[Tensor | None],
    scales: Sequence[float],
    shares: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """What `decode` yields, the keys of each part being shared out among so many programs."""
    out, lse = _room_for(q, values)
    with torch.cuda.device_of(q):
        found, lses = _attend(q, keys, values, lengths, scales, shares)
        size = values[0].shape[3]
        _kernels.merge_kernel[(lse.numel(),)](
            found, lses, out, lse, sum(shares), q.shape[2],
            SHARES=_room(sum(shares)), VALUE=size, VALUES=_room(size), BLOCK=_SHARES,
            **launch_options(q.device),
        )  # fmt: skip
    return out, lse


@flash_decoding.register_fake
def _(  # pyright: ignore[reportUnusedFunction]
    q: Tensor,
    keys: Sequence[Tensor],
    values: Sequence[Tensor],
    lengths: Sequence[Tensor | None],
    scales: Sequence[float],
    shares: Sequence[int],
) -> tuple[Tensor, Tensor]:
    del keys, lengths, scales, shares
    return _room_for(q, values)


def _room_for(q: Tensor, values: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    rows = q.shape[:3]
    return q.new_empty((*rows, values[0].shape[3])), q.new_empty(rows, dtype=torch.float32)


def _attend(
    q: Tensor,
    keys: Sequence[Tensor],
    values: Sequence[Tensor],
    lengths: Sequence[Tensor | None],
    scales: Sequence[float],
    shares: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """The results [b, h, share, s, d] and log-sum-exps [b, h, share, s] of all programs."""
    batch, heads, rows, size = q.shape
    value = values[0].shape[3]
    shape = (batch, heads, sum(shares), rows)
    out = q.new_empty((*shape, value), dtype=torch.float32)
    lse = q.new_empty(shape, dtype=torch.float32)
    q = dense(q)
    given: list[Any] = []
    for part in (0, len(keys) - 1):
        for x in (dense(keys[part]), dense(values[part])):
            given += [x, *x.stride()[:3]]
        n = lengths[part]
        given += [q, 0, 0] if n is None else [n, *n.stride()]
        given += [keys[part].shape[2], scales[part] * _LOG2_E, shares[part]]
    sizes, all_values = _room(size), _room(value)
    is_wide = max(sizes, all_values) * q.element_size() > 256
    _kernels.decode_kernel[(batch * heads, sum(shares))](
        q, *q.stride()[:3], *given, out, lse, heads, rows,
        HAS_N0=lengths[0] is not None, HAS_N1=lengths[-1] is not None, TWO=len(keys) > 1,
        ROWS=_room(rows), SIZE=size, VALUE=value, SIZES=sizes, VALUES=all_values,
        BLOCK=_KEYS // 2 if is_wide else _KEYS, num_warps=4, **launch_options(q.device),
    )  # fmt: skip
    return out, lse


def _room(size: int) -> int:
    """The power of two, at least 16, that a size is computed as."""
    return max(16, 1 << (size - 1).bit_length())
