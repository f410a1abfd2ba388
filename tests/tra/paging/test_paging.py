"""Laws of paging: every schedule is right in every order that its waits allow, and fast."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from paging_cases import FAST, least_arena, random_workload

from eindecomp.tra.paging.check import check_schedule
from eindecomp.tra.paging.make import ALIGNMENT, make_schedule
from eindecomp.tra.paging.workload import Staging

seeds = st.integers(0, 2**32)
rooms = st.sampled_from([0, 1, 2, 3, 5, 8, 20, 1000])
SMALL = Staging(block=700, blocks=2)


def random_schedule(seed, room):
    """A schedule of a random workload with some windows more than its largest task needs."""
    workload = random_workload(seed)
    arena = least_arena(workload) + room * ALIGNMENT
    return make_schedule(workload, FAST, arena, SMALL)


@settings(max_examples=200)
@given(seed=seeds, room=rooms)
def test_every_schedule_is_right_in_every_order(seed, room):
    check_schedule(random_schedule(seed, room))
