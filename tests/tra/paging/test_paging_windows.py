"""Windows are free when handed out, free earliest, and cheapest to have: by brute force."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eindecomp.tra.paging.place import START, Arena, ArenaPart, cheapest

UNITS = 12
steps = st.tuples(st.sampled_from(["fetch", "write"]), st.integers(1, 5), st.integers(1, 4))


class Naive:
    """For every unit of the arena the task after which it is free; None if it is taken."""

    def __init__(self):
        self.since: list[int | None] = [START] * UNITS

    def windows(self, size):
        """The offset and the last task of every free window."""
        for offset in range(UNITS - size + 1):
            units = self.since[offset : offset + size]
            if None not in units:
                yield offset, max(unit for unit in units if unit is not None)

    def fill(self, offset, size, since):
        self.since[offset : offset + size] = [since] * size


@example([("fetch", 1, 1), ("fetch", 1, 4), ("fetch", 3, 1), ("fetch", 3, 2), ("fetch", 5, 1)])
@given(st.lists(steps, max_size=40))
def test_a_fetch_gets_the_window_that_is_free_earliest(steps):
    arena, naive = Arena(0, UNITS), Naive()
    held: list[tuple[int, int, int]] = []
    for task, (kind, size, lasts) in enumerate(steps):
        for window in [window for window in held if window[2] <= task - 1]:
            held.remove(window)
            arena.release(*window)
            naive.fill(*window)
        windows = dict(naive.windows(size))
        settled = arena.settled
        found = cheapest(arena.holes(settled if kind == "fetch" else task - 1), size)
        if not windows:
            assert not found
            continue
        offset = found[0].start if kind == "fetch" else found[-1].end - size
        assert windows[offset] <= task - 1
        if kind == "fetch":
            arena.settle(max(part.since for part in found))
            assert arena.settled == max(settled, min(windows.values())) >= windows[offset]
        arena.take(offset, size)
        naive.fill(offset, size, None)
        held.append((offset, size, task + lasts - 1))
        assert [at for hole in arena.holes(START) for at in range(hole.start, hole.end)] == [
            at for at, since in enumerate(naive.since) if since is not None
        ]


@pytest.mark.parametrize(("pending", "offset"), [(3, 2), (2, 10)])
def test_a_result_goes_where_nothing_is_under_way(pending, offset):
    """The smallest part that is free when task 3 begins; a store reads the other until then."""
    arena = Arena(0, UNITS)
    arena.take(0, UNITS)
    arena.release(0, 4, 1)
    arena.release(9, 3, pending)
    [found] = cheapest(arena.holes(2), 2)
    assert found.end - 2 == offset


parts = st.lists(
    st.tuples(st.integers(1, 4), st.integers(-1, 5), st.sampled_from([0.0, 1.0, 2.0, 3.0, inf])),
    min_size=1,
    max_size=10,
)


@given(parts, st.integers(1, 12))
def test_the_cheapest_window_is_that_of_brute_force(sizes, size):
    listed, start = [], 0
    for number, (length, since, price) in enumerate(sizes):
        listed.append(ArenaPart(start, start + length, since, price, number))
        start += length
    scores = [
        (sum(part.price for part in window), max(part.since for part in window))
        for first in range(len(listed))
        for last in range(first + 1, len(listed) + 1)
        if (window := listed[first:last])[-1].end - window[0].start >= size
    ]
    found = cheapest(listed, size)
    if not found:
        assert all(price == inf for price, _ in scores)
        return
    assert all(one.end == other.start for one, other in pairwise(found))
    assert found[-1].end - found[0].start >= size
    assert (sum(p.price for p in found), max(p.since for p in found)) == min(scores)
