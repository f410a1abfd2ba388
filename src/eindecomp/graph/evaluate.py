"""The reference semantics: direct NumPy evaluation, slow and obvious.

Every vertex is computed the way it is defined. An EinSum lays its inputs out over all labels,
applies the join to every combination and aggregates; it works through blocks of the label space, so
that the joined values of one block at a time fit in memory. Nothing faster shares code with this.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from eindecomp.errors import InputError
from eindecomp.graph.arrays import check_names, check_outputs, to_array, to_scalars
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Concat, Fill, Gather, Input, Reshape, ScatterAdd, Window
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.compile import compile_scalar
from eindecomp.lang.dtypes import INT64, Array, DType, ScalarTypes, ScalarValues, concrete, widen
from eindecomp.lang.einsum import EinSum, Labels, Sizes
from eindecomp.lang.index import CLAMP
from eindecomp.lang.neutral import safe_combine
from eindecomp.lang.numpy_backend import NUMPY
from eindecomp.lang.scalar import Expr, used_scalars, values
from eindecomp.lang.scalar_types import with_casts

State = list[Array]

BLOCK = 2**20
"""How many joined values are laid out at once."""


class HasGraph(Protocol):
    """What is about a graph, such as a plan."""

    @property
    def graph(self) -> Graph:
        """The graph."""
        ...


def evaluate(graph: Graph | HasGraph, inputs: Mapping[str, object]) -> dict[str, Array]:
    """Compute the outputs of a graph with NumPy, vertex by vertex: the reference for all engines.

    Args:
        graph: What to compute, such as `ed.parse(text)`; of a plan, the graph that was planned.
        inputs: Arrays by name, and numbers for run-time scalars, such as `{"X": x, "lr": 0.1}`.

    Returns:
        The outputs by name.

    Raises:
        InputError: What was given does not fit the inputs.

    Examples:
        >>> from eindecomp.graph.text.elaborate import parse
        >>> graph = parse("input X[i: 2, j: 2]\\nZ[i] <- max X[i,j]\\noutput Z")
        >>> evaluate(graph, {"X": [[1, 2], [4, 3]]})["Z"]
        array([2., 4.], dtype=float32)
    """
    own = graph if isinstance(graph, Graph) else getattr(graph, "graph", None)
    if not isinstance(own, Graph):
        raise InputError(f"evaluate takes a graph or a plan, got {type(graph).__name__}")
    check_outputs(own)
    known = {vertex.name: vertex for vertex in own.inputs}
    check_names(inputs, {**known, **own.scalars})
    arrays = {name: to_array(inputs[name], vertex) for name, vertex in known.items()}
    scalars = to_scalars(inputs, own.scalars)
    last_use = {name: user for user, v in own.vertices.items() for name in v.inputs}
    wanted = {vertex.name for vertex in own.outputs}
    for vertex in own.vertices.values():
        if not isinstance(vertex.op, Input):
            needed = vertex.elements * vertex.dtype.itemsize
            if needed > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
                size = f"{needed / 2**30:,.0f} GiB"
                raise InputError(f"{vertex} of shape {vertex.shape} needs {size} of memory")
            operands = [arrays[name] for name in vertex.inputs]
            with computing(vertex):
                arrays[vertex.name] = compute(vertex, operands, scalars, own.scalars)
        for name in {*vertex.inputs, vertex.name} - wanted:
            if last_use.get(name, vertex.name) == vertex.name:
                arrays.pop(name, None)
    # An input that is an output too must not be the caller's own array.
    results = {vertex.name: arrays[vertex.name] for vertex in own.outputs}
    return {name: array.copy() if name in known else array for name, array in results.items()}


@contextmanager
def computing(what: object) -> Generator[None]:
    """Let NaN and ∞ arise silently; report what NumPy refuses as an error of `what`."""
    try:
        with np.errstate(all="ignore"):
            yield
    except InputError:
        raise
    except (ValueError, TypeError, ArithmeticError, MemoryError) as error:
        raise InputError(f"{what} cannot be computed: {error}") from error


def compute(
    vertex: Vertex, operands: Sequence[Array], scalars: ScalarValues, scalar_types: ScalarTypes
) -> Array:
    """The array of one vertex from the arrays of its inputs."""
    match vertex.op:
        case EinSum() as op:
            windows = vertex.windows or (None,) * len(operands)
            operands = [look(x, own) for x, own in zip(operands, windows, strict=True)]
            steps = EinSumSteps(op, [x.dtype for x in operands], scalars, scalar_types)
            made = steps.finish(steps.partial(operands, vertex.sizes))
        case Fill() as op:
            index = list(np.indices(vertex.shape, dtype=np.int64, sparse=True))
            types = [INT64] * len(index)
            value = _compiled(op.value, types, scalars, scalar_types)(*index)
            made = np.broadcast_to(value, vertex.shape)
        case Gather() as op:
            made = _gather(op, operands[0], operands[1], vertex)
        case ScatterAdd() as op:
            made = _scatter_add(op, operands[0], operands[1], vertex)
        case Concat() as op:
            made = np.concatenate([x.astype(vertex.dtype) for x in operands], axis=op.axis)
        case Window() as op:
            made = look(operands[0], op)
        case Reshape() as op:
            made = _reshape(op, *operands)
        case Input():
            raise InputError(f"{vertex} is an input")
    return np.ascontiguousarray(made, dtype=vertex.dtype).reshape(vertex.shape)


def _compiled(
    expr: Expr, args: Sequence[DType], given: Mapping[str, Any], types: ScalarTypes
) -> Callable[..., Any]:
    """An expression over inputs of the given types; low-precision ones come widened."""
    explicit, _ = with_casts(expr, args, types)
    names = used_scalars(explicit)
    function = compile_scalar(explicit, len(args), NUMPY, names)
    fixed = [given[name] for name in names]
    return lambda *values: function(*values, *fixed)


class EinSumSteps:
    """An EinSum over inputs of the given types, in steps: join and aggregate, combine, finish.

    What is between the steps is a *state* of the aggregation: an array for each of its values, of
    the types it accumulates in. So an EinSum can be computed tile by tile: the states of the tiles
    of an aggregated label are combined before one of them is finished.
    """

    def __init__(
        self, op: EinSum, types: Sequence[DType], scalars: ScalarValues, scalar_types: ScalarTypes
    ) -> None:

        def run(expr: Expr, args: Sequence[DType]) -> Callable[..., Any]:
            return _compiled(expr, args, scalars, scalar_types)

        joined = [with_casts(value, types, scalar_types)[1] for value in values(op.join)]
        self.op = op
        self._join = [run(value, types) for value in values(op.join)]
        self._combine: list[Callable[..., Any]] = []
        self._finish: Callable[..., Any] | None = None
        if op.agg is None:
            self._types = [concrete(joined[0])]
            return
        self._types = [widen(concrete(t)) for t in op.agg.state_types(joined, scalar_types)]
        both = [*self._types, *self._types]
        combine = safe_combine(op.agg, tuple(self._types))
        self._combine = [run(value, both) for value in values(combine)]
        if op.agg.finish is not None:
            self._finish = run(op.agg.finish, self._types)

    def partial(self, operands: Sequence[Array], sizes: Sizes | None = None) -> State:
        """Join the inputs and aggregate; `sizes` are those of labels that no input has."""
        op, sizes = self.op, {**(sizes or {})}
        for labels, array in zip(op.inputs, operands, strict=True):
            sizes |= dict(zip(labels, array.shape, strict=True))
        wide = [array.astype(widen(array.dtype), copy=False) for array in operands]
        neutral = [t.type(0) for t in self._types]
        if op.agg is not None:
            neutral = op.agg.identity_for(self._types)
        shape = tuple(sizes[label] for label in op.output)
        state = [np.full(shape, x, t) for x, t in zip(neutral, self._types, strict=True)]
        axes = tuple(range(len(op.output), len(op.labels)))
        for block in _blocks([sizes[label] for label in op.labels]):
            where = dict(zip(op.labels, block, strict=True))
            extents = [where[label].stop - where[label].start for label in op.labels]
            pairs = zip(wide, op.inputs, strict=True)
            tiles = [_lay_out(x, labels, op.labels, where) for x, labels in pairs]
            typed = zip(self._join, self._types, strict=True)
            joined = [np.broadcast_to(f(*tiles), extents).astype(t) for f, t in typed]
            place = tuple(where[label] for label in op.output)
            part = _reduce(joined, axes, self.combine)
            if op.agg is not None:
                part = self.combine([x[place] for x in state], part)
            for x, y in zip(state, part, strict=True):
                x[place] = y
        return state

    def combine(self, left: State, right: State) -> State:
        """The ⊕ of two states, element by element."""
        typed = zip(self._combine, self._types, strict=True)
        return [np.asarray(f(*left, *right)).astype(t) for f, t in typed]

    def finish(self, state: State) -> Array:
        """The result that a final state stands for."""
        if self._finish is None:
            return state[0]
        # It may be a constant, which fills the tensor all the same.
        return np.broadcast_to(self._finish(*state), state[0].shape)


def _reduce(joined: State, axes: Sequence[int], combine: Callable[[State, State], State]) -> State:
    """Combine all values along `axes` by halving: n values take log2(n) steps."""
    for axis in reversed(axes):
        parts = [np.moveaxis(x, axis, 0) for x in joined]
        while (size := len(parts[0])) > 1:
            half = size // 2
            both = combine([x[:half] for x in parts], [x[half : 2 * half] for x in parts])
            pairs = zip(both, parts, strict=True)
            parts = [np.concatenate([x, rest[2 * half :]]) for x, rest in pairs]
        joined = [x[0] for x in parts]
    return joined


def _blocks(sizes: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Cut a label space into blocks of at most `BLOCK` points, whole along the last labels."""
    room = BLOCK
    lengths: list[int] = []
    for size in reversed(sizes):
        lengths.append(max(1, min(size, room)))
        room //= lengths[-1]
    lengths.reverse()
    ranges = [
        [slice(start, min(start + length, size)) for start in range(0, size, length)]
        for size, length in zip(sizes, lengths, strict=True)
    ]
    return itertools.product(*ranges)


