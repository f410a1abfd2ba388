"""An EinSum over torch tensors by one generated kernel, which never makes the joined product."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from eindecomp.errors import InputError
from eindecomp.kernels.point_program import finish_of, held_types, numbered_program, scalar_type
from eindecomp.kernels.tile_sizes import sizes_of
from eindecomp.kernels.torch.generated.emit import NamedValue, ScalarLines, Unsuited
from eindecomp.lang.dtypes import DType, Kind, kind, widen
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import BUILTIN
from eindecomp.lang.scalar import used_args

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.kernels.point_program import PointProgram
    from eindecomp.kernels.torch.generated.configs import Config

    Tensor = Any


class FusedJoin:
    """An EinSum over operands of given types, for tensors of any sizes and strides.

    Outputs overlap no operand. Operands that the join does not read only lend sizes, and may be
    None: `lent` has the sizes of labels that no other operand and no result has. Tensors are on one
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
        lent: tuple[tuple[str, int], ...] = (),
    ) -> None:
        if op.agg is None:
            raise Unsuited("nothing is aggregated")
        self.op, self.dtypes, self.out, self.lent = op, dtypes, out, dict(lent)
        self.scalar_types = scalar_types
        self.read = len(used_args(op.join))
        if any(kind(t) is Kind.COMPLEX for t in (*dtypes, out, *(t for _, t in scalar_types))):
            raise Unsuited("complex numbers")
        program = numbered_program(op, dtypes, scalar_types)
        finish = finish_of(op.agg, program.state)
        self.scalars = tuple(scalar_type(t) for _, t in scalar_types)
        self.program = program
        self.finished = program if finish is None else program.finished(finish)
        self.state = held_types(program, finish, out)
        self.is_tiled = is_tiled(op)
        _check_written(self.finished, dtypes, self.scalars)
        self._launches: dict[Any, Any] = {}

    def whole(
        self, operands: Sequence[Tensor | None], out: Tensor, scalars: Sequence[object] = ()
    ) -> None:
        """Compute the finished result into `out`, which may have any strides."""
        self.run(operands, [out], scalars, partial=False)

    def partial(
        self,
        operands: Sequence[Tensor | None],
        states: Sequence[Tensor],
        scalars: Sequence[object] = (),
    ) -> None:
        """Compute the unfinished states into the given tensors, one for each type of `state`."""
        self.run(operands, states, scalars, partial=True)

    def run(
        self,
        operands: Sequence[Tensor | None],
        outputs: Sequence[Tensor],
        scalars: Sequence[object] = (),
        *,
        partial: bool,
        config: Config | None = None,
        lent: Mapping[str, int] | None = None,
    ) -> None:
        """Compute a result or states; in the given way, or else the fastest.

        `lent` adds sizes of labels that no tensor here has.
        """
        from eindecomp.kernels.torch.generated.launch import prepare

        arrays = (*operands, *outputs)
        layout = [None if x is None else (tuple(x.shape), x.stride(), x.dtype) for x in arrays]
        more = tuple((lent or {}).items())
        key = (partial, config, more, outputs[0].device, *layout)
        launch = self._launches.get(key, ...)  # None means that there is nothing to compute
        if launch is ...:
            # Tiles of one layout come again and again, so that they are checked only once.
            self._check(operands, outputs, self.state if partial else (self.out,))
            sizes = {**(lent or {}), **self.sizes(operands, outputs[0])}
            launch = prepare(self, operands[: self.read], outputs, sizes, partial, config)
            if len(self._launches) >= _KEPT:
                self._launches.clear()
            self._launches[key] = launch
        if launch is not None:
            launch(operands[: self.read], outputs, scalars)

    def sizes(self, operands: Sequence[Tensor | None], out: Tensor | None) -> dict[str, int]:
        """The size of every label, refusing tensors that do not agree."""
        return self.lent | sizes_of([*self.op.inputs, self.op.output], [*operands, out])

    def _check(
        self,
        operands: Sequence[Tensor | None],
        outputs: Sequence[Tensor],
        types: tuple[DType, ...],
    ) -> None:
        named = [*zip(operands[: self.read], self.dtypes, strict=False)]
        for k, (tensor, of) in enumerate(named):
            if tensor is None or _name(tensor) != of.name:
                given = "nothing" if tensor is None else _name(tensor)
                raise InputError(f"operand {k} of {self.op} has type {of}, not {given}")
        for tensor, of in zip(outputs, types, strict=True):
            if _name(tensor) != of.name:
                raise InputError(f"a result of {self.op} has type {of}, not {_name(tensor)}")


_KEPT = 1024


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def is_tiled(op: EinSum) -> bool:
    """Whether no input that is read has all labels, so that each value serves several points."""
    read = op.inputs[: len(used_args(op.join))]
    return not any(set(labels) >= set(op.labels) for labels in read)


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
    for exprs in (program.combine or (), program.finish or ()):
        lines = ScalarLines("", lambda k: (state * 2)[k])
        for expr in exprs:
            lines.value(expr)


@lru_cache(maxsize=2**12)
def fused_join(
    op: EinSum,
    dtypes: tuple[DType, ...],
    out: DType,
    scalar_types: tuple[tuple[str, DType], ...] = (),
    lent: tuple[tuple[str, int], ...] = (),
) -> FusedJoin | None:
    """The generated kernel of an EinSum; None where it does not suit.

    It does not where Triton is missing; where nothing is aggregated; for complex numbers, and for
    integers to a power that is not a literal; for products of floats, which are matrix products;
    and where a built-in aggregation reduces an input that has all labels: whatever fuses
    element-wise operations with a reduction does that as well.
    """
    if find_spec("triton") is None or (op.is_contraction and out.kind not in "biu"):
        return None
    if not is_tiled(op) and op.agg is not None and BUILTIN.get(op.agg.name) == op.agg:
        return None
    try:
        return FusedJoin(op, dtypes, out, scalar_types, lent)
    except Unsuited:
        return None
