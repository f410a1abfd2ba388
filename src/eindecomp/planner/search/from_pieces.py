"""Plans that start from the relaxed problem: axes for the numbers of pieces that it has chosen."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import product
from math import inf
from typing import TYPE_CHECKING

from eindecomp.errors import PlanError, UnsolvedError
from eindecomp.planner import budgets
from eindecomp.planner.search.blocks import choose_by_blocks
from eindecomp.planner.search.piece_choices import pieces_of
from eindecomp.planner.search.search import (
    Outcome,
    Search,
    all_axes,
    better,
    is_enough,
    is_open,
    solve,
)
from eindecomp.planner.space.restriction import FixedParts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.view import View
    from eindecomp.planner.search.piece_choices import Levels, Vector
    from eindecomp.planner.search.relaxation import Relaxed
    from eindecomp.planner.space.choices import Assignment, Choices

_UNUSED = -1


def start_from_pieces(search: Search, sizes: tuple[int, ...], relaxed: Relaxed) -> Outcome | None:
    """The plan that the relaxed problem's pieces lead to; None if they lead to none."""
    if relaxed.parts is None or relaxed.vectors is None:
        return None
    if search.memory is not None and len(relaxed.levels) > 1:
        return None
    if search.memory is not None or search.redundant:
        return _choose_by_vectors(search, relaxed.levels, relaxed.vectors, relaxed.bound)
    restricted = replace(search, restriction=FixedParts(relaxed.parts, search.mesh.devices))
    # With given numbers of pieces, an axis has few labels to choose from.
    axes = max(len(search.mesh.sizes), 1)
    every = (axes,) if search.most_ways <= budgets.LISTED_WAYS else ()
    try:
        outcome = replace(choose_by_blocks(restricted, (*every, *sizes)), bound=0)
    except PlanError:
        if not search.rules.pinned:
            raise
        return None  # pieces do not say which axes a pin asks for
    if is_open(outcome.cost, relaxed.bound) and 1 < axes <= budgets.ORDERED_AXES:
        other = _choose_by_vectors(search, relaxed.levels, relaxed.vectors, relaxed.bound)
        outcome = outcome if other is None else better(other, outcome)
    return outcome


def _choose_by_vectors(
    search: Search, levels: Levels, vectors: Mapping[str, Sequence[Vector]], bound: float
) -> Outcome | None:
    """The best plan with these pieces: the first vector of each vertex, then any of several."""
    outcome: Outcome | None = None
    axes = len(search.mesh.sizes)
    search = replace(search, any_order=axes <= budgets.ORDERED_AXES)
    first = {name: rows[:1] for name, rows in vectors.items()}
    for allowed in [first] if first == vectors else [first, vectors]:
        outcome = _choose(search, budgets.PIECES_SHARE, levels, allowed, outcome)
    several = len(levels) > 1 and budgets.ORDERED_AXES < axes <= budgets.NESTED_AXES
    if several and outcome is not None and not is_enough(search, outcome.cost, bound):
        chosen = {
            name: (pieces_of(search.mesh, levels, decision.assignment),)
            for name, decision in outcome.decisions.items()
        }
        ordered = replace(search, any_order=True)
        outcome = _choose(ordered, budgets.NESTING_SHARE, levels, chosen, outcome)
    return outcome


def _choose(
    search: Search,
    share: float,
    levels: Levels,
    vectors: Mapping[str, Sequence[Vector]],
    best: Outcome | None,
) -> Outcome | None:
    """The better of a plan and the best axes with which vertices have one of these vectors."""
    search = search.hurried(share)
    search.tell("pieces", inf if best is None else best.cost)

    def of(vertex: Vertex, view: View) -> Choices:
        rows = dict.fromkeys(
            row for vector in vectors[vertex.name] for row in assignments_of(levels, vector)
        )
        allowed = search.restricted(vertex, view, tuple(rows))
        return search.choices(vertex, view, search.nested(vertex, view, allowed, all_axes(search)))

    with suppress(UnsolvedError, PlanError):
        best = better(best, replace(solve(search, of), bound=0))
    return best


def assignments_of(levels: Levels, vector: Vector) -> Iterator[Assignment]:
    """Every assignment that cuts labels into these pieces on each level, nested in mesh order."""
    ways = [
        list(_given(axes, [pieces[level] for pieces in vector]))
        for level, axes in enumerate(levels)
    ]
    for parts in product(*ways):
        label_of = [label for part in parts for label in part]
        yield tuple(
            tuple(axis for axis, label in enumerate(label_of) if label == i)
            for i in range(len(vector))
        )


def _given(axes: tuple[int, ...], pieces: list[int]) -> Iterator[tuple[int, ...]]:
    """The ways to give each axis to a label or to none, so that labels have these pieces."""
    if not axes:
        if all(n == 1 for n in pieces):
            yield ()
        return
    first, *rest = axes
    for label in range(_UNUSED, len(pieces)):
        left = list(pieces)
        if label != _UNUSED:
            left[label], over = divmod(pieces[label], first)
            if over:
                continue
        for others in _given(tuple(rest), left):
            yield (label, *others)
