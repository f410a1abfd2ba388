"""What it costs to read a tensor in parts: nothing where the parts lie, else as much as one needs.

Parts are read where they lie and never move. A tensor that is whole is read as if it were in parts:
of devices that differ along the axes of that, the first has it, and all others the identity of ⊕;
or all of them have it, where ⊕ repeated changes nothing. Of a ⊕ of one's own only parts are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from eindecomp.lang.homomorphism import IDEMPOTENT
from eindecomp.lang.monoid import BUILTIN_NAMES
from eindecomp.layout.cut import Cut, bits_of, combined, pending_in
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.overlaps import copied, covers, fullest, moved
from eindecomp.solve.problem.arrays import Costs, infinite_where, is_infinite

Fetch = Callable[[Sequence[Cut], Sequence[Cut], int], Costs]
"""The costs from each held cut to each needed one, if of devices along some axes only the first
needs it."""
Parts = tuple[str, int]
"""The ⊕ of parts, "" for none, and the axes along which they lie, as bits."""


def parts_in(cut: Cut) -> Parts:
    """Along which axes a cut has parts of a tensor."""
    span = pending_in(cut)
    return ("", 0) if span is None else (span.pending, bits_of(span.axes))


def fetched_in_parts(mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut], whole: Fetch) -> Costs:
    """The costs from each held cut to each needed one, where either may have parts."""
    ours, theirs = _by_parts(held), _by_parts(needed)
    if ours.keys() == theirs.keys() == {("", 0)}:
        return whole(held, needed, 0)
    table: Costs | None = None
    for have, rows in ours.items():
        for want, columns in theirs.items():
            own = [combined(held[i]) for i in rows]
            other = [combined(needed[j]) for j in columns]
            costs = _between(mesh, have, want, own, other, whole)
            if table is None:
                every = np.ones((len(held), len(needed)), dtype=bool)
                table = infinite_where(every, np.zeros((1, 1), costs.dtype))
            table[np.ix_(rows, columns)] = costs
    assert table is not None  # noqa: S101 - there are some of each
    return table


def _by_parts(cuts: Sequence[Cut]) -> dict[Parts, list[int]]:
    groups: dict[Parts, list[int]] = {}
    for i, cut in enumerate(cuts):
        groups.setdefault(parts_in(cut), []).append(i)
    return groups or {("", 0): []}


def _between(
    mesh: Mesh, have: Parts, want: Parts, held: list[Cut], needed: list[Cut], whole: Fetch
) -> Costs:
    (agg, axes), (wanted, along) = have, want
    if wanted and wanted not in BUILTIN_NAMES and axes != along:
        # Combining a value with the identity of one's own ⊕ may change it.
        every = np.ones((len(held), len(needed)), dtype=bool)
        return infinite_where(every, np.zeros_like(whole(held[:1], needed[:1], 0)))
    first = 0 if wanted in IDEMPOTENT else along & ~axes
    if not axes:
        return whole(held, needed, first)
    lacks = ~covers(held, needed) | (moved(mesh, held, needed, first) > 0)
    apart = agg != wanted or bool(axes & ~along)
    return infinite_where(lacks | apart, np.zeros_like(whole(held[:1], needed[:1], first)))


def copied_in_parts(mesh: Mesh, held: Sequence[Cut], needed: Sequence[Cut]) -> Costs:
    """The elements that the fullest device must copy: a table held × needed.

    Where a device reads the identity of ⊕ in place of what it has, that is a copy, too.
    """

    def whole(held: Sequence[Cut], needed: Sequence[Cut], first: int) -> Costs:
        if first:
            return np.tile(fullest(mesh, needed), (len(held), 1))
        return copied(mesh, held, needed)

    table = fetched_in_parts(mesh, held, needed, whole)
    return np.where(is_infinite(table), fullest(mesh, needed)[None], table)
