"""The kernel of a vertex: an EinSum, or one that moves data or sums rows into a table.

JAX's arrays cannot be written to, so a kernel here has no output to compute into, as those of
`kernels.library` have. An engine traces them within a program of its own and compiles all of it.
Sums of products are computed by `jnp.einsum`, all else is joined and reduced: XLA fuses a join into
the reduction that reads it, so the joined values are never in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from eindecomp.errors import InputError
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Concat, Fill, Gather, Input, Op, Reshape, ScatterAdd, Window
from eindecomp.graph.vertex import Vertex
from eindecomp.kernels.convolutions import convolution_of, pool_of
from eindecomp.kernels.jax.functions import JAX, cast
from eindecomp.kernels.jax.windows import WindowKernel
from eindecomp.kernels.library import Scalars
from eindecomp.kernels.point_program import finish_of, held_types, numbered_program, scalar_type
from eindecomp.kernels.sums_of_products import SumOfProducts, Term, product_of
from eindecomp.kernels.tile_arrays import distinct, einsum_arguments, reshaped, sizes_of
from eindecomp.lang.compile import compile_scalar
from eindecomp.lang.dtypes import INT64, LOW_PRECISION, DType, ScalarItems, Types, widen
from eindecomp.lang.einsum import EinSum, Labels, Sizes
from eindecomp.lang.monoid import BUILTIN, SUM
from eindecomp.lang.scalar import from_values, used_args, used_scalars

Operands = Sequence[jax.Array | None]
States = tuple[jax.Array, ...]
Labelled = tuple[jax.Array, Labels]
"""An array and its labels, each once."""

_REDUCERS: Mapping[str, Callable[..., Any]] = {
    "sum": lax.add,
    "prod": lax.mul,
    "max": lax.max,
    "min": lax.min,
    "any": lax.bitwise_or,
    "all": lax.bitwise_and,
}


class EinSumKernel:
    """An EinSum over operands of given types, for tiles of any sizes.

    `lent` has the sizes of labels that only operands have that are never read. `precision` is
    that of matrix products: "highest", or "default" for whatever XLA takes to be fast.
    """

    def __init__(
        self,
        op: EinSum,
        types: Types,
        out: DType,
        scalar_types: ScalarItems,
        lent: tuple[tuple[str, int], ...],
        precision: str,
    ) -> None:
        self.op, self.out, self.precision = op, out, precision
        self._lent = dict(lent)
        self._program = program = numbered_program(op, types, scalar_types)
        self._scalars = used_scalars(from_values(program.join))
        self._scalar_types = scalar_types
        self._read = len(used_args(op.join))
        finish = None if op.agg is None else finish_of(op.agg, program.state)
        self.state: Types = held_types(program, finish, out)
        width = len(program.state)
        compiled = partial(compile_scalar, backend=JAX, scalars=self._scalars)
        self._join = [compiled(expr, self._read) for expr in program.join]
        self._combine = [compile_scalar(expr, 2 * width, JAX) for expr in program.combine or ()]
        self._finish = None if finish is None else compile_scalar(finish[0], width, JAX)
        self._product = product_of(op, program, types)
        known = self._product or SumOfProducts((), ())
        self._terms = [(term, compiled(term.expr, self._read)) for term in known.terms]
        self._factors = [compiled(factor, 0) for factor in known.factors]

    @property
    def sums(self) -> bool:
        """Whether states are combined by adding them."""
        return self.op.agg == SUM

    def result(self, operands: Operands, scalars: Scalars, shape: Sequence[int]) -> States:
        """The finished result."""
        sizes = self._sizes(operands, shape)
        if self._product is not None:
            return (self._contracted(operands, scalars, sizes, self.out),)
        return (self.finished(self._joined(operands, scalars, sizes)),)

    def states(self, operands: Operands, scalars: Scalars, shape: Sequence[int]) -> States:
        """The unfinished states of this tile's share of an aggregation."""
        sizes = self._sizes(operands, shape)
        if self._product is not None:
            return (self._contracted(operands, scalars, sizes, self.state[0]),)
        return self._joined(operands, scalars, sizes)

    def combined(self, a: States, b: States) -> States:
        """Two states combined, element by element."""
        return self._combined(a, b, self.state)

    def _combined(self, a: States, b: States, types: Sequence[DType]) -> States:
        typed = zip((f(*a, *b) for f in self._combine), types, strict=True)
        return tuple(jnp.broadcast_to(cast(x, t), b[0].shape) for x, t in typed)

    def finished(self, states: States) -> jax.Array:
        """The result that a state stands for."""
        if self._finish is None:
            return cast(states[0], self.out)
        result = cast(self._finish(*states), self.out)
        return jnp.broadcast_to(result, states[0].shape)

    def index_range(self, operands: Operands, shape: Sequence[int]) -> None:
        """Nothing is looked up."""

    def _sizes(self, operands: Operands, shape: Sequence[int]) -> dict[str, int]:
        own = dict(zip(self.op.output, shape, strict=True))
        return own | self._lent | sizes_of(self.op.inputs, operands)

    def _used(self, scalars: Scalars) -> list[jax.Array]:
        """The scalars that compiled functions take."""
        places = (int(name[1:]) for name in self._scalars)
        return [jnp.asarray(scalars[k], scalar_type(self._scalar_types[k][1])) for k in places]

    def _joined(self, operands: Operands, scalars: Scalars, sizes: Sizes) -> States:
        op, agg = self.op, self.op.agg
        output = tuple(label for label in op.output if sizes[label] != 1)
        space = (*output, *(label for label in op.aggregated if sizes[label] != 1))
        pairs = zip(operands[: self._read], op.inputs, strict=False)
        read = (_operand(x, own) for x, own in pairs if x is not None)
        tiles = [aligned(_widened(x), own, space) for x, own in read]
        types = self.state if agg is None else self._program.state
        shape = [sizes[label] for label in space]
        used, typed = self._used(scalars), zip(self._join, types, strict=True)
        joined = tuple(jnp.broadcast_to(cast(f(*tiles, *used), t), shape) for f, t in typed)
        if agg is not None:
            joined = self._reduced(joined, range(len(output), len(space)))
        return tuple(aligned(x, output, op.output) for x in joined)

    def _reduced(self, joined: States, axes: Sequence[int]) -> States:
        agg, types = self.op.agg, self._program.state
        assert agg is not None  # noqa: S101
        typed = zip(self._program.identity, types, strict=True)
        identity = tuple(np.asarray(x, t) for x, t in typed)
        if BUILTIN.get(agg.name) == agg:
            return (lax.reduce(joined[0], identity[0], _REDUCERS[agg.name], axes),)

        def combine(a: States, b: States) -> States:
            return self._combined(a, b, types)

        if axes:
            return tuple(lax.reduce(joined, identity, combine, axes))
        # What enters a state goes through `combine` once all the same.
        return combine(tuple(jnp.broadcast_to(x, joined[0].shape) for x in identity), joined)

    def _contracted(
        self, operands: Operands, scalars: Scalars, sizes: Sizes, out: DType
    ) -> jax.Array:
        """The sum of products."""
        op, known = self.op, self._product
        assert known is not None  # noqa: S101
        used = self._used(scalars)
        terms = [self._term(term, function, operands, used) for term, function in self._terms]
        repeats = prod(sizes[label] for label in op.aggregated if label not in known.labels)
        kept = tuple(label for label in op.output if label in known.labels and sizes[label] != 1)
        result = aligned(self._multiplied(terms, kept), kept, op.output)
        for factor in self._factors:
            result = result * cast(factor(*used), result.dtype)
        if repeats != 1:
            result = result * np.asarray(repeats).astype(result.dtype)
        return jnp.broadcast_to(cast(result, out), [sizes[label] for label in op.output])

    def _term(
        self,
        term: Term,
        function: Callable[..., Any],
        operands: Operands,
        scalars: Sequence[jax.Array],
    ) -> Labelled:
        read = {
            k: _operand(x, self.op.inputs[k]) for k in term.args if (x := operands[k]) is not None
        }
        if term.is_input:
            return read[term.args[0]]
        tiles: list[jax.Array | None] = [None] * self._read
        space = max((own for _, own in read.values()), key=len)
        for k, (x, own) in read.items():
            tiles[k] = aligned(_widened(x), own, space)
        return function(*tiles, *scalars), space

    def _multiplied(self, terms: Sequence[Labelled], kept: Labels) -> jax.Array:
        """The product of terms, summed over all labels that are not kept."""
        held = self._program.state[0]
        types, labels = {x.dtype for x, _ in terms}, [{*own} for _, own in terms]
        sums_pairs = len(terms) == 2 and labels[0] ^ labels[1] <= {*kept}
        if not (sums_pairs and len(types) == 1 and types <= LOW_PRECISION):
            terms = [(cast(x, held), own) for x, own in terms]
        every = dict.fromkeys(t for _, own in terms for t in own)
        names = {label: k for k, label in enumerate(every)}
        arguments: list[Any] = []
        for x, own in terms:
            arguments += [x, [names[label] for label in own]]
        arguments.append([names[label] for label in kept])
        return jnp.einsum(*arguments, precision=self.precision, preferred_element_type=held)


