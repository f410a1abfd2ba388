"""Makes a plan ready for threads: program, tiles, passes, schedule, functions."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import ref

from eindecomp.engines.threads.bind import bind
from eindecomp.engines.threads.passes.add_products_in_place import add_products_in_place
from eindecomp.engines.threads.passes.compute_tiny_vertices_whole import (
    compute_tiny_vertices_whole,
)
from eindecomp.engines.threads.passes.merge_product_tiles import merge_product_tiles
from eindecomp.engines.threads.schedule import schedule
from eindecomp.engines.threads.space import needed_space
from eindecomp.engines.threads.tiled import tile_program
from eindecomp.kernels.cache import limit
from eindecomp.tra.program.make import program_of

if TYPE_CHECKING:
    from eindecomp.engines.threads.bind import Bound
    from eindecomp.engines.threads.schedule import Schedule
    from eindecomp.planner.plan import Plan
    from eindecomp.tra.program.memory import Peak
    from eindecomp.tra.program.program import Program

PASSES = (add_products_in_place, compute_tiny_vertices_whole, merge_product_tiles)
"""What sharing memory allows, applied in this order."""


class ReadyToRun:
    """What does not change from run to run; it does not hold the plan, which it is kept for."""

    def __init__(self, plan: Plan) -> None:
        limit()  # a setting that is wrong is no fault of the vertex whose kernel is compiled first
        self.program: Program = program_of(plan)
        tiled = tile_program(self.program)
        for each in PASSES:
            tiled = each(tiled)
        self.schedule: Schedule = schedule(tiled)
        graph = self.schedule.graph
        self.bound: tuple[Bound, ...] = tuple(bind(graph, call) for call in self.schedule.calls)
        self.outputs = {v.name: self.schedule.key_of(v.name) for v in graph.outputs}

    @cached_property
    def space(self) -> Peak:
        """The most bytes that are held at once beside the inputs, and where."""
        return needed_space(self.schedule)


_KEPT: dict[int, tuple[ref[Any], ReadyToRun]] = {}


def prepared(plan: Plan) -> ReadyToRun:
    """The program of a plan, made once for as long as the plan lives."""
    known = _KEPT.get(id(plan))
    if known is not None and known[0]() is plan:
        return known[1]
    ready = ReadyToRun(plan)
    key = id(plan)
    _KEPT[key] = (ref(plan, lambda _: _KEPT.pop(key, None)), ready)
    return ready
