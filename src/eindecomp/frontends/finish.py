"""The graph of an import: outputs under their names, labels that can be read, nothing unused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eindecomp.frontends.arrange import settled
from eindecomp.frontends.record import distinct
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Gather, Input, Reshape, ScatterAdd, relabel
from eindecomp.graph.patterns.attention import find_attention
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.scalar import Arg

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from eindecomp.frontends.record import Record
    from eindecomp.frontends.views import View
    from eindecomp.graph.patterns.terms import Read
    from eindecomp.graph.vertex import Vertex


def finished(
    record: Record, outputs: Mapping[str, View], keep: Collection[str] = ()
) -> tuple[Graph, dict[str, str]]:
    """The graph, and what each vertex of the record is called in it.

    It has what computes the outputs, and the inputs in `keep` even if unused.
    """
    renamed: dict[str, str] = {}
    for name, array in outputs.items():
        renamed[_vertex_of(record, array, renamed)] = name
    names = {name: _free(name, renamed) for name in record.graph if name not in renamed}
    names |= renamed
    record.final = names
    name_attention(record)
    labels = record.names.chosen()
    used = _used(record.graph, renamed, keep)
    vertices = [
        _readable(record, vertex, labels, names)
        for vertex in record.graph.vertices.values()
        if vertex.name in used
    ]
    return Graph.of(vertices, outputs, record.graph.scalars), names


def _vertex_of(record: Record, array: View, taken: Collection[str]) -> str:
    """A vertex of an output's shape that is not an input, nor another output."""
    array = settled(record, array)
    vertex = record.graph[array.vertex]
    if array.vertex not in taken and not isinstance(vertex.op, Input):
        return array.vertex
    own = tuple(f"o{k}" for k in range(len(vertex.shape)))
    return record.einsum(own, [(vertex.name, own)], Arg(0), None).vertex


def _free(name: str, renamed: Mapping[str, str]) -> str:
    """A vertex's name, or another if an output is called so."""
    while name in renamed.values():
        name += "_"
    return name


def _used(graph: Graph, outputs: Collection[str], keep: Collection[str]) -> set[str]:
    used = {*outputs, *keep}
    for vertex in reversed([*graph.vertices.values()]):
        if vertex.name in used:
            used.update(vertex.inputs)
    return used


def _readable(
    record: Record, vertex: Vertex, labels: list[str], names: Mapping[str, str]
) -> Vertex:
    """A vertex under its final name, labels and inputs."""
    local = record.local[vertex.name]
    own = [*dict.fromkeys(_labels_of(vertex))]
    chosen = distinct(labels[local[label]] for label in own)
    op = relabel(vertex.op, dict(zip(own, chosen, strict=True)).__getitem__)
    inputs = tuple(names[name] for name in vertex.inputs)
    return replace(vertex, name=names[vertex.name], op=op, inputs=inputs)


def _labels_of(vertex: Vertex) -> Iterator[str]:
    """The labels that an operation itself names, the output's first."""
    match vertex.op:
        case EinSum():
            yield from vertex.op.labels
        case Gather(table, _, index, output):
            yield from (*output, *table, *index)
        case ScatterAdd(source, index):
            yield from (*vertex.op.output, *source, *index)
        case Reshape(before):
            yield from (label for group in before for label in group)
        case _:
            yield from vertex.op.output


def name_attention(record: Record) -> None:
    """Suggest names for the dimensions of every attention of a graph."""
    for found in find_attention(record.graph):
        part = found.parts[0]
        names = dict.fromkeys(found.queries, "s") | {part.key: "t"}
        names |= dict.fromkeys((*found.inner, *found.values), "d")
        heads = dict.fromkeys(found.batch, "h") | dict.fromkeys(found.groups, "g")
        for read in (found.q, part.k, part.v):
            _vote(record, read, names.items(), 2)
            _vote(record, read, heads.items(), 1)


def _vote(record: Record, read: Read, names: Iterable[tuple[str, str]], strength: int) -> None:
    classes = dict(zip(read.labels, record.dims(read.name), strict=True))
    for label, name in names:
        if label in classes:
            record.names.vote(classes[label], name, strength)
