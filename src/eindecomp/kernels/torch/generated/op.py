"""A generated kernel as one operation of torch's, which tracing and `torch.compile` keep whole."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import torch

from eindecomp.errors import InputError
from eindecomp.lang.dtypes import DType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.kernels.torch.generated.join import FusedJoin

    Tensor = Any

_registered: dict[str, FusedJoin] = {}


def register(join: FusedJoin) -> str:
    """The key by which `torch.ops.eindecomp.fused_join` knows a kernel."""
    described = repr((join.op.definition, join.dtypes, join.out, join.scalar_types))
    key = hashlib.sha256(described.encode()).hexdigest()
    _registered.setdefault(key, join)
    return key


def fused_results(
    join: FusedJoin,
    operands: Sequence[Tensor | None],
    sizes: Mapping[str, int],
    scalars: Sequence[Tensor] = (),
    *,
    partial: bool = False,
) -> list[Tensor]:
    """The result of a join, or its states, as new tensors; `sizes` has every label's.

    This is what a traced function calls: it makes one node of the graph.
    """
    read: Any = operands[: join.read]
    extents = [sizes[label] for label in join.op.labels]
    call: Any = torch.ops.eindecomp.fused_join
    return call(register(join), list(read), list(scalars), extents, partial)


@torch.library.custom_op("eindecomp::fused_join", mutates_args=())
def _fused_join(
    key: str,
    operands: list[torch.Tensor],
    scalars: list[torch.Tensor],
    sizes: list[int],
    partial: bool,
) -> list[torch.Tensor]:
    join = _find(key)
    outputs = _empty(join, operands, scalars, sizes, partial)
    lent = dict(zip(join.op.labels, sizes, strict=True))
    none = [None] * (len(join.op.inputs) - join.read)
    join.run([*operands, *none], outputs, scalars, partial=partial, lent=lent)
    return outputs


@_fused_join.register_fake
def _(
    key: str,
    operands: list[torch.Tensor],
    scalars: list[torch.Tensor],
    sizes: list[int],
    partial: bool,
) -> list[torch.Tensor]:
    return _empty(_find(key), operands, scalars, sizes, partial)


def _find(key: str) -> FusedJoin:
    if key not in _registered:
        raise InputError(f"no generated kernel is registered under {key!r} in this process")
    return _registered[key]


def _empty(
    join: FusedJoin, operands: list[Any], scalars: list[Any], sizes: list[int], partial: bool
) -> list[Any]:
    """New outputs on the operands' device; the output's labels are the first of an EinSum's."""
    device = next((x.device for x in (*operands, *scalars)), torch.get_default_device())
    shape = sizes[: len(join.op.output)]
    types: Sequence[DType] = join.state if partial else (join.out,)
    return [torch.empty(shape, dtype=getattr(torch, t.name), device=device) for t in types]
