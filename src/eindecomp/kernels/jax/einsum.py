"""One EinSum on one tile: sums of products by `dot_general`, all else joined and reduced.

XLA fuses a join into the reduction that reads it, so the joined values are never in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from eindecomp.kernels.jax.functions import JAX, cast
from eindecomp.kernels.point_program import finish_of, held_types, numbered_program, scalar_type
from eindecomp.kernels.sums_of_products import Product, Term, Tree, cheapest_trees, product_of
from eindecomp.kernels.tile_arrays import sizes_of
from eindecomp.lang.compile import compile_scalar
from eindecomp.lang.dtypes import LOW_PRECISION, DType
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.monoid import BUILTIN, SUM
from eindecomp.lang.scalar import Expr, from_values, used_args, used_scalars

Operands = Sequence[jax.Array | None]
States = tuple[jax.Array, ...]
Labelled = tuple[jax.Array, Labels]
"""An array and its labels, each once."""

_jnp: Any = jnp
"""JAX does not say what the types of some functions are."""

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

    `lent` has the sizes of labels that only operands have which are never read. `precision` is
    that of matrix products: "highest", or "default" for whatever XLA takes to be fast.
    """

    def __init__(
        self,
        op: EinSum,
        types: tuple[DType, ...],
        out: DType,
        scalar_types: tuple[tuple[str, DType], ...],
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
        self.state: tuple[DType, ...] = held_types(program, finish, out)
        width = len(program.state)
        self._join = [self._compiled(expr, self._read) for expr in program.join]
        self._combine = [self._compiled(expr, 2 * width) for expr in program.combine or ()]
        self._finish = None if finish is None else self._compiled(finish[0], width)
        self._product = product_of(op, program, types)
        known = self._product or Product((), ())
        self._terms = [(term, self._compiled(term.expr, self._read)) for term in known.terms]
        self._factors = [self._compiled(factor, 0) for factor in known.factors]

    def _compiled(self, expr: Expr, arity: int) -> Callable[..., Any]:
        return compile_scalar(expr, arity, JAX, self._scalars)

    @property
    def sums(self) -> bool:
        """Whether states are combined by adding them."""
        return self.op.agg == SUM

    def result(self, operands: Operands, scalars: Sequence[object], shape: Sequence[int]) -> States:
        """The finished result."""
        sizes = self._sizes(operands, shape)
        if self._product is not None:
            return (self._contracted(operands, scalars, sizes, self.out),)
        return (self.finished(self._joined(operands, scalars, sizes)),)

    def states(self, operands: Operands, scalars: Sequence[object], shape: Sequence[int]) -> States:
        """The unfinished states of this tile's share of an aggregation."""
        sizes = self._sizes(operands, shape)
        if self._product is not None:
            return (self._contracted(operands, scalars, sizes, self.state[0]),)
        return self._joined(operands, scalars, sizes)

    def combined(self, a: States, b: States) -> States:
        """Two states combined, element by element."""
        return self._combined(a, b, self.state)

    def _combined(self, a: States, b: States, types: Sequence[DType]) -> States:
        found = [f(*a, *b, *self._no_scalars) for f in self._combine]
        return tuple(
            jnp.broadcast_to(cast(x, t), b[0].shape) for x, t in zip(found, types, strict=True)
        )

    def finished(self, states: States) -> jax.Array:
        """The result that a state stands for."""
        if self._finish is None:
            return cast(states[0], self.out)
        found = cast(self._finish(*states, *self._no_scalars), self.out)
        return jnp.broadcast_to(found, states[0].shape)

    def index_range(self, operands: Operands, shape: Sequence[int]) -> None:
        """Nothing is looked up."""

    @property
    def _no_scalars(self) -> list[None]:
        return [None] * len(self._scalars)  # only a join reads them

    def _sizes(self, operands: Operands, shape: Sequence[int]) -> dict[str, int]:
        own = dict(zip(self.op.output, shape, strict=True))
        return own | self._lent | sizes_of(self.op.inputs, operands)

    def _used(self, scalars: Sequence[object]) -> list[jax.Array]:
        """The scalars that compiled functions take."""
        places = (int(name[1:]) for name in self._scalars)
        return [jnp.asarray(scalars[k], scalar_type(self._scalar_types[k][1])) for k in places]

    def _joined(
        self, operands: Operands, scalars: Sequence[object], sizes: Mapping[str, int]
    ) -> States:
        op, agg = self.op, self.op.agg
        output = tuple(label for label in op.output if sizes[label] != 1)
        space = (*output, *(label for label in op.aggregated if sizes[label] != 1))
        tiles = [
            aligned(_widened(x), own, space)
            for x, own in (
                _operand(x, own)
                for x, own in zip(operands[: self._read], op.inputs, strict=False)
                if x is not None
            )
        ]
        types = self.state if agg is None else self._program.state
        shape = [sizes[label] for label in space]
        joined = tuple(
            jnp.broadcast_to(cast(f(*tiles, *self._used(scalars)), t), shape)
            for f, t in zip(self._join, types, strict=True)
        )
        if agg is not None:
            joined = self._reduced(joined, range(len(output), len(space)))
        return tuple(aligned(x, output, op.output) for x in joined)

    def _reduced(self, joined: States, axes: Sequence[int]) -> States:
        agg, types = self.op.agg, self._program.state
        assert agg is not None  # noqa: S101
        identity = tuple(
            np.asarray(x, t) for x, t in zip(self._program.identity, types, strict=True)
        )
        if BUILTIN.get(agg.name) == agg:
            return (lax.reduce(joined[0], identity[0], _REDUCERS[agg.name], axes),)

        def combine(a: States, b: States) -> States:
            return self._combined(a, b, types)

        if axes:
            return tuple(lax.reduce(joined, identity, combine, axes))
        # What enters a state goes through `combine` once all the same.
        return combine(tuple(jnp.broadcast_to(x, joined[0].shape) for x in identity), joined)

    def _contracted(
        self, operands: Operands, scalars: Sequence[object], sizes: Mapping[str, int], out: DType
    ) -> jax.Array:
        """The sum of products."""
        op, known = self.op, self._product
        assert known is not None  # noqa: S101
        used = self._used(scalars)
        terms = [self._term(term, function, operands, used) for term, function in self._terms]
        repeats = prod(sizes[label] for label in op.aggregated if label not in known.labels)
        kept = tuple(label for label in op.output if label in known.labels and sizes[label] != 1)
        extents = {label: n for x, own in terms for label, n in zip(own, x.shape, strict=True)}
        [(_, tree)] = cheapest_trees([own for _, own in terms], kept, extents)
        found, labels = self._multiplied(tree, terms, kept, self._program.state[0])
        result = aligned(found, labels, op.output)
        for factor in self._factors:
            result = result * cast(factor(*used), result.dtype)
        if repeats != 1:
            result = result * np.asarray(repeats).astype(result.dtype)
        return jnp.broadcast_to(cast(result, out), [sizes[label] for label in op.output])

    def _term(
        self,
        term: Term,
        function: Callable[..., jax.Array],
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

    def _multiplied(
        self, tree: Tree, terms: Sequence[Labelled], kept: Labels, held: DType
    ) -> Labelled:
        """The product of a tree's terms, summed over all labels that nothing else has."""
        if isinstance(tree, int):
            return terms[tree]
        outside = [own for k, (_, own) in enumerate(terms) if k not in _leaves(tree)]
        needed = dict.fromkeys((*kept, *(label for own in outside for label in own)))
        (a, left), (b, right) = (self._multiplied(t, terms, kept, held) for t in tree)
        order = tuple(label for label in needed if label in {*left, *right})
        if a.dtype != b.dtype or a.dtype not in LOW_PRECISION:
            a, b = cast(a, held), cast(b, held)
        both = {*left} & {*right}
        # A matrix product sums something, and its factors are more than pairs of numbers.
        if both <= {*order} or not any(label not in both for label in order):
            space = tuple(dict.fromkeys((*order, *left, *right)))
            joined = aligned(cast(a, held), left, space) * aligned(cast(b, held), right, space)
            axes = tuple(range(len(order), len(space)))
            return lax.reduce(joined, np.zeros((), held), lax.add, axes), order
        names = {label: k for k, label in enumerate(dict.fromkeys((*left, *right)))}
        spec = [[names[label] for label in own] for own in (left, right, order)]
        found = jnp.einsum(
            a, spec[0], b, spec[1], spec[2],
            precision=self.precision, preferred_element_type=held,
        )  # fmt: skip
        return found, order


def _leaves(tree: Tree) -> set[int]:
    return {tree} if isinstance(tree, int) else _leaves(tree[0]) | _leaves(tree[1])


def _operand(x: jax.Array, labels: Labels) -> Labelled:
    """An operand with each label once, by its diagonals, and without those of size 1.

    With a leading one, XLA's CPU compiler gets sums of products wrong that it takes for a matrix
    product: those of `T[a: 1, b: 64, k: 16] * W[f: 8, k]`, and of quotients, in JAX 0.10.
    """
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = _jnp.diagonal(x, 0, first, second)
            labels = (*(t for k, t in enumerate(labels) if k not in (first, second)), label)
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


@lru_cache(maxsize=2**12)
def einsum_kernel(
    op: EinSum,
    types: tuple[DType, ...],
    out: DType,
    scalar_types: tuple[tuple[str, DType], ...] = (),
    lent: tuple[tuple[str, int], ...] = (),
    precision: str = "highest",
) -> EinSumKernel:
    """The kernel of an EinSum for operands of the given types and a result of type `out`."""
    return EinSumKernel(op, types, out, scalar_types, lent, precision)
