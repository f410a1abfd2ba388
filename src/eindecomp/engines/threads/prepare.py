"""Makes a plan ready for threads: program, tiles, passes, schedule, functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

from eindecomp.engines.threads.alone import steps_of
from eindecomp.engines.threads.bind import bind
from eindecomp.engines.threads.passes.add_products_in_place import add_products_in_place
from eindecomp.engines.threads.passes.compute_tiny_vertices_whole import (
    compute_tiny_vertices_whole,
)
from eindecomp.engines.threads.passes.cut_brief_programs_for_cores import (
    cut_brief_programs_for_cores,
)
from eindecomp.engines.threads.passes.merge_product_tiles import merge_product_tiles
from eindecomp.engines.threads.passes.take_contractions_apart import take_contractions_apart
from eindecomp.engines.threads.schedule import schedule
from eindecomp.engines.threads.space import needed_space
from eindecomp.engines.threads.tiled import tile_program
from eindecomp.kernels.cache import limit
from eindecomp.kernels.cores import cores
from eindecomp.layout.tiling import Tiling, uncut
from eindecomp.tra.program.make import program_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from eindecomp.engines.threads.alone import CallGroup
    from eindecomp.engines.threads.bind import Bound
    from eindecomp.engines.threads.repeat import Repeated
    from eindecomp.engines.threads.schedule import Schedule
    from eindecomp.engines.threads.tiled import TiledProgram
    from eindecomp.planner.plan import Plan
    from eindecomp.tra.program.memory import Peak
    from eindecomp.tra.program.program import Program

    Passes = tuple[Callable[[TiledProgram], TiledProgram], ...]

PASSES = (add_products_in_place, compute_tiny_vertices_whole, merge_product_tiles)
"""What sharing memory allows, applied in this order."""
ALONE = (take_contractions_apart, cut_brief_programs_for_cores, *PASSES)
"""The same for what the calling thread is to do, if it is brief."""


class ReadyToRun:
    """What does not change from run to run; it does not hold the plan, which it is kept for."""

    def __init__(self, plan: Plan, passes: Passes) -> None:
        limit()  # a setting that is wrong is no fault of the vertex whose kernel is compiled first
        self.program: Program = program_of(plan)
        tiled = tile_program(self.program)
        for each in passes:
            tiled = each(tiled)
        self.schedule: Schedule = schedule(tiled)
        graph = self.schedule.graph
        self.bound: tuple[Bound, ...] = tuple(bind(graph, call) for call in self.schedule.calls)
        self.steps: tuple[CallGroup, ...] = steps_of(self.schedule, self.bound)
        """The same for one thread."""
        self.is_shared = any(len(step.calls) > 1 for step in self.steps)
        """Whether other cores take part then."""
        self.workers = min(cores(), self.schedule.devices) if self.is_shared else 1
        self.outputs = {v.name: self.schedule.key_of(v.name) for v in graph.outputs}
        self.space: Peak = needed_space(self.schedule)
        """The most bytes that are held at once beside the inputs, and where."""
        self.wanted = {name: self.program.layouts_of(name) for name in self.program.inputs}
        """The layouts in which inputs are placed."""
        self.lies = {name: _tilings(self.program, name) for name in self.outputs}
        self.runs = 0
        """How often the calling thread carried all calls out."""
        self.repeated: Repeated | None = None
        """How it does so in one go, for inputs that lie as they did last."""


def _tilings(program: Program, name: str) -> tuple[Tiling, ...]:
    """The layouts in which an output lies; one that is an input is everywhere, as it was given."""
    number = program.outputs.get(name)
    if number is None:
        return (Tiling(uncut(program.graph[name].shape)),)
    return (program.buffers[number].tiling,)


_KEPT: dict[tuple[int, Passes], tuple[ref[Any], ReadyToRun]] = {}


def prepared(plan: Plan, passes: Passes) -> ReadyToRun:
    """What a plan is run by, made once for as long as the plan lives."""
    key = (id(plan), passes)
    known = _KEPT.get(key)
    if known is not None and known[0]() is plan:
        return known[1]
    ready = ReadyToRun(plan, passes)
    _KEPT[key] = (ref(plan, lambda _: _KEPT.pop(key, None)), ready)
    return ready