def _operand(x: jax.Array, labels: Labels) -> Labelled:
    """An operand with each label once, by its diagonals, and without those of size 1.

    With a leading one, XLA's CPU compiler computes some sums of products wrong, taking them for
    matrix products: those of `T[a: 1, b: 64, k: 16] * W[f: 8, k]`, and of quotients, in JAX 0.10.
    """
    x, labels = distinct(x, labels)
    ones = tuple(k for k, size in enumerate(x.shape) if size == 1)
    return jnp.squeeze(x, ones), tuple(t for k, t in enumerate(labels) if k not in ones)


def aligned(x: jax.Array, labels: Labels, space: Labels) -> jax.Array:
    """A dimension for each label of a space, of size 1 where the array has none."""
    order = [labels.index(label) for label in space if label in labels]
    x = x if order == sorted(order) else x.transpose(order)
    lacking = [k for k, label in enumerate(space) if label not in labels]
    return jnp.expand_dims(x, lacking) if lacking else x


def _widened(x: jax.Array) -> jax.Array:
    return x.astype(np.float32) if x.dtype in LOW_PRECISION else x


einsum_kernel = lru_cache(maxsize=2**12)(EinSumKernel)
"""The kernel of an EinSum for operands of the given types and a result of type `out`."""


@dataclass(frozen=True, slots=True)
class MoveKernel:
    """A gather, scatter, concatenation, slice or reshape, with results of type `out`."""

    op: Op
    out: DType

    @property
    def state(self) -> Types:
        """The type in which parts of a table are added."""
        return (widen(self.out),)

    @property
    def sums(self) -> bool:
        """Parts of a table are added."""
        return True

    def result(self, operands: Sequence[Any], scalars: Scalars, shape: Any) -> States:
        """A tile."""
        del scalars
        return (self.finished((self._moved(operands, shape),)),)

    def states(self, operands: Sequence[Any], scalars: Scalars, shape: Any) -> States:
        """A part of a sum."""
        del scalars
        return (cast(self._moved(operands, shape), *self.state),)

    def combined(self, a: States, b: States) -> States:
        """The sum of two parts."""
        return (a[0] + b[0],)

    def finished(self, states: States) -> jax.Array:
        """The sum in the result's type."""
        return cast(states[0], self.out)

    def index_range(self, operands: Sequence[Any], shape: Sequence[int]) -> jax.Array | None:
        """The least and the largest index, and how many rows there are."""
        match self.op:
            case Gather(axis=axis):
                rows = operands[0].shape[axis]
            case ScatterAdd(axis=axis):
                rows = shape[axis]
            case _:
                return None
        index = operands[1]
        limits = np.iinfo(index.dtype.name)
        low, high = index.min(initial=limits.max), index.max(initial=limits.min)
        if index.dtype == np.uint64:
            high = jnp.minimum(high, np.uint64(2**63 - 1))
        is_none = index.size == 0
        ends = (0, -1) if is_none else (low, high)
        return jnp.stack([jnp.asarray(end).astype(INT64) for end in (*ends, rows)])

    def _moved(self, operands: Sequence[Any], shape: Sequence[int]) -> jax.Array:
        match self.op:
            case Gather() as op:
                return _gather(op, operands[0], operands[1])
            case ScatterAdd() as op:
                wide = widen(self.out)
                return _scatter_add(op, operands[0], operands[1], shape[op.axis], wide)
            case Concat() as op:
                return jnp.concatenate([cast(x, self.out) for x in operands], op.axis)
            case Window():
                return operands[0]
            case Reshape() as op:
                return reshaped(op, operands[0], jnp.transpose)
            case _:
                raise AssertionError(f"{self.op} moves nothing")


