"""Brief programs: contractions of several tensors step by step, where that is faster than fused.

Tiles of a fused one repeat the products that lack the label they are cut along, and may be thin.
Taken apart, every product is cut along labels of its own, as memory is shared, but temporaries are
whole. Which is faster is measured once for every class of contractions.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.engines.threads.alone import run_alone, steps_of
from eindecomp.engines.threads.bind import bind
from eindecomp.engines.threads.estimate import APART, brief_seconds
from eindecomp.engines.threads.passes.cut_brief_programs_for_cores import (
    cut_brief_programs_for_cores,
    cut_result,
)
from eindecomp.engines.threads.schedule import schedule
from eindecomp.engines.threads.tiled import TiledProgram, TiledVertex, owners, whole_tile
from eindecomp.graph.graph import Graph
from eindecomp.graph.rewrites.order_contractions import take_apart
from eindecomp.graph.rewrites.rebuild import copy_vertex
from eindecomp.kernels.cores import cores
from eindecomp.kernels.cpu.compiling.compile import versions
from eindecomp.kernels.cpu.contractions.fused import FusedContraction
from eindecomp.kernels.cpu.fork_join import HELPERS
from eindecomp.kernels.cpu.products.blas_threads import one_thread_each
from eindecomp.kernels.measured import Verdicts, fastest_of
from eindecomp.lang.einsum import EinSum

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from eindecomp.graph.vertex import Vertex

_FUSED, _APART = "fused", "apart"
_EXACT = 64
"""The longest label of which every size is a class of its own."""
_NUMBERS = 2**26
"""The most numbers of all arrays up to which ways are measured; beyond it stays fused."""
_VERDICTS = Verdicts("taking contractions apart", versions)


def take_contractions_apart(program: TiledProgram) -> TiledProgram:
    """The same program with those contractions in pairs that cores compute faster so."""
    graph, count = program.graph, min(cores(), program.devices)
    fused = [tiled.name for tiled in program.vertices if _is_fused(graph, graph[tiled.name])]
    if count < 2 or not fused:
        return program
    seconds = brief_seconds(graph, (tiled.name for tiled in program.vertices))
    if seconds is None:
        return program
    names = [n for n in fused if seconds[n] >= APART and _is_faster_apart(graph, graph[n], count)]
    return _apart(program, names, count) if names else program


def _is_fused(graph: Graph, vertex: Vertex) -> bool:
    op = vertex.op
    types = [graph[name].dtype for name in vertex.inputs]
    return isinstance(op, EinSum) and FusedContraction.suits(op, types, vertex.dtype)


def _apart(program: TiledProgram, names: Collection[str], count: int) -> TiledProgram:
    """The same program with these contractions in pairs, each cut for so many cores."""
    graph, made = take_apart(program.graph, names)
    vertices: list[TiledVertex] = []
    for tiled in program.vertices:
        for name in made.get(tiled.name, ()):
            whole = TiledVertex(name, (whole_tile(graph, name, owners(tiled)),))
            op = graph[name].op
            cut = cut_result(graph, whole, op, count) if isinstance(op, EinSum) else None
            vertices.append(cut or whole)
        if tiled.name not in made:
            vertices.append(tiled)
    return replace(program, graph=graph, vertices=tuple(vertices))


def _is_faster_apart(graph: Graph, vertex: Vertex, count: int) -> bool:
    """Whether so many cores compute a contraction faster step by step."""
    arrays = [*(graph[name] for name in vertex.inputs), vertex]
    if sum(each.elements for each in arrays) > _NUMBERS:
        return False
    sizes = graph.label_sizes(vertex)
    numbers = {label: k for k, label in enumerate(sizes)}
    own = [*vertex.op.inputs, vertex.labels] if isinstance(vertex.op, EinSum) else []
    labels = [[numbers[label] for label in each] for each in own]
    rounded = [n if n <= _EXACT else 1 << (n - 1).bit_length() for n in sizes.values()]
    title = json.dumps([vertex.dtype.name, count, labels, rounded])
    return _VERDICTS.find(title, partial(_measured, graph, vertex, count)) == _APART


def _measured(graph: Graph, vertex: Vertex, count: int) -> str:
    """The faster way for the first of a class, on arrays that lie as they are usually given."""
    alone = Graph.of((), (), graph.scalars)
    given: dict[str, Any] = {}
    for name in dict.fromkeys(vertex.inputs):
        source = graph[name]
        alone.input(name, {f"d{k}": size for k, size in enumerate(source.shape)}, source.dtype)
        given[name] = np.resize(np.linspace(-1, 1, 97, dtype=source.dtype), source.shape)
    copy_vertex(vertex, alone)
    alone.output(vertex.name)
    tiled = TiledVertex(vertex.name, (whole_tile(alone, vertex.name, tuple(range(count))),))
    fused = TiledProgram(alone, count, (tiled,), ())
    ways = {
        _FUSED: partial(_runs(fused), given),
        _APART: partial(_runs(_apart(fused, {vertex.name}, count)), given),
    }
    with one_thread_each():
        return fastest_of(ways)


def _runs(program: TiledProgram) -> Callable[[Mapping[str, Any]], None]:
    """What carries a program out."""
    calls = schedule(cut_brief_programs_for_cores(program))
    steps = steps_of(calls, [bind(calls.graph, call) for call in calls.calls])

    def run(given: Mapping[str, Any]) -> None:
        HELPERS.rouse()
        run_alone(calls, steps, {**given}, ())

    return run
