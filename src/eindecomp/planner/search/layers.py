"""Improves a plan with equal layers choosing alike, and then apart: sooner than apart at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eindecomp.planner.search.blocks import block_sizes, improve
from eindecomp.planner.space.alike import alike_vertices

if TYPE_CHECKING:
    from eindecomp.planner.search.search import Outcome, Search

_NEAR, _FAR = 1, 4  # steps within which vertices must look the same to choose alike


def with_equal_layers(search: Search) -> Search:
    """The same search, in which vertices of equal layers choose alike."""
    return replace(search, alike=alike_vertices(search.graph, search.rules, _NEAR))


def improve_layers(search: Search, outcome: Outcome, goal: float) -> Outcome:
    """Choose blocks of axes again: for all equal layers at once, then for those in the middle."""
    for far in (_NEAR, _FAR):
        alike = alike_vertices(search.graph, search.rules, far)
        for any_order in (False, True):
            finer = replace(search, alike=alike, any_order=any_order)
            outcome = improve(finer, outcome, goal, block_sizes(finer))
    return outcome
