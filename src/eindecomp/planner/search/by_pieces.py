"""Chooses axes for given numbers of pieces: the relaxed problem's answer made real."""

from __future__ import annotations

from itertools import accumulate, product
from math import prod
from typing import TYPE_CHECKING

from eindecomp.planner.search.search import Outcome, Search, all_axes
from eindecomp.planner.search.solve import solve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.view import View
    from eindecomp.planner.search.piece_choices import Levels, Vector
    from eindecomp.planner.space.choices import Assignment, Choices

_UNUSED = -1


def choose_by_pieces(
    search: Search, levels: Levels, vectors: Mapping[str, Sequence[Vector]]
) -> Outcome:
    """The best axes with which every vertex has one of the given vectors of pieces."""

    def of(vertex: Vertex, view: View) -> Choices:
        rows = dict.fromkeys(
            row for vector in vectors[vertex.name] for row in assignments_of(levels, vector)
        )
        allowed = search.restricted(vertex, view, tuple(rows))
        return search.choices(vertex, view, search.nested(vertex, view, allowed, all_axes(search)))

    return solve(search, of)


def pieces_chosen(search: Search, levels: Levels, outcome: Outcome) -> dict[str, tuple[Vector]]:
    """The vectors of pieces of a plan's own axes."""
    ends = list(accumulate(len(axes) for axes in levels))
    spans = [range(end - len(axes), end) for axes, end in zip(levels, ends, strict=True)]
    return {
        name: (
            tuple(
                tuple(prod(search.mesh.sizes[a] for a in axes if a in span) for span in spans)
                for axes in decision.assignment
            ),
        )
        for name, decision in outcome.decisions.items()
    }


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
