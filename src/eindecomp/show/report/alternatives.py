"""The alternatives that a report shows: one search for all vertices that are alike."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from eindecomp.show.alternatives import next_best
from eindecomp.show.explain import alternative_words
from eindecomp.show.rows import row_key

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from eindecomp.planner.plan import Plan
    from eindecomp.show.rows import Row


def alternatives_by_vertex(
    plan: Plan, rows: Sequence[Row], number: Mapping[str, int], deadline: float
) -> dict[str, Any]:
    """The next-best cuts in words, of which vertex each is, and which vertices it holds for.

    `of` has for each vertex the number of its alternative, or -1. Vertices are alike if they differ
    only in names and axes; the costliest come first, and after the deadline none is searched for.
    """
    alike: dict[Hashable, list[str]] = {}
    for row in sorted(rows, key=lambda row: -row.cost):
        if row.vertex in plan.parts:
            alike.setdefault(row_key(plan, row), []).append(row.vertex)
    found: list[dict[str, Any]] = []
    of = [-1] * len(number)
    for names in alike.values():
        if monotonic() >= deadline:
            break
        words = alternative_words(plan, next_best(plan, names[0]))
        for name in names:
            of[number[name]] = len(found)
        found.append({"words": words, "vertex": number[names[0]]})
    return {"of": of, "found": found}
