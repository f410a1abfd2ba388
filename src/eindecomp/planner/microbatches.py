"""Micro-batches: a step that computes its batch in several parts, one after another.

Micro-batch c of n computes rows c, c + n, c + 2n, … of the batch: whoever holds a block of the
batch holds rows of every micro-batch, and nothing moves. What aggregates the batch, such as a
gradient, is combined with what the micro-batches before it gave; devices that each have a part of
it need not combine those before the last. What does not depend on the batch is computed before, and
what depends on such a result after the last.

Where rows need what all rows give, as in a batch norm, a batch cannot be divided, unless that
follows from the data alone, as the number of tokens that are not padding: it is computed before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn, TypeVar

from eindecomp.errors import PlanError, check_whole, quote, suggest
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Concat, Fill, Input, Op, Reshape, Window, sliced
from eindecomp.graph.parts import has_plain_parts
from eindecomp.graph.vertex import Vertex, unused_label
from eindecomp.lang.dtypes import widen
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import SUM
from eindecomp.lang.scalar import Arg, call, used_args
from eindecomp.layout.view import view_of


class Rows(NamedTuple):
    """The dimension of a tensor in which the rows of the batch follow each other."""

    dim: int
    each: int = 1
    """How many of its elements belong to one row."""


def checked_microbatches(given: Any) -> dict[str, int]:
    """What was given: labels, each with a number of micro-batches.

    >>> checked_microbatches({"b": 4}), checked_microbatches(None)
    ({'b': 4}, {})
    """
    if given is None:
        return {}
    counts: dict[Any, Any] = dict(given) if isinstance(given, Mapping) else {0: None}  # pyright: ignore[reportUnknownArgumentType]
    if not all(isinstance(label, str) for label in counts):
        form = "{label: number}, such as {'b': 4}"
        raise PlanError(f"microbatches are given as {form}, not {quote(str(given))}")  # pyright: ignore[reportUnknownArgumentType]
    for label, count in counts.items():
        check_whole(**{f"microbatches along {label!r}": count})
    return {label: int(count) for label, count in counts.items()}


def micro_batched(
    graph: Graph, counts: Mapping[str, int], tie: Mapping[str, str]
) -> tuple[Graph, dict[str, list[str]]]:
    """The graph that computes micro-batches, and for what it computes in copies their names.

    >>> from eindecomp.graph.text.elaborate import parse
    >>> text = "input X[b: 4, i: 3], W[i]\\nY[b] <- sum X[b,i] * W[i]\\nG[i] <- sum X[b,i] * Y[b]"
    >>> made, copies = micro_batched(parse(text + "\\noutput G"), {"b": 2}, {})
    >>> print(made)
    input X[b: 4, i: 3]
    input W[i: 3]
    X.rows[b,turn,i] <- X[(b: 2, turn: 2), i]
    X.micro0[b,i] <- X.rows[b, 0, i]
    Y.micro0[b] <- sum X.micro0[b,i] * W[i]
    G.micro0[i] <- sum X.micro0[b,i] * Y.micro0[b]
    X.micro1[b,i] <- X.rows[b, 1, i]
    Y.micro1[b] <- sum X.micro1[b,i] * W[i]
    G.micro1[i] <- sum X.micro1[b,i] * Y.micro1[b]
    G[i] <- G.micro0[i] + G.micro1[i]
    output G
    >>> copies
    {'Y': ['Y.micro0', 'Y.micro1'], 'G': ['G.micro0', 'G.micro1']}
    """
    copies: dict[str, list[str]] = {}
    for label, count in counts.items():
        if count == 1:
            _inputs(graph, label, count, tie)  # or it is refused
            continue
        batch = _Batch.of(graph, label, count, tie)
        unrolled = _Unrolled(graph, batch)
        again = unrolled.copies
        copies = {name: [c for o in own for c in again.get(o, [o])] for name, own in copies.items()}
        copies = {**again, **copies}
        graph = unrolled.made
    return graph, copies


def for_copies(
    given: Mapping[str, Any], copies: Mapping[str, list[str]], made: Graph
) -> dict[str, Any]:
    """What was said of tensors, said of their copies, and of what is still there under its name."""
    said = {copy: own for name, own in given.items() for copy in copies.get(name, ())}
    return said | {n: own for n, own in given.items() if n not in copies or n in made}


AnyOp = TypeVar("AnyOp", bound=Op)


@dataclass(frozen=True)
class _Batch:
    """What a graph computes row by row, and what aggregates rows."""

    label: str
    count: int
    size: int
    rows: Mapping[str, Rows]
    """The tensors that have rows, inputs among them."""
    cut: Mapping[str, str]
    """What is computed in micro-batches, each with the label under which it reads rows."""
    late: frozenset[str]
    """What depends on results that aggregate rows, and those."""

    @staticmethod
    def of(graph: Graph, label: str, count: int, tie: Mapping[str, str]) -> _Batch:
        """The batch of a graph."""
        given = _inputs(graph, label, count, tie)
        size = graph[next(iter(given))].sizes[label]
        rows, cut = _followed(graph, label, given)
        late: set[str] = set()
        for vertex in graph.vertices.values():
            needed = late.intersection(vertex.inputs)
            if vertex.name in cut and needed:
                known = _made_from(graph, needed)
                if not all(n in given for n in known if isinstance(graph[n].op, Input)):
                    _refuse(label, f"{vertex} needs {min(needed)!r}, which all rows give")
                for name in known.intersection(cut):
                    del cut[name]
                late -= known
            sums_rows = vertex.name in cut and vertex.name not in rows
            if sums_rows or (needed and vertex.name not in cut):
                late.add(vertex.name)
        return _Batch(label, count, size, rows, cut, frozenset(late))


def _inputs(graph: Graph, label: str, count: int, tie: Mapping[str, str]) -> dict[str, Rows]:
    """The inputs that have rows."""
    given = {v.name: Rows(v.labels.index(label)) for v in graph.inputs if label in v.labels}
    if not given:
        known = suggest(label, {own for vertex in graph.inputs for own in vertex.labels})
        raise PlanError(f"microbatches: no input has a label {label!r}{known}")
    if state := tie.keys() & given:
        _refuse(label, f"{graph[min(state)]} is state, which every micro-batch needs")
    sizes = {graph[name].sizes[label]: name for name in given}
    if len(sizes) > 1:
        told = ", ".join(f"{size} in {name!r}" for size, name in sizes.items())
        _refuse(label, f"it has several sizes: {told}")
    if min(sizes) % count or not min(sizes):
        _refuse(label, f"its size {min(sizes)} is not a multiple of {count}")
    return given


def _followed(
    graph: Graph, label: str, given: Mapping[str, Rows]
) -> tuple[dict[str, Rows], dict[str, str]]:
    """What has rows, and what reads them, under which label."""
    rows, cut = dict(given), dict[str, str]()
    for vertex in graph.vertices.values():
        if rows.keys().isdisjoint(vertex.inputs):
            continue
        own, units = _label_of_rows(graph, vertex, rows, label)
        cut[vertex.name] = own
        for d, dim in enumerate(view_of(graph, vertex).output):
            if dim.label == own:
                rows[vertex.name] = Rows(d, units * dim.scale)
        if vertex.name not in rows and not has_plain_parts(vertex):
            _refuse(label, f"{vertex} aggregates it, and a part of that has several values")
    return rows, cut


def _label_of_rows(
    graph: Graph, vertex: Vertex, rows: Mapping[str, Rows], label: str
) -> tuple[str, int]:
    """The label under which a vertex reads rows, and how many of its units a row has."""
    found: set[tuple[str, int]] = set()
    for k, name in enumerate(vertex.inputs):
        if name not in rows:
            continue
        dim = _dims(graph, vertex, k)[rows[name].dim]
        units, rest = divmod(rows[name].each, dim[1])
        if dim[0] is None or rest:
            _refuse(label, f"{vertex} does not read the rows of {name!r} one by one")
        found.add((dim[0], units))
        if sum(own == dim[0] for own, _ in _dims(graph, vertex, k)) > 1:
            _refuse(label, f"{vertex} reads a diagonal of {name!r}")
    if len(found) > 1:
        _refuse(label, f"{vertex} joins each row with others")
    own = found.pop()
    every = [dim for dims in view_of(graph, vertex).reads for dim in dims or () if dim.image]
    if any(own[0] in dim.labels for dim in every):
        _refuse(label, f"{vertex} reads at places that it moves")
    return own


def _dims(graph: Graph, vertex: Vertex, k: int) -> list[tuple[str | None, int]]:
    """The label of each dimension of an operand, and the elements that a unit of it has."""
    # An EinSum has the labels also of what it does not read.
    if isinstance(vertex.op, EinSum) and not vertex.windows:
        return [(label, 1) for label in vertex.op.inputs[k]]
    return [(dim.label, dim.scale) for dim in view_of(graph, vertex).reads[k] or ()]


def _made_from(graph: Graph, names: Iterable[str]) -> set[str]:
    """Some results and all that they are made from."""
    found, waiting = set[str](), [*names]
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            waiting += graph[name].inputs
    return found


def _refuse(label: str, why: str) -> NoReturn:
    raise PlanError(f"microbatches along {label!r}: {why}")


class _Unrolled:
    """The graph of all micro-batches, as it is made."""

    def __init__(self, graph: Graph, batch: _Batch) -> None:
        self.graph, self.batch = graph, batch
        self.made = Graph.of((), (), graph.scalars, avoid=graph.vertices)
        self.copies: dict[str, list[str]] = defaultdict(list)
        self._sums: dict[str, str] = {}
        self._known: dict[tuple[object, ...], str] = {}
        vertices = graph.vertices.values()
        in_turn = [vertex for vertex in vertices if vertex.name in batch.cut]
        after = [v for v in vertices if v.name in batch.late and v.name not in batch.cut]
        for vertex in vertices:
            if vertex.name not in batch.cut and vertex.name not in batch.late:
                self.made.append(vertex)
        for turn in range(batch.count):
            for vertex in in_turn:
                self._compute(vertex, turn)
        for vertex in graph.outputs:
            if vertex.name in batch.cut and vertex.name in batch.rows:
                self._put_together(vertex)
        for vertex in after:
            self.made.append(vertex)
        self.made.end((vertex.name for vertex in graph.outputs), graph.ties)

    def _compute(self, vertex: Vertex, turn: int) -> None:
        """A micro-batch's copy of a vertex; if it aggregates rows, with those of all before it."""
        batch, name = self.batch, vertex.name
        inputs = tuple(self._operand(vertex, k, turn) for k in range(len(vertex.inputs)))
        copy = replace(
            vertex,
            name=self.made.fresh(f"{name}.micro{turn}"),
            op=self._shorter_op(vertex.op, batch.cut[name]),
            windows=tuple(own and self._shorter_op(own, batch.cut[name]) for own in vertex.windows),
            inputs=inputs,
            shape=self._shorter(vertex.shape, [batch.rows[name].dim] if name in batch.rows else []),
            # What is combined is in the type in which values accumulate.
            dtype=vertex.dtype if name in batch.rows else widen(vertex.dtype),
        )
        self.copies[name].append(self.made.append(copy).name)
        if name not in batch.rows:
            self._combine(vertex, turn)

    def _operand(self, vertex: Vertex, k: int, turn: int) -> str:
        """What a micro-batch's copy of a vertex reads as operand k."""
        name, own = vertex.inputs[k], self.batch.cut[vertex.name]
        if name in self.batch.cut:
            return self.copies[name][turn]
        dims = [d for d, (label, _) in enumerate(_dims(self.graph, vertex, k)) if label == own]
        whole = self.made[name]
        if dims and isinstance(whole.op, Fill) and not {*dims} & {*used_args(whole.op.value)}:
            if (name, *dims) not in self._known:
                shape = self._shorter(whole.shape, dims)
                part = replace(whole, name=self.made.fresh(f"{name}.rows"), shape=shape)
                self._known[name, *dims] = self.made.append(part).name
            return self._known[name, *dims]
        for dim in dims:
            name = self._rows_of(name, dim, turn)
        return name

    def _shorter(self, shape: tuple[int, ...], dims: list[int]) -> tuple[int, ...]:
        return tuple(n // self.batch.count if d in dims else n for d, n in enumerate(shape))

    def _shorter_op(self, op: AnyOp, label: str) -> AnyOp:
        count = self.batch.count
        if isinstance(op, Window):
            sizes = (
                {**op.by_label, label: op.by_label[label] // count} if label in op.output else {}
            )
            return replace(op, sizes=tuple((sizes or op.by_label).values()))
        if not isinstance(op, Reshape):
            return op
        sizes = [(own, n // count if own == label else n) for own, n in op.sizes]
        return replace(op, sizes=tuple(sizes))

    def _combine(self, vertex: Vertex, turn: int) -> None:
        """What the micro-batches so far give together."""
        name, labels = vertex.name, vertex.labels
        copy = self.copies[name][turn]
        if turn == 0:
            self._sums[name] = copy
            return
        agg = vertex.op.agg if isinstance(vertex.op, EinSum) else SUM
        operands = [(self._sums[name], labels), (copy, labels)]
        is_last, is_rounded = turn == self.batch.count - 1, vertex.dtype != widen(vertex.dtype)
        own = name if is_last and not is_rounded else self.made.fresh(f"{name}.sum")
        self._sums[name] = own
        self.made.add_einsum(labels, operands, (agg or SUM).combine, name=own)
        if is_last and is_rounded:
            rounded = call(vertex.dtype.name, Arg(0))
            self.made.add_einsum(labels, [(own, labels)], rounded, name=name)

    def _rows_of(self, name: str, dim: int, turn: int) -> str:
        """The rows of a micro-batch of a tensor that is there as a whole, along a dimension."""
        if (name, dim, turn) in self._known:
            return self._known[name, dim, turn]
        if (name, dim) not in self._known:
            self._known[name, dim] = self._split(name, dim, self.batch.count)
        split = self.made[self._known[name, dim]]
        ranges = tuple(turn if d == dim + 1 else None for d in range(len(split.shape)))
        kept = tuple(label for d, label in enumerate(split.labels) if d != dim + 1)
        part = self.made.fresh(f"{name}.micro{turn}")
        self.made.add(sliced(kept, ranges, split.shape), [split.name], part)
        if len(split.shape) > len(self.made[name].shape) + 1:
            part = self._merged(part, dim, 2, self.made.fresh(part))
        self._known[name, dim, turn] = part
        return part

    def _put_together(self, vertex: Vertex) -> None:
        """The rows of all micro-batches, in the order of the batch."""
        dim = self.batch.rows[vertex.name].dim
        split = [self._split(name, dim, 1) for name in self.copies[vertex.name]]
        labels = self.made[split[0]].labels
        every = self.made.add(Concat(labels, labels[dim + 1]), split).name
        self._merged(every, dim, len(labels) - len(vertex.labels) + 1, vertex.name)

    def _split(self, name: str, dim: int, turns: int) -> str:
        """The tensor with a dimension of micro-batches and, if rows have several, of elements."""
        whole = self.made[name]
        each = whole.shape[dim] // (self.batch.size // self.batch.count) // turns
        labels, own = [*whole.labels], [whole.labels[dim]]
        for inner in ("turn", "within")[: 1 + (each > 1)]:
            own.append(unused_label(inner, {*labels, *own}))
        groups = [*labels[:dim], f"({' '.join(own)})", *labels[dim + 1 :]]
        every = [*labels[:dim], *own, *labels[dim + 1 :]]
        sizes = {own[1]: turns} | dict.fromkeys(own[2:], each)
        spec = f"{' '.join(groups)} -> {' '.join(every)}"
        return self.made.reshape(spec, name, sizes, self.made.fresh(f"{name}.rows")).name

    def _merged(self, name: str, dim: int, dims: int, into: str) -> str:
        """The tensor with some dimensions as one."""
        labels = self.made[name].labels
        merged = f"({' '.join(labels[dim : dim + dims])})"
        groups = [*labels[:dim], merged, *labels[dim + dims :]]
        return self.made.reshape(f"{' '.join(labels)} -> {' '.join(groups)}", name, name=into).name
