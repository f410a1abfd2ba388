"""When tensors are held in their homes, one vertex being computed after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.errors import PlanError
from eindecomp.graph.ops import Input
from eindecomp.layout.overlaps import fullest
from eindecomp.layout.view import is_planned
from eindecomp.planner.costs.byte_sizes import show_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.mesh import Mesh
    from eindecomp.planner.space.layout_rules import LayoutRules

Span = tuple[int, int]
"""The first step and the one after the last."""


@dataclass(frozen=True)
class Lifetimes:
    """Steps, and when tensors are held and read."""

    steps: dict[str, int]
    """The vertices that are computed, each at its step."""
    held: dict[str, Span]
    """When a tensor that has a home is held there: a result from its step to its last reader, an
    output to the end, an input throughout, and a tied one until its last reader."""
    read: dict[str, Span]
    """From the first reader of a tensor to its last."""

    @staticmethod
    def of(graph: Graph, rules: LayoutRules) -> Lifetimes:
        """Those of a graph; what replaces a tied input is held beside it."""
        computed = (vertex.name for vertex in graph.vertices.values() if is_planned(vertex))
        steps = {name: step for step, name in enumerate(computed)}
        read: dict[str, Span] = {}
        for reader, step in steps.items():
            for name in graph[reader].inputs:
                read[name] = (read.get(name, (step, step))[0], step + 1)
        end, outputs = len(steps), {vertex.name for vertex in graph.outputs}
        held: dict[str, Span] = {}
        for name, now in steps.items():
            held[name] = (now, end if name in outputs else read.get(name, (now, now + 1))[1])
        given = {v.name: (0, end) for v in rules.chosen(graph) if isinstance(v.op, Input)}
        tied = {name: (0, read[name][1]) for name in rules.tie if name in read}
        held |= given | tied
        return Lifetimes(steps, held, read)

    def fullest_step(self, sizes: Mapping[str, int]) -> int:
        """The step at which all tensors that are held, of these sizes, are largest together."""
        change = np.zeros(len(self.steps) + 1, dtype=np.int64)
        for name, (start, stop) in self.held.items():
            change[start] += sizes[name]
            change[stop] -= sizes[name]
        return int(np.cumsum(change)[:-1].argmax()) if self.steps else 0

    def held_at(self, step: int) -> list[str]:
        """The tensors that are held at a step."""
        return [name for name, (start, stop) in self.held.items() if start <= step < stop]


def check_memory(graph: Graph, rules: LayoutRules, mesh: Mesh, memory: int) -> None:
    """Refuse a limit that no plan meets: tensors that are held at once would fill more.

    That each is held only once, in equal parts or as its pin says, is the least that plans take.
    """
    lives = Lifetimes.of(graph, rules)
    least = {name: _least(graph[name], rules, mesh) for name in lives.held}
    step = lives.fullest_step(least)
    held = sum(least[name] for name in lives.held_at(step))
    if held > memory:
        now = graph[list(lives.steps)[step]]
        raise PlanError(
            f"found no plan that fits into {show_bytes(memory)} of memory per device at step "
            f"{step + 1} of {len(lives.steps)}, which computes {now}: what is held then takes "
            f"{show_bytes(held)} on each of {mesh.devices} devices, even if each tensor is held "
            f"only in its home; {show_bytes(held - memory)} are missing"
        )


def _least(vertex: Vertex, rules: LayoutRules, mesh: Mesh) -> int:
    """The bytes of a tensor that the fullest device holds at least."""
    elements = -(-vertex.elements // mesh.devices)
    pinned = rules.pinned.get(rules.tie.get(vertex.name, vertex.name))
    if pinned:
        elements = int(fullest(mesh, pinned).min())
    return elements * vertex.dtype.itemsize
