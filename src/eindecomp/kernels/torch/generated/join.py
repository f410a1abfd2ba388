"""An EinSum over torch tensors by one generated kernel, which never makes the joined product.

`fused_states` is one operation of torch's, which tracing and `torch.compile` keep whole.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch

from eindecomp.errors import InputError
from eindecomp.kernels.torch.generated.emit import Unsuited
from eindecomp.lang.scalar import used_args

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.kernels.torch.generated.launch import FusedJoin
    from eindecomp.lang.dtypes import DType
    from eindecomp.lang.einsum import EinSum

    Tensor = Any


@lru_cache(maxsize=2**12)
def fused_join(
    op: EinSum,
    dtypes: tuple[DType, ...],
    out: DType,
    scalar_types: tuple[tuple[str, DType], ...] = (),
) -> FusedJoin | None:
    """The generated kernel of an EinSum; None where it does not suit.

    It does not where Triton is missing; where nothing is aggregated; for complex numbers, and for
    integers to a power that is not a literal; for products of floats, which are matrix products;
    and where an input has all labels, so that no value that is loaded serves several points.
    """
    if find_spec("triton") is None or (op.is_contraction and out.kind not in "biu"):
        return None
    if any(set(labels) >= set(op.labels) for labels in op.inputs[: len(used_args(op.join))]):
        return None
    from eindecomp.kernels.torch.generated.launch import FusedJoin

    try:
        return FusedJoin(op, dtypes, out, scalar_types)
    except Unsuited:
        return None


_registered: dict[str, FusedJoin] = {}


def fused_states(
    join: FusedJoin,
    operands: Sequence[Tensor | None],
    sizes: Mapping[str, int],
    scalars: Sequence[Tensor] = (),
) -> list[Tensor]:
    """The states of a join as new tensors; `sizes` has every label's.

    This is what a traced function calls: it makes one node of the graph.
    """
    described = repr((join.op.definition, join.dtypes, join.state, join.scalar_types))
    key = hashlib.sha256(described.encode()).hexdigest()
    _registered.setdefault(key, join)
    extents = [sizes[label] for label in join.op.labels]
    call: Any = torch.ops.eindecomp.fused_join
    return call(key, list(operands[: join.read]), list(scalars), extents)


@torch.library.custom_op("eindecomp::fused_join", mutates_args=())
def _fused_join(
    key: str, operands: list[torch.Tensor], scalars: list[torch.Tensor], sizes: list[int]
) -> list[torch.Tensor]:
    join = _find(key)
    states = _empty(join, operands, scalars, sizes)
    join.run(operands, states, dict(zip(join.op.labels, sizes, strict=True)), scalars)
    return states


@_fused_join.register_fake
def _(
    key: str, operands: list[torch.Tensor], scalars: list[torch.Tensor], sizes: list[int]
) -> list[torch.Tensor]:
    return _empty(_find(key), operands, scalars, sizes)


def _find(key: str) -> FusedJoin:
    if key not in _registered:
        raise InputError(f"no generated kernel is registered under {key!r} in this process")
    return _registered[key]


def _empty(join: FusedJoin, operands: list[Any], scalars: list[Any], sizes: list[int]) -> list[Any]:
    """New states on the operands' device; the output's labels are the first of an EinSum's."""
    device = next((x.device for x in (*operands, *scalars)), torch.get_default_device())
    shape = sizes[: len(join.op.output)]
    return [torch.empty(shape, dtype=getattr(torch, t.name), device=device) for t in join.state]
