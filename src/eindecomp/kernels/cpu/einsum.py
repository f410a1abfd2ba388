"""One EinSum on one tile: whole, or in parts that are combined and finished later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from eindecomp.errors import InputError
from eindecomp.kernels import point_program
from eindecomp.kernels.cpu.loops.launch import KEPT, Arrays, Launch, Loops, launch_together
from eindecomp.kernels.cpu.products.contractions import FusedContraction
from eindecomp.kernels.cpu.products.gemm import Gemm
from eindecomp.kernels.library import Operands, Scalars, Tile
from eindecomp.kernels.tile_arrays import sizes_of
from eindecomp.lang.dtypes import Array, DType, ScalarItems, Types
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.scalar import used_args


class EinSumKernel:
    """An EinSum over operands of given types, for tiles of any sizes and strides.

    Outputs overlap no operand. Operands that the join does not read only lend sizes, and may be
    None: `lent` has the sizes of labels that no other operand and no result has.

    >>> from eindecomp.lang.einsum import product
    >>> from eindecomp.lang.monoid import SUM
    >>> f4 = np.dtype("float32")
    >>> kernel = einsum_kernel(EinSum((("i", "j"),), ("i",), product(1), SUM), (f4,), f4)
    >>> out = np.empty(2, f4)
    >>> kernel.whole([np.array([[1, 2], [3, 4]], f4)], out)
    >>> out
    array([3., 7.], dtype=float32)
    """

    state: Types
    """The types in which partial results are held: wide ones, so that sums are rounded once."""

    def __init__(
        self,
        op: EinSum,
        dtypes: Types,
        out: DType,
        scalar_types: ScalarItems = (),
        lent: tuple[tuple[str, int], ...] = (),
    ) -> None:
        self.op, self.dtypes, self.out, self._lent = op, dtypes, out, dict(lent)
        self._known: dict[Any, Launch | None] = {}
        self._read = len(used_args(op.join))
        self._scalars = tuple(point_program.scalar_type(t) for _, t in scalar_types)
        program = point_program.numbered_program(op, dtypes, scalar_types)
        finish = None if op.agg is None else point_program.finish_of(op.agg, program.state)
        self.state = point_program.held_types(program, finish, out)
        self._partial = self._loops(program)
        self._whole = self._partial
        if finish is not None:
            self._whole = self._loops(replace(program, finish=finish))
        self._gemm = Gemm(op, dtypes, out) if Gemm.suits(op, dtypes, out) else None
        self._several = None
        if FusedContraction.suits(op, dtypes, out):
            self._several = FusedContraction(op, einsum_kernel)
        self._combine = self._finish = None
        if program.combine is not None:
            both = [op.output] * (2 * len(self.state))
            combine = point_program.PointProgram(program.combine, program.state)
            title = f"combining {op}"
            self._combine = Loops(combine, both, op.output, description=title, overlaps=True)
        if finish is not None:
            own = point_program.finish_program(finish, program.state)
            states = [op.output] * len(self.state)
            self._finish = Loops(own, states, op.output, description=f"finishing {op}")

    def _loops(self, program: point_program.PointProgram) -> Loops:
        # All inputs lend sizes; those that are not read have no place in the loops.
        op = self.op
        read = op.inputs[: self._read]
        return Loops(program, read, op.output, self._scalars, description=str(op))

    def whole(self, operands: Operands, out: Array, scalars: Scalars = ()) -> None:
        """Compute the finished result into `out`, which may have any strides."""
        self._run(self._whole, operands, [out], (self.out,), scalars)

    def wholes(self, tiles: Sequence[Tile], scalars: Scalars = ()) -> None:
        """Compute several tiles at once."""
        calls: list[tuple[Launch, Any, Sequence[Array]]] = []
        for operands, out in tiles:
            call = self._prepared(self._whole, operands, [out], (self.out,))
            if call is not None:
                calls.append((call, operands[: self._read], [out]))
        if calls:
            launch_together(calls, self._typed(scalars))

    def partial(self, operands: Operands, state: Sequence[Array], scalars: Scalars = ()) -> None:
        """Compute the unfinished states of this tile into the given arrays."""
        self._run(self._partial, operands, state, self.state, scalars)

    def combine(self, into: Sequence[Array], other: Sequence[Array]) -> None:
        """Combine two tiles' states, element by element, into the first."""
        if self._combine is None:
            raise InputError(f"{self.op} aggregates nothing, so there are no states to combine")
        self._combine.run([*into, *other], into)

    def finish(self, state: Sequence[Array], out: Array) -> None:
        """Turn states into the result."""
        if self._finish is None:
            np.copyto(out, state[0])
        else:
            self._finish.run(state, [out])

    def _run(
        self, loops: Loops, operands: Operands, outputs: Arrays, types: Types, scalars: Scalars
    ) -> None:
        read: Any = operands[: self._read]
        call = self._prepared(loops, operands, outputs, types)
        if call is not None:
            call.launch(read, outputs, self._typed(scalars))

    def _typed(self, scalars: Scalars) -> Sequence[Array]:
        own = self._scalars
        return [np.asarray(x, t) for x, t in zip(scalars, own, strict=True)] if own else ()

    def _prepared(
        self, loops: Loops, operands: Operands, outputs: Arrays, types: Types
    ) -> Launch | None:
        """The call for tiles of a layout; None if there is nothing to compute."""
        arrays = (*operands, *outputs)
        layouts = [None if x is None else (x.shape, x.strides, x.dtype.num) for x in arrays]
        key = (loops, *layouts)
        known = self._known.get(key, ...)  # None means that there is nothing to compute
        if known is not ...:
            return known
        # Tiles of one layout come again and again, so that they are checked only once.
        self._check(operands, outputs, types)
        read: Any = operands[: self._read]
        sizes = self._lent | sizes_of([*self.op.inputs, self.op.output], [*operands, outputs[0]])
        if len(self._known) >= KEPT:
            self._known.clear()
        call = None if self._gemm is None else self._gemm.prepare(read, outputs[0])
        if self._several is not None and 0 not in sizes.values():
            call = self._several.prepare(read, outputs[0], sizes, loops.prepare)
        if call is None:
            call = loops.prepare(read, outputs, sizes)
        self._known[key] = call
        return call

    def _check(self, operands: Operands, outputs: Arrays, types: Types) -> None:
        for k, (array, of) in enumerate(zip(operands, self.dtypes, strict=True)):
            if k >= self._read:
                continue
            if array is None or array.dtype != of:
                given = "nothing" if array is None else array.dtype
                raise InputError(f"operand {k} of {self.op} has type {of}, not {given}")
        for array, of in zip(outputs, types, strict=True):
            if array.dtype != of:
                raise InputError(f"a result of {self.op} has type {of}, not {array.dtype}")


einsum_kernel = lru_cache(maxsize=2**10)(EinSumKernel)
"""The kernel of an EinSum for operands of the given types and a result of type `out`."""
