"""Improves a plan with equal layers choosing alike, and then apart: sooner than apart at once."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from eindecomp.planner.search.blocks import block_sizes, improve_blocks
from eindecomp.planner.space.alike import alike_vertices

if TYPE_CHECKING:
    from eindecomp.planner.search.search import Outcome, Search

_NEAR, _FAR = 1, 4  # steps within which vertices must look the same to choose alike


def with_equal_layers(search: Search) -> Search:
    """The same search, in which vertices of equal layers choose alike."""
    return replace(search, alike=alike_vertices(search.graph, search.rules, _NEAR))


def improve_layers(search: Search, outcome: Outcome, goal: float) -> Outcome:
    """Choose blocks of axes again: for all equal layers at once, then for those in the middle."""
    known = [alike_vertices(search.graph, search.rules, far) for far in (_NEAR, _FAR)]
    too_wide = len(search.mesh.sizes) + 1
    for alike, any_order in product(known, (False, True)):
        finer = replace(search, alike=alike, any_order=any_order)
        for size in block_sizes(finer):
            if size >= too_wide:
                continue  # what was too wide already is no narrower with more to choose
            improved = improve_blocks(finer, outcome, goal, size)
            outcome = improved.outcome
            if improved.is_settled:
                break
            too_wide = size
    # A search takes a share of the time, whereas elimination is done at once.
    for alike in known:
        finer = replace(search, alike=alike, any_order=True)
        outcome = improve_blocks(finer, outcome, goal, 1, searched=True).outcome
    return outcome
