"""Decoding one token: rows by matrices and few queries by many keys, at the speed of memory.

*A row by a matrix*: every weight is read once. *Flash decoding*: the keys of one head are shared
out among programs, which each attend to theirs; their results are merged by their log-sum-exps.
Shares follow from the number of keys that count, which only the device knows: keys past it are
never read. A second part, such as the latest keys, is computed by further programs of the same
launch.

*Programmatic dependent launch*: a kernel begins while the one before it ends, and then waits. GPUs
have it from Hopper on. Where kernels take microseconds, it hides the time of launching them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

_FIRST = (9, 0)
"""The first compute capability that launches kernels early."""
_TYPES = frozenset({torch.float16, torch.bfloat16, torch.float32})
_KEYS = 64
"""How many keys a program reads at a time."""
_SHARES = 16
"""How many programs' results are merged at a time."""
_PROGRAMS_EACH = 2
"""How many programs each multiprocessor should get."""
_LOG2_E = 1.4426950408889634


@cache
def overlaps(device: torch.device) -> bool:
    """Whether kernels on a device can begin while the one before them ends."""
    cuda: Any = torch.cuda
    if device.type != "cuda" or torch.version.cuda is None or find_spec("triton") is None:
        return False
    if cuda.get_device_capability(device) < _FIRST:
        return False
    from triton.language.extra import cuda as functions

    return hasattr(functions, "gdc_wait")


def launch_options(device: torch.device) -> dict[str, Any]:
    """The launch options of a Triton kernel that has the constant OVERLAP."""
    return {"OVERLAP": True, "launch_pdl": True} if overlaps(device) else {"OVERLAP": False}


_STEADY: ContextVar[frozenset[int]] = ContextVar("steady", default=frozenset())
"""The addresses of memory that nothing writes to while kernels launched now are running."""


@contextmanager
def steady(arrays: Iterable[Tensor]) -> Generator[None]:
    """Let kernels that are launched inside read these arrays before it is their turn.

    Nothing that is launched inside, or still runs when the first kernel begins, may write to them.
    """
    known = _STEADY.set(frozenset(map(_address, arrays)))
    try:
        yield
    finally:
        _STEADY.reset(known)


def is_steady(array: Tensor) -> bool:
    """Whether a kernel that is launched now may read an array before it is its turn."""
    return _address(array) in _STEADY.get()


def _address(array: Tensor) -> int:
    return array.untyped_storage().data_ptr()


def suits_rows(x: Tensor, matrix: Tensor) -> bool:
    """Whether a vector and the rows of a matrix are multiplied here: on a GPU, as they lie."""
    return (
        x.device.type == "cuda"
        and x.dtype == matrix.dtype
        and x.dtype in _TYPES
        and matrix.stride(1) == 1
        and find_spec("triton") is not None
    )


@torch.library.custom_op(
    "eindecomp::row_product", mutates_args=(), schema="(Tensor x, Tensor matrix) -> Tensor"
)
def row_product(x: Tensor, matrix: Tensor) -> Tensor:
    """The products of the rows of a matrix with a vector, [rows], in the vector's type."""
    rows, length = matrix.shape
    out = torch.empty(rows, dtype=x.dtype, device=x.device)
    x = x.contiguous()

    def grid(config: dict[str, int]) -> tuple[int]:
        return (-(-rows // config["ROWS"]),)

    with torch.cuda.device_of(x):
        options = {"EARLY": is_steady(matrix), **launch_options(x.device)}
        _kernels().tuned_row_kernel[grid](x, matrix, out, rows, length, matrix.stride(0), **options)
    return out


@row_product.register_fake
def _(x: Tensor, matrix: Tensor) -> Tensor:  # pyright: ignore[reportUnusedFunction]
    return x.new_empty(matrix.shape[0])


def _kernels() -> Any:
    """Triton's kernels, which only machines with Triton have."""
    from eindecomp.kernels.torch import decoding_kernels

    return decoding_kernels


def decode(
    q: Tensor,
    keys: Sequence[Tensor],
    values: Sequence[Tensor],
    lengths: Sequence[Tensor | None],
    scales: Sequence[float],
) -> tuple[Tensor, Tensor]:
    """Attention of queries [b, h, s, e] to all parts, [b, h, s, d], and the log-sum-exps [b, h, s].

    A part has keys [b, h, t, e] and values [b, h, t, d], of which all or the first so many count
    [b, h]. A row without any key is 0, and its log-sum-exp is -∞.
    """
    processors = 1  # where Triton's interpreter takes the place of a GPU
    if q.device.type == "cuda":
        cuda: Any = torch.cuda
        processors = cuda.get_device_properties(q.device).multi_processor_count
    wanted = -(-_PROGRAMS_EACH * processors // (q.shape[0] * q.shape[1]))
    shares = [max(1, min(wanted, -(-k.shape[2] // _KEYS))) for k in keys]
    return flash_decoding(q, keys, values, lengths, scales, shares)


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
    """The result of `decode`, with the keys of each part divided among this many programs."""
    out, lse = _room_for(q, keys, values)
    batch, heads, rows, size = q.shape
    value, programs = values[0].shape[3], sum(shares)
    # The results [b, h, share, s, d] and log-sum-exps [b, h, share, s] of all programs.
    parts = q.new_empty((batch, heads, programs, rows, value), dtype=torch.float32)
    lses = q.new_empty((batch, heads, programs, rows), dtype=torch.float32)
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
    kernels, options = _kernels(), launch_options(q.device)
    with torch.cuda.device_of(q):
        kernels.decode_kernel[(batch * heads, programs)](
            q, *q.stride()[:3], *given, parts, lses, heads, rows,
            HAS_N0=lengths[0] is not None, HAS_N1=lengths[-1] is not None, TWO=len(keys) > 1,
            ROWS=_room(rows), SIZE=size, VALUE=value, SIZES=sizes, VALUES=all_values,
            BLOCK=_KEYS // 2 if is_wide else _KEYS, num_warps=4, **options,
        )  # fmt: skip
        kernels.merge_kernel[(lse.numel(),)](
            parts, lses, out, lse, programs, rows,
            SHARES=_room(programs), VALUE=value, VALUES=all_values, BLOCK=_SHARES, **options,
        )  # fmt: skip
    return out, lse


def _room_for(
    q: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], *_: object
) -> tuple[Tensor, Tensor]:
    """Tensors for a result and its log-sum-exps."""
    del keys
    rows = q.shape[:3]
    return q.new_empty((*rows, values[0].shape[3])), q.new_empty(rows, dtype=torch.float32)


flash_decoding.register_fake(_room_for)


def _room(size: int) -> int:
    """The power of two, at least 16, that a size is computed as."""
    return max(16, 1 << (size - 1).bit_length())


def dense(x: Tensor) -> Tensor:
    """A tensor whose last dimension is in one piece, as kernels require."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()
