"""One EinSum on one tile of tensors, by functions that can be traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from importlib.util import find_spec
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from eindecomp.errors import InputError
from eindecomp.kernels.cpu.einsum import einsum_kernel as loops_of
from eindecomp.kernels.point_program import finish_of, held_types, numbered_program, scalar_type
from eindecomp.kernels.sums_of_products import SumOfProducts, Term, product_of
from eindecomp.kernels.tile_arrays import distinct, sizes_of
from eindecomp.kernels.torch.aggregations import (
    Labelled,
    contract,
    in_pieces,
    is_builtin,
    is_traced,
    reduce_builtin,
    reduce_tree,
)
from eindecomp.kernels.torch.functions import torch_functions
from eindecomp.kernels.torch.kernel import TorchKernel
from eindecomp.kernels.torch.tensors import (
    CARRIED,
    LOW,
    aligned,
    as_array,
    as_tensor,
    cast,
    expanded,
    literal,
    torch_type,
    window,
)
from eindecomp.lang.compile import compile_scalar
from eindecomp.lang.dtypes import DType, Kind, kind
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.scalar import from_values, used_args, used_scalars

if TYPE_CHECKING:
    from eindecomp.kernels.torch.kernel import Operands, Scalars, Shape, States
    from eindecomp.kernels.torch.tensors import LabelBox


_MUCH_LARGER = 4
"""Joined values per element of operands and result, above which they are not made at once."""
_MATRICES = 2
"""Terms of a sum of products from which on torch's matrix products compute it."""
_FUSED = 2**22
"""Bytes of joined values from which a generated kernel is asked for."""
_WORTH_LOOPS = 1 << 14
"""Points of a join from which loops are generated: that takes a moment, once."""