TracedKernel = EinSumKernel | MoveKernel | WindowKernel
"""What a vertex computes on tiles, given the shape of the tile."""


def kernel_of(graph: Graph, vertex: Vertex, precision: str = "highest") -> TracedKernel:
    """The kernel of a vertex that is neither an input nor a fill."""
    op = vertex.op
    if isinstance(op, EinSum):
        arguments = einsum_arguments(graph, vertex, op)
        plain = einsum_kernel(*arguments, precision)
        known = convolution_of(vertex, arguments[1]) or pool_of(vertex)
        return plain if known is None else WindowKernel(known, plain, precision)
    if isinstance(op, Input | Fill):
        raise InputError(f"{vertex} is not computed from tiles of others: it has no kernel")
    return MoveKernel(op, vertex.dtype)


def _gather(op: Gather, table: jax.Array, index: jax.Array) -> jax.Array:
    shape = [size for k, size in enumerate(table.shape) if k != op.axis]
    sizes = dict(zip(op.table, shape, strict=True)) | dict(zip(op.index, index.shape, strict=True))
    if not table.size:  # there is no row to read
        return jnp.zeros([sizes[label] for label in op.output], table.dtype)
    if set(op.table).isdisjoint(op.index):
        rows = jnp.take(table, index, axis=op.axis, mode="clip")
        labels = (*op.table[: op.axis], *op.index, *op.table[op.axis :])
        return aligned(rows, labels, op.output)
    place: list[jax.Array] = [_along(label, op.output, sizes[label]) for label in op.table]
    place.insert(op.axis, aligned(index, op.index, op.output))
    return table.at[tuple(place)].get(mode="clip", wrap_negative_indices=False)


def _scatter_add(
    op: ScatterAdd, source: jax.Array, index: jax.Array, rows: int, wide: DType
) -> jax.Array:
    sizes = sizes_of([op.source, op.index], [source, index])
    shared = tuple(label for label in op.table if label in op.index)
    whole = tuple(label for label in op.table if label not in op.index)
    space = (*op.index, *whole)
    added, own = cast(source, wide), op.source
    alone = [k for k, label in enumerate(own) if label not in space]
    if alone:
        added = lax.reduce(added, np.zeros((), wide), lax.add, alone)
        own = tuple(label for label in own if label in space)
    values = jnp.broadcast_to(aligned(added, own, space), [sizes[label] for label in space])
    place = (index, *(_along(k, op.index, sizes[k]) for k in shared))
    total = jnp.zeros([rows, *(sizes[label] for label in (*shared, *whole))], wide)
    if total.size and values.size:
        total = total.at[place].add(values, mode="drop", wrap_negative_indices=False)
    return aligned(total, (op.row_label, *shared, *whole), op.output)


def _along(label: str, space: Labels, size: int) -> jax.Array:
    """0, 1, 2, … along one label of a space."""
    return aligned(jnp.arange(size), (label,), space)
