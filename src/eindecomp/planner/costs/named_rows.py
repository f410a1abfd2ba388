"""What moves where only rows of a table move that an index names: a worst case, in bytes.

At worst, each element of a device's piece of an index names a row of its own, which lies elsewhere.
A row moves as a whole, with its number: a lookup asks for it by that, and a scatter's partial sums
of it are sent with it. So no device that holds the row may have only a part of what is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from eindecomp.layout.cut import Cut, Span, interval, pending_in
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.view import NamedRows
from eindecomp.planner.space.choices import Choices, Reads
from eindecomp.solve.problem.arrays import Costs, Ints, Mask, is_infinite

NUMBER = 8
"""The bytes of a row's number."""


def most_bytes(choices: Choices, named: NamedRows, item: int) -> Ints:
    """The bytes of all rows that tiles name, and of their numbers, for each assignment."""
    elements = _on_all_devices(choices, named.elements)
    return item * elements + NUMBER * _on_all_devices(choices, named.index)


def _on_all_devices(choices: Choices, labels: Sequence[str]) -> Ints:
    """How many elements tiles have that are numbered by these labels, on all devices together."""
    at = [choices.view.labels.index(label) for label in labels]
    pieces = choices.parts[:, at].prod(axis=1)
    return prod(choices.view.sizes[i] for i in at) * (choices.mesh.devices // pieces)


class RowsRead(NamedTuple):
    """What a lookup moves at worst if it fetches rows of its table."""

    mesh: Mesh
    most: Ints
    """The bytes for each assignment of the lookup."""
    across: tuple[int, ...]
    """The dimensions of the table that lie within a row."""

    def cheaper(self, costs: Costs, held: Sequence[Cut], reads: Reads) -> Costs:
        """What fetching costs, as blocks or as rows: held cuts × assignments."""
        whole = ~is_infinite(costs) & np.array([pending_in(cut) is None for cut in reads.cuts])
        for d in self.across:
            for k, cut in enumerate(held):
                whole[k] &= [_lies_inside(self.mesh, need[d], cut[d]) for need in reads.cuts]
        blocks = costs[:, reads.of]
        return np.where(whole[:, reads.of], np.minimum(blocks, self.most[None]), blocks)


@lru_cache(maxsize=1 << 14)
def _lies_inside(mesh: Mesh, needed: Span, held: Span) -> bool:
    """Whether each piece of one span lies inside a piece of another.

    It may where only numbers of pieces are known.
    """
    if not hasattr(held, "axes") or not held.axes or held == needed:
        return True
    ours, theirs = (
        {*zip(*map(list, interval(mesh, span)), strict=True)} for span in (held, needed)
    )
    return all(any(a <= c and d <= b for a, b in ours) for c, d in theirs)


def rows_read(price: object, choices: Choices, k: int, item: int) -> RowsRead | None:
    """What fetching rows of operand k costs at worst; None if its blocks are fetched whole."""
    named = choices.view.named
    if named is None or named.is_result or k or not getattr(price, "by_rows", False):
        return None
    return RowsRead(choices.mesh, most_bytes(choices, named, item), named.across)


def fetched(price: Any, choices: Choices, k: int, held: Sequence[Cut], item: int) -> Costs:
    """What fetching operand k costs, from each held cut and for each assignment."""
    reads = choices.reads[k]
    assert reads is not None  # noqa: S101 - what is fetched is read
    costs = price.fetch(held, reads.cuts, item)
    rows = rows_read(price, choices, k, item)
    return costs[:, reads.of] if rows is None else rows.cheaper(costs, held, reads)


def reduced(choices: Choices, blocks: Costs, item: int) -> Costs:
    """What reducing a scatter's partial sums costs, as blocks or as rows: assignments × homes."""
    named = choices.view.named
    if named is None or not named.is_result:
        return blocks
    by_rows = rows_stay_whole(choices, named)
    return np.where(by_rows, np.minimum(blocks, most_bytes(choices, named, item)[:, None]), blocks)


def rows_stay_whole(choices: Choices, named: NamedRows) -> Mask:
    """To which homes each assignment brings rows of its result whole, and to one device each."""
    whole = choices.gathered == 0
    dims = choices.view.output
    if not choices.places:
        return whole  # where only numbers of pieces are known
    for d in named.across:
        label = choices.view.index(dims[d])
        tiles = [() if label is None else own[label] for own in choices.assignments]
        homes = [home[d].axes for home in choices.homes]
        numbers = {axes: k for k, axes in enumerate(dict.fromkeys((*tiles, *homes)))}
        ours, theirs = (np.array([numbers[axes] for axes in of]) for of in (tiles, homes))
        whole &= ours[:, None] == theirs[None]
    return whole