def _lay_out(array: Array, labels: Labels, space: Labels, where: Mapping[str, slice]) -> Array:
    """A tensor's block with a dimension for each label of `space`, of size 1 where it has none."""
    # A repeated label takes the diagonal: cut every place of it alike, then keep equal indices.
    block = array[tuple(where[label] for label in labels)]
    own = list(dict.fromkeys(labels))
    block = np.einsum(block, [own.index(label) for label in labels], list(range(len(own))))
    order = [own.index(label) for label in space if label in own]
    shape = [block.shape[own.index(label)] if label in own else 1 for label in space]
    return block.transpose(order).reshape(shape)


def _gather(op: Gather, table: Array, index: Array, vertex: Vertex) -> Array:
    _check_index(index, table.shape[op.axis], vertex)
    space = list(op.output)
    place = [_lay_index(label, space, vertex.shape) for label in op.table]
    where = {label: slice(None) for label in op.index}
    rows = _lay_out(index, op.index, op.output, where)
    return table[(*place[: op.axis], rows, *place[op.axis :])]


def _scatter_add(op: ScatterAdd, source: Array, index: Array, vertex: Vertex) -> Array:
    _check_index(index, vertex.shape[op.axis], vertex)
    space = tuple(dict.fromkeys((*op.source, *op.index)))
    where = {label: slice(None) for label in space}
    laid = (_lay_out(index, op.index, space, where), _lay_out(source, op.source, space, where))
    rows, added = np.broadcast_arrays(*laid)
    place = [_lay_index(label, list(space), rows.shape) for label in op.table]
    total = np.zeros(vertex.shape, widen(vertex.dtype))
    np.add.at(total, (*place[: op.axis], rows, *place[op.axis :]), added.astype(total.dtype))
    return total


