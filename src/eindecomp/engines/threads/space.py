"""Refuses what cannot fit in memory before anything runs."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from eindecomp.engines.threads.available import available
from eindecomp.engines.threads.memory import is_in_memory
from eindecomp.errors import InputError
from eindecomp.graph.ops import Gather, Input
from eindecomp.planner.costs.byte_sizes import show_bytes
from eindecomp.tra.boxes import volume

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.engines.threads.call import Loads
    from eindecomp.engines.threads.memory import Key
    from eindecomp.engines.threads.program import Program
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.tra.boxes import Box

_LITTLE = 1 << 24  # bytes that there always are: to look would take longer than to run


def needed_space(program: Program) -> tuple[int, str]:
    """The most bytes that calls hold at once beside the inputs, and the vertex where they do."""
    left = dict(program.uses)
    sizes = {key: prod(shape) * dtype.itemsize for key, (shape, dtype) in program.shapes.items()}
    held: set[Key] = set()
    total, most, where = 0, 0, ""
    made: dict[str, list[Key]] = {}
    for key in sizes:
        made.setdefault(key if isinstance(key, str) else key[0], []).append(key)
    for call in program.calls:
        for key in made.get(call.vertex, ()):
            if key not in held:
                held.add(key)
                total += sizes[key]
        if total > most or not where:
            most, where = total, call.vertex
        for key in call.uses:
            if key in left:
                left[key] -= 1
                if left[key] == 0 and key in held:
                    total -= sizes[key]
    return most, where


def loads_of(graph: Graph, vertex: Vertex, reads: Sequence[Box | None]) -> Loads:
    """The graph's inputs of which a tile reads boxes, and how many bytes of each."""
    found: list[tuple[str, int]] = []
    for k, (name, box) in enumerate(zip(vertex.inputs, reads, strict=True)):
        source = graph[name]
        if box is None or not isinstance(source.op, Input):
            continue
        elements = volume(box)
        if isinstance(vertex.op, Gather) and k == 0 and reads[1] is not None:
            # Rows that are not looked up are not read.
            low, high = box[vertex.op.axis]
            elements = elements // max(1, high - low) * min(high - low, volume(reads[1]))
        found.append((name, elements * source.dtype.itemsize))
    return tuple(found)


def largest_load(program: Program, arrays: Mapping[str, Any]) -> int:
    """The most bytes that one call reads of inputs that are not in memory."""
    stored = {name for name, array in arrays.items() if not is_in_memory(array)}
    if not stored:
        return 0
    loads = (sum(n for name, n in call.loads if name in stored) for call in program.calls)
    return max(loads, default=0)


def check_space(program: Program, loads: int = 0, spare: int = 0) -> None:
    """Raise if the machine has not got the memory that a run needs beside what it is given.

    `loads` are bytes of tiles that are read, `spare` those that are held already for the run.
    """
    held, where = program.space
    needed = held + loads
    if needed < _LITTLE:
        return
    free = available()
    if free is not None and needed > free + spare:
        raise InputError(
            f"running needs {show_bytes(needed)} for tiles that it loads, intermediate tensors and "
            f"results when it comes to {program.graph[where]}; {show_bytes(free)} are available"
        )
