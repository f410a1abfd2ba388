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
from eindecomp.kernels.point_program import finish_of, held_types, numbered_program, scalar_type
from eindecomp.kernels.torch.generated.emit import NamedValue, ScalarLines, Unsuited
from eindecomp.lang.dtypes import DType, Kind, kind, widen
from eindecomp.lang.scalar import used_args

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.kernels.point_program import PointProgram
    from eindecomp.kernels.torch.generated.configs import Config
    from eindecomp.lang.einsum import EinSum

    Tensor = Any

_KEPT = 1024


class FusedJoin:
    """The unfinished states of an EinSum over operands of given types, of any sizes and strides.

    Outputs overlap no operand. Operands that the join does not read may be None. Tensors are on one
    CUDA device, or on the CPU where Triton's interpreter is on (`TRITON_INTERPRET=1`).
    """

    state: tuple[DType, ...]
    """The types in which partial results are held: wide ones, so that sums are rounded once."""

    def __init__(
        self,
        op: EinSum,
        dtypes: tuple[DType, ...],
        out: DType,
        scalar_types: tuple[tuple[str, DType], ...] = (),
    ) -> None:
        if op.agg is None:
            raise Unsuited("nothing is aggregated")
        self.op, self.dtypes, self.scalar_types = op, dtypes, scalar_types
        self.read = len(used_args(op.join))
        if any(kind(t) is Kind.COMPLEX for t in (*dtypes, out, *(t for _, t in scalar_types))):
            raise Unsuited("complex numbers")
        self.program = numbered_program(op, dtypes, scalar_types)
        self.scalars = tuple(scalar_type(t) for _, t in scalar_types)
        self.state = held_types(self.program, finish_of(op.agg, self.program.state), out)
        _check_written(self.program, dtypes, self.scalars)
        self._launches: dict[Any, Any] = {}

    def run(
        self,
        operands: Sequence[Tensor | None],
        states: Sequence[Tensor],
        sizes: Mapping[str, int],
        scalars: Sequence[object] = (),
        config: Config | None = None,
    ) -> None:
        """Compute the states into tensors, one for each type of `state`.

        `sizes` has every label's. It is done in the given way, or else in the fastest.
        """
        from eindecomp.kernels.torch.generated.launch import prepare

        read = operands[: self.read]
        layout = [(tuple(x.shape), x.stride(), x.dtype) for x in (*read, *states) if x is not None]
        key = (config, *sizes.items(), states[0].device, *layout)
        launch = self._launches.get(key, ...)  # None means that there is nothing to compute
        if launch is ...:
            if len(self._launches) >= _KEPT:
                self._launches.clear()
            launch = self._launches[key] = prepare(self, read, states, sizes, config)
        if launch is not None:
            launch(read, states, scalars)


def _check_written(
    program: PointProgram, dtypes: Sequence[DType], scalars: Sequence[DType]
) -> None:
    """Write the program once, which raises `Unsuited` where it cannot be written."""
    known = {f"s{k}": NamedValue(f"s{k}", t, True) for k, t in enumerate(scalars)}
    inputs = [NamedValue("x", widen(t)) for t in dtypes]
    state = [NamedValue("x", t) for t in program.state]
    lines = ScalarLines("", lambda k: inputs[k], known)
    for expr, of in zip(program.join, program.state, strict=True):
        lines.cast(lines.value(expr), of)
    lines = ScalarLines("", lambda k: (state * 2)[k])
    for expr in program.combine or ():
        lines.value(expr)


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
