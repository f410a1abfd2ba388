"""Where the tensors of a plan lie and what its vertices read and make, as cuts.

What frameworks can say of a tensor is less than a cut can: each device has one block of it, no axis
cuts two dimensions, and nobody has a window only. `widened` is the least that they can say of what
a vertex reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.graph.ops import Fill, Input
from eindecomp.layout.cut import Cut, Span, is_plain
from eindecomp.layout.view import view_of
from eindecomp.planner.space.choices import cut_of, decided_choices, summed_axes
from eindecomp.tra.program.make import program_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.planner.plan import Plan


@dataclass(frozen=True, slots=True)
class VertexCuts:
    """The cuts in which a vertex reads its operands, makes its result and leaves it."""

    vertex: str
    reads: tuple[Cut | None, ...]
    """For each operand, None for one whose elements are never read."""
    made: Cut
    """The result as it is computed: where axes are summed, partial results of it."""
    summed: tuple[int, ...]
    home: Cut


def vertex_cuts(plan: Plan) -> dict[str, VertexCuts]:
    """The cuts of every vertex that is computed, in the order of the graph."""
    found: dict[str, VertexCuts] = {}
    for name, decision in plan.decisions.items():
        view = view_of(plan.graph, plan.graph[name])
        choice = decided_choices(view, plan.mesh, decision)
        summed = summed_axes(view, decision.assignment)
        found[name] = VertexCuts(
            name,
            tuple(None if need is None else need.cuts[0] for need in choice.reads),
            cut_of(view, view.output, decision.assignment),
            tuple(axis for axis in range(len(plan.mesh.sizes)) if summed >> axis & 1),
            decision.home,
        )
    return found


def layouts_of(plan: Plan) -> dict[str, tuple[Cut, ...]]:
    """The layouts in which inputs and results lie, the one that has all of the tensor first.

    A fill lies nowhere: it is generated where it is read.
    """
    program = program_of(plan)
    found: dict[str, tuple[Cut, ...]] = {}
    for name, vertex in plan.graph.vertices.items():
        match vertex.op:
            case Fill():
                continue
            case Input() if name not in plan.given:
                cuts = [tiling.cut for tiling in program.layouts_of(name)]
            case Input():
                cuts = plan.given[name].cuts
            case _:
                cuts = plan.decisions[name].layouts.cuts
        # A copy may be what one reader wants of the tensor; the first layout has all of it.
        found[name] = tuple(dict.fromkeys(widened(cut, vertex.shape) for cut in cuts))
    return found


def widened(cut: Cut, shape: Sequence[int]) -> Cut:
    """The least cut without windows and diagonals that has on every device what this one has.

    >>> widened((Span((0,), 4, 1, 0, 4), Span((0,), 4, 1, 0, 4), Span((), 2, 1, 3, 5)), (4, 4, 9))
    (Span(axes=(0,), units=4, scale=1, start=0, stop=4),
     Span(axes=(), units=4, scale=1, start=0, stop=4),
     Span(axes=(), units=9, scale=1, start=0, stop=9))
    """
    if is_plain(cut) and not has_window(cut, shape):
        return cut
    used: set[int] = set()
    found: list[Span] = []
    for span, size in zip(cut, shape, strict=True):
        kept: list[int] = []
        for axis in span.axes:
            if axis in used:  # what nests inside it must go as well
                break
            kept.append(axis)
        used |= set(span.axes)
        whole = Span((), size, 1, 0, size)
        found.append(span._replace(axes=tuple(kept)) if kept else whole)
    return tuple(found)


def has_window(cut: Cut, shape: Sequence[int]) -> bool:
    """Whether devices have only a part of some dimension that no axis cuts."""
    return any((span.start, span.stop) != (0, size) for span, size in zip(cut, shape, strict=True))
