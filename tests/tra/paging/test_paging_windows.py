"""Windows are free when handed out, free earliest, and cheapest to have: by brute force."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eindecomp.tra.paging.arena import START, Arena, ArenaPart, cheapest

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


@given(st.lists(steps, max_size=40))
def test_a_fetch_gets_the_window_that_is_free_earliest(steps):
    arena, naive = Arena(0, UNITS), Naive()
    held: list[tuple[int, int, int]] = []
    for task, (kind, size, lasts) in enumerate(steps):
        arena.begin(task)
        for window in [window for window in held if window[2] <= task - 1]:
            held.remove(window)
            arena.release(*window)
            naive.fill(*window)
        windows = dict(naive.windows(size))
        settled = arena.settled
        offset = arena.earliest(size) if kind == "fetch" else arena.tightest(size)
        if not windows:
            assert offset is None
            continue
        assert windows[offset] <= task - 1
        if kind == "fetch":
            assert arena.settled == max(settled, min(windows.values())) >= windows[offset]
        arena.take(offset, size)
        naive.fill(offset, size, None)
        held.append((offset, size, task + lasts - 1))
        assert [at for start, end, _ in sorted(arena.holes()) for at in range(start, end)] == [
            at for at, since in enumerate(naive.since) if since is not None
        ]


@pytest.mark.parametrize(("pending", "offset"), [(3, 2), (2, 10)])
def test_a_result_goes_where_nothing_is_under_way(pending, offset):
    """The smallest part that is free when task 3 begins; a store reads the other until then."""
    arena = Arena(0, UNITS)
    arena.take(0, UNITS)
    arena.begin(2)
    arena.release(0, 4, 1)
    arena.release(9, 3, pending)
    arena.begin(3)
    assert arena.tightest(2) == offset


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
