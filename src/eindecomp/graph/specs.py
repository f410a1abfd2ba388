"""Spec strings: from what a Python caller writes to the operation, or to an EinSum's parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from eindecomp.errors import GraphError, suggest
from eindecomp.graph.checks import join_of, window
from eindecomp.graph.infer import group_sizes
from eindecomp.graph.ops import Gather, Reshape, ScatterAdd, Slice
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.scalar import Arg, Expr, replace_args, used_args
from eindecomp.lang.spec import is_ellipsis_label, parse_groups, parse_spec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.graph.ops import Op
    from eindecomp.graph.vertex import Shape, Vertex
    from eindecomp.lang.dtypes import DType

    Operands = list[tuple[str, Labels]]


def gather_op(spec: str, ranks: tuple[int, ...]) -> Gather:
    """Read a lookup such as `"v a, b s -> b s a"`: the label that goes missing is looked up.

    >>> gather_op("v a, b s -> b s a", (2, 2))
    Gather(table=('a',), axis=0, index=('b', 's'), output=('b', 's', 'a'))
    """
    (rows, at), output = parse_spec(spec, ranks)
    looked_up = [label for label in rows if label not in output]
    if len(looked_up) != 1:
        raise GraphError(f"gather {spec!r}: one label of the table must be missing from the output")
    axis = rows.index(looked_up[0])
    return Gather(rows[:axis] + rows[axis + 1 :], axis, at, output)


def scatter_op(spec: str, ranks: tuple[int, ...]) -> ScatterAdd:
    """Read a scatter such as `"b s a, b s -> v a"`: the new label is scattered into."""
    (rows, at), output = parse_spec(spec, ranks)
    new = [label for label in output if label not in (*rows, *at)]
    if len(new) != 1:
        raise GraphError(f"scatter {spec!r}: one label of the output must be new")
    axis = output.index(new[0])
    return ScatterAdd(rows, at, output[:axis] + output[axis + 1 :], axis, new[0])


def slice_op(labels: str, rank: int, ranges: Mapping[str, object], name: str) -> Slice | EinSum:
    """Read a slice: ranges by label; without any it is a map that does nothing."""
    _, output = parse_spec(f"{labels}->{labels}", (rank,))
    cuts = {label: window(cut, label) for label, cut in ranges.items()}
    for label in cuts:
        if label not in output:
            raise GraphError(f"slice: {name} has no label {label!r}{suggest(label, output)}")
    if not cuts:
        return EinSum((output,), output, Arg(0))
    kept = tuple(label for label in output if not isinstance(cuts.get(label), int))
    return Slice(kept, tuple(cuts.get(label) for label in output))


def reshape_op(spec: str, shape: Shape, sizes: Mapping[str, int], name: str) -> Reshape | EinSum:
    """Read a reshape such as `"b (h d) -> b h d"`; without groups it is a transpose."""
    before, after = parse_groups(spec)
    every_size = group_sizes(before, shape, sizes, name)
    if any(len(group) > 1 for group in (*before, *after)):
        return Reshape(before, after, every_size)
    labels, output = _flat(before), _flat(after)
    if set(labels) != set(output):
        raise GraphError(f"a reshape keeps its labels: {labels} is not {output}")
    return EinSum((labels,), output, Arg(0))


def _flat(groups: tuple[Labels, ...]) -> Labels:
    return tuple(label for group in groups for label in group)


# EinSums


class GrowingGraph(Protocol):
    """What reading a spec needs of the graph to which the EinSum will be added."""

    @property
    def scalars(self) -> Mapping[str, DType]:
        """The run-time scalars and their types."""
        ...

    def __getitem__(self, name: str) -> Vertex: ...

    def add(self, op: Op, inputs: Sequence[str]) -> Vertex:
        """Add a vertex of any kind."""
        ...

    def numbers(self, label: str, size: int) -> Vertex:
        """Add the indices of a label as a tensor."""
        ...


def read_einsum(
    graph: GrowingGraph, spec: str, names: Sequence[str], join: object, given: Mapping[str, int]
) -> tuple[Labels, Operands, Expr]:
    """The output labels, operands and join of an EinSum, adding the tensors that those need."""
    ranks = tuple(len(graph[name].shape) for name in names)
    labels, output = parse_spec(spec, ranks)
    operands = _broadcast(graph, list(zip(names, labels, strict=True)))
    every = list(dict.fromkeys([*output, *(label for _, own in operands for label in own)]))
    function = join_of(join, len(names), every, graph.scalars)
    known: dict[str, int] = {}
    for tensor, own in operands:
        known |= graph[tensor].sizes_by(own)
    for label, size in given.items():
        if label not in output or known.get(label, size) != size:
            raise GraphError(f"size {size} of label {label!r} does not fit {spec!r}")
    if max(used_args(function), default=0) >= len(operands):
        function = _with_numbers(graph, function, operands, every, {**known, **given})
    return output, operands, function


def _broadcast(graph: GrowingGraph, operands: Operands) -> Operands:
    """Drop dimensions of size 1 that an ellipsis stretches over those of other tensors."""
    sizes: dict[str, int] = {}
    for name, labels in operands:
        for label, size in graph[name].sizes_by(labels).items():
            sizes[label] = max(size, sizes.get(label, 1)) if size != 1 else sizes.get(label, 1)
    stretched_operands: Operands = []
    for name, labels in operands:
        shape = graph[name].shape
        stretched = [
            is_ellipsis_label(label) and size == 1 != sizes[label]
            for label, size in zip(labels, shape, strict=True)
        ]
        if any(stretched):
            kept = tuple(la for la, gone in zip(labels, stretched, strict=True) if not gone)
            ranges = tuple(0 if gone else None for gone in stretched)
            name, labels = graph.add(Slice(kept, ranges), [name]).name, kept
        stretched_operands.append((name, labels))
    return stretched_operands


def _with_numbers(
    graph: GrowingGraph,
    join: Expr,
    operands: Operands,
    labels: Sequence[str],
    sizes: Mapping[str, int],
) -> Expr:
    """Add an operand for each label whose number a join reads, after the others."""
    start = len(operands)
    place: list[Expr] = [Arg(k) for k in range(start + len(labels))]
    for k in sorted(k for k in used_args(join) if k >= start):
        label = labels[k - start]
        if label not in sizes:
            raise GraphError(f"label {label!r} is in no input and has no size: give it one")
        place[k] = Arg(len(operands))
        operands.append((graph.numbers(label, sizes[label]).name, (label,)))
    return replace_args(join, place)