def _lay_index(label: str, space: list[str], shape: Sequence[int]) -> Array:
    """0, 1, 2, … along one label of a space."""
    at = space.index(label)
    return np.arange(shape[at]).reshape([shape[at] if k == at else 1 for k in range(len(space))])


def _check_index(index: Array, size: int, vertex: Vertex) -> None:
    if index.size and (index.min() < 0 or index.max() >= size):
        bad = index.min() if index.min() < 0 else index.max()
        raise InputError(f"{vertex}: index {bad} is outside 0 to {size - 1}")


def look(source: Array, window: Window | None) -> Array:
    """What is read of an array through a window, element by element."""
    if window is None:
        return source
    numbers = dict(zip(window.output, np.indices(window.sizes, sparse=True), strict=True))
    places: list[Array] = []
    inside, beyond = np.ones(window.sizes, dtype=bool), np.zeros(window.sizes, source.dtype)
    for index, size in zip(window.index, source.shape, strict=True):
        at = sum((times * numbers[label] for label, times in index.terms), np.array(index.offset))
        there = (at % index.divisor == 0) & (at >= 0) & (at // index.divisor < size)
        if index.outside not in (None, CLAMP):
            beyond = np.where(inside & ~there, np.asarray(index.outside, source.dtype), beyond)
            inside = inside & there
        places.append(np.clip(at // index.divisor, 0, max(size - 1, 0)))
    if not source.size or not inside.size:
        return beyond
    return np.where(inside, source[tuple(places)], beyond)


def _reshape(op: Reshape, source: Array) -> Array:
    sizes = dict(op.sizes)
    before = [label for group in op.input for label in group]
    after = [label for group in op.groups for label in group]
    split = source.reshape([sizes[label] for label in before])
    return split.transpose([before.index(label) for label in after])