class EinSumKernel(TorchKernel):
    """An EinSum over operands of given types, for tiles of any sizes and strides on one device.

    Operands that the join does not read only lend sizes, and may be None: `lent` has the sizes of
    labels that no other operand and no result has.

    >>> import numpy as np
    >>> from eindecomp.lang.einsum import product
    >>> from eindecomp.lang.monoid import SUM
    >>> f4 = np.dtype("float32")
    >>> kernel = einsum_kernel(EinSum((("i", "j"),), ("i",), product(1), SUM), (f4,), f4)
    >>> kernel.result([torch.tensor([[1.0, 2.0], [3.0, 4.0]])], (), (2,))
    tensor([3., 7.])
    """

    def __init__(
        self,
        op: EinSum,
        dtypes: tuple[DType, ...],
        out: DType,
        scalar_types: tuple[tuple[str, DType], ...] = (),
        lent: tuple[tuple[str, int], ...] = (),
        device: torch.device = torch.device("cpu"),  # noqa: B008
    ) -> None:
        self.op, self.dtypes, self.out, self.device = op, dtypes, out, device
        self._lent = dict(lent)
        self._program = program = numbered_program(op, dtypes, scalar_types)
        self._scalars = used_scalars(from_values(program.join))
        self._scalar_types = scalar_types if self._scalars else ()
        self._read = len(used_args(op.join))
        finish = None if op.agg is None else finish_of(op.agg, program.state)
        self.state = held_types(program, finish, out)
        # A GPU has matrix products of floats only, and none that hold all sums of integers.
        is_exact = device.type == "cpu" or kind(program.state[0]) >= Kind.FLOAT
        is_carried = torch_type(program.state[0]) in CARRIED
        takes_apart = not is_carried and (is_exact or len(op.inputs) > 2)
        self._product = product_of(op, program, dtypes) if takes_apart else None
        width = len(program.state)
        table = torch_functions(device)
        compiled = partial(compile_scalar, backend=table, scalars=self._scalars)
        self._join = [compiled(expr, self._read) for expr in program.join]
        self._combine = [compile_scalar(expr, 2 * width, table) for expr in program.combine or ()]
        self._finish = None if finish is None else compile_scalar(finish[0], width, table)
        known = self._product or SumOfProducts((), ())
        self._terms = [(term, compiled(term.expr, self._read)) for term in known.terms]
        self._factors = [compiled(factor, 0) for factor in known.factors]
        self._once = [label for label in op.aggregated if label not in known.labels]
        self._kept = tuple(label for label in op.output if label in known.labels)
        # Loops take one pass over memory, where torch takes one for every function of the join.
        loops = device.type == "cpu" and len(known.terms) < _MATRICES and not is_carried
        self._loops = loops_of(op, dtypes, out, scalar_types, lent) if loops else None

    def result(self, operands: Operands, scalars: Scalars, shape: Shape) -> Tensor:
        """The finished result."""
        sizes = self._sizes(operands, shape)
        if self._loops is not None:
            # They are for large tiles whose numbers are in memory, not recorded by a compiler.
            are_here = {type(x) for x in operands if x is not None} == {Tensor}
            if are_here and prod(sizes[label] for label in self.op.labels) >= _WORTH_LOOPS:
                made = torch.empty([sizes[k] for k in self.op.output], dtype=torch_type(self.out))
                arrays = [None if x is None else as_array(x) for x in operands]
                self._loops.whole(arrays, as_array(made), scalars)
                return made
        if self._product is not None:
            return self._contracted(operands, scalars, sizes, self.out)
        return self.finished(self._states(operands, scalars, sizes))

    def states(self, operands: Operands, scalars: Scalars, shape: Shape) -> States:
        """The unfinished states of this tile's share of an aggregation."""
        return self._states(operands, scalars, self._sizes(operands, shape))

    def combined(self, a: Sequence[Tensor], b: Sequence[Tensor]) -> States:
        """Two states combined, element by element."""
        if self.op.agg is None:
            raise InputError(f"{self.op} aggregates nothing, so there are no states to combine")
        values = [f(*a, *b) for f in self._combine]
        return tuple(
            expanded(cast(x, t, self.device), b[0].shape)
            for x, t in zip(values, self.state, strict=True)
        )

    def finished(self, states: Sequence[Tensor]) -> Tensor:
        """The result that a state stands for."""
        if self._finish is None:
            return cast(states[0], self.out, self.device)
        result = cast(self._finish(*states), self.out, self.device)
        return expanded(result, states[0].shape)

    def __str__(self) -> str:
        return str(self.op)

    def _sizes(self, operands: Operands, shape: Shape) -> dict[str, int]:
        """The sizes of all labels."""
        for k, (x, of) in enumerate(zip(operands, self.dtypes, strict=True)):
            if k < self._read and (x is None or x.dtype != torch_type(of)):
                given = "nothing" if x is None else x.dtype
                raise InputError(f"operand {k} of {self.op} has type {of}, not {given}")
        op = self.op
        sizes = self._lent | sizes_of(op.inputs, operands)
        for label, size in zip(op.output, shape, strict=True):
            if sizes.setdefault(label, size) != size:
                raise InputError(
                    f"label {label!r} of {op} has sizes {sizes[label]} and {size} in one tile"
                )
        return sizes

    def _typed(self, scalars: Scalars) -> list[Tensor]:
        """All run-time scalars as tensors, or none where the join reads none."""
        if not self._scalars:
            return []
        return [
            as_tensor(given, scalar_type(of), self.device)
            for given, (_, of) in zip(scalars, self._scalar_types, strict=True)
        ]

    def _used(self, scalars: Sequence[Tensor]) -> list[Tensor]:
        """Those scalars that compiled functions take."""
        return [scalars[int(name[1:])] for name in self._scalars]

    def _states(self, operands: Operands, scalars: Scalars, sizes: Mapping[str, int]) -> States:
        if self._product is not None:
            return (self._contracted(operands, scalars, sizes, self.state[0]),)
        # Join aligned views and aggregate: at once, by a generated kernel, or in pieces.
        op, typed = self.op, self._typed(scalars)
        sizes = {label: sizes[label] for label in op.labels}
        read = [
            Labelled(*distinct(x, own))
            for x, own in zip(operands[: self._read], op.inputs, strict=False)
            if x is not None
        ]

        def compute(box: LabelBox) -> States:
            return self._joined_box(read, self._used(typed), box)

        points = prod(sizes.values())
        itemsize = sum(of.itemsize for of in self._program.state)
        numbers = sum(x.tensor.numel() for x in read) + prod(sizes[label] for label in op.output)
        is_large = op.agg is not None and points > _MUCH_LARGER * numbers
        if is_large and points * itemsize > _FUSED:
            fused = fused_join(op, self.dtypes, self.out, self._scalar_types, self.device)
            if fused is not None:
                return tuple(fused(operands, sizes, typed))
        whole = {label: (0, size) for label, size in sizes.items()}
        if not is_large or (op.agg is not None and is_builtin(op.agg) and is_traced()):
            return compute(whole)
        return in_pieces(whole, op.output, itemsize, compute, self.combined)

    def _joined_box(
        self, read: Sequence[Labelled], scalars: Sequence[Tensor], box: LabelBox
    ) -> States:
        op, agg = self.op, self.op.agg
        tiles = [
            aligned(_widened(window(x.tensor, x.labels, box)), x.labels, op.labels) for x in read
        ]
        shape = [box[label][1] for label in op.labels]
        types = self.state if agg is None else self._program.state
        joined = tuple(
            expanded(cast(f(*tiles, *scalars), t, self.device), shape)
            for f, t in zip(self._join, types, strict=True)
        )
        if agg is None:
            return joined
        axes = range(len(op.output), len(shape))
        identity = tuple(
            literal(x.item(), torch_type(t), self.device)
            for x, t in zip(self._program.identity, types, strict=True)
        )
        if is_builtin(agg):
            return (reduce_builtin(agg, joined[0], axes, identity[0]),)
        return reduce_tree(joined, axes, self.combined, identity)

    def _contracted(
        self, operands: Operands, scalars: Scalars, sizes: Mapping[str, int], out: DType
    ) -> Tensor:
        """The sum of products, as a view whose labels are in the output's order."""
        op, known = self.op, self._product
        assert known is not None  # noqa: S101
        typed = self._used(self._typed(scalars))
        terms = [self._term(term, function, operands, typed) for term, function in self._terms]
        repeats = prod(sizes[label] for label in self._once)
        held, wanted = torch_type(self._program.state[0]), torch_type(out)
        is_scaled = repeats != 1 or bool(known.factors)
        product = contract(terms, self._kept, held, held if is_scaled else wanted)
        result = aligned(product.tensor, product.labels, op.output)
        for factor in self._factors:
            result = result * factor(*typed)
        result = result * repeats if repeats > 1 else result
        result = torch.zeros_like(result) if repeats == 0 else result
        return expanded(cast(result, out, self.device), [sizes[label] for label in op.output])

    def _term(
        self, term: Term, function: Callable[..., Any], operands: Operands, scalars: Scalars
    ) -> Labelled:
        read = {
            k: distinct(x, self.op.inputs[k]) for k in term.args if (x := operands[k]) is not None
        }
        if term.is_input:
            return Labelled(*read[term.args[0]])
        tiles: list[Tensor | None] = [None] * self._read
        for k, (x, own) in read.items():
            tiles[k] = aligned(_widened(x), own, term.labels)
        return Labelled(function(*tiles, *scalars), term.labels)


def _widened(x: Tensor) -> Tensor:
    return x.to(torch.float32) if x.dtype in LOW else x


def fused_join(
    op: EinSum,
    dtypes: tuple[DType, ...],
    out: DType,
    scalar_types: tuple[tuple[str, DType], ...],
    device: torch.device,
) -> Callable[..., Sequence[Tensor]] | None:
    """The function that joins and aggregates without storing the joined product; None if none can.

    From operands, the sizes of all labels and run-time scalars it computes unfinished states.
    """
    if device.type != "cuda" or find_spec("triton") is None:
        return None
    from eindecomp.kernels.torch.generated import launch

    join = launch.fused_join(op, dtypes, out, scalar_types)
    return None if join is None else partial(launch.fused_states, join)


einsum_kernel = lru_cache(maxsize=2**12)(EinSumKernel)
"""The kernel of an EinSum for operands of the given types and a result of type `out`."""
