"""Laws of paging: every schedule is right in every order that its waits allow, and fast."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from paging_cases import FAST, MB, layers, least_arena, random_workload, renewing, stored_by, window

from eindecomp.errors import PlanError
from eindecomp.tra.paging.make import ArenaTooSmallError, arena_bytes, fitting, make_schedule
from eindecomp.tra.paging.schedule import Execute, Fetch, Keep, Prefetch, Store
from eindecomp.tra.paging.workload import Begins, Paged, Staging, Task, Workload
from eindecomp.tra.tiles.ops import ALIGNMENT
from verify_schedule import ScheduleError, verify_schedule

seeds = st.integers(0, 2**32)
rooms = st.sampled_from([0, 1, 2, 3, 5, 8, 20, 1000])
SMALL = Staging(block=700, blocks=2)


def random_schedule(seed, room):
    """A schedule of a random workload with some windows more than its largest task needs."""
    workload = random_workload(seed)
    arena = least_arena(workload) + room * ALIGNMENT
    return make_schedule(workload, FAST, arena, SMALL)


def renewing_schedule(seed, room):
    """As above, but as much as fits stays and is renewed by every run."""
    workload = renewing(random_workload(seed), seed)
    arena = least_arena(workload) + room * ALIGNMENT
    renewed = [tensor.number for tensor in workload.tensors if tensor.renewed_by is not None]
    sizes = [window(tensor) for tensor in workload.tensors]
    chosen = fitting(workload, sizes, arena, renewed, arena)
    return make_schedule(workload, FAST, arena, SMALL, chosen)


makers = st.sampled_from([random_schedule, renewing_schedule])


@given(make=makers, seed=seeds, room=rooms)
@example(random_schedule, 886, 2)  # what a task reads is moved into room that was in use until then
@example(random_schedule, 48, 8)  # what comes back could come before it has been made
def test_every_schedule_is_right_in_every_order(make, seed, room):
    verify_schedule(make(seed, room))


@given(seed=seeds, room=rooms)
def test_what_is_renewed_stays_and_is_not_stored_unless_room_is_short(seed, room):
    schedule = renewing_schedule(seed, room)
    kept = {a.tensor: a.renews for a in schedule.actions if isinstance(a, Keep)}
    tensors = schedule.workload.tensors
    assert kept == {new: old for old, new in schedule.renewed.items() if tensors[new].nbytes}
    fetched = {a.tensor for a in schedule.actions if isinstance(a, Fetch)}
    assert fetched.isdisjoint(schedule.renewed)
    assert {*stored_by(schedule)} & {*kept} <= fetched


@given(make=makers, seed=seeds, room=rooms)
def test_no_wait_can_be_left_out(make, seed, room):
    schedule = make(seed, room)
    for place, action in enumerate(schedule.actions):
        for wait in action.waits:
            fewer = replace(action, waits=tuple(w for w in action.waits if w != wait))
            with pytest.raises(ScheduleError):
                verify_schedule(with_action(schedule, place, fewer))


@given(make=makers, seed=seeds, room=rooms, shift=st.sampled_from([-ALIGNMENT, -1, 1, ALIGNMENT]))
def test_no_window_can_be_moved(make, seed, room, shift):
    schedule = make(seed, room)
    for place, action in transfers_of_tensors_moved_once(schedule):
        if not isinstance(action, Prefetch):
            moved = [replace(action, offset=action.offset + shift)]
            if isinstance(action, Keep):
                moved.append(replace(action, into=action.into + shift))
            for each in moved:
                with pytest.raises(ScheduleError):
                    verify_schedule(with_action(schedule, place, each))


@given(make=makers, seed=seeds, room=rooms)
def test_no_transfer_can_be_left_out(make, seed, room):
    schedule = make(seed, room)
    for place, _ in transfers_of_tensors_moved_once(schedule):
        with pytest.raises(ScheduleError):
            verify_schedule(without(schedule, place))


def transfers_of_tensors_moved_once(schedule):
    """Of a tensor that comes back, some bytes may lie there still."""
    fetches = Counter(a.tensor for a in schedule.actions if isinstance(a, Fetch) and not a.start)
    for place, action in enumerate(schedule.actions):
        if isinstance(action, Execute):
            continue
        once = fetches[action.tensor] + schedule.workload.tensors[action.tensor].made < 2
        if isinstance(action, Store) or once:
            yield place, action


def with_action(schedule, place, action):
    """The schedule with another action in the place of one."""
    actions = [*schedule.actions]
    actions[place] = action
    return replace(schedule, actions=tuple(actions))


def without(schedule, place):
    """The schedule without an action; those that waited for it wait for what it waited for."""
    gone = schedule.actions[place]
    actions = []
    for action in (a for at, a in enumerate(schedule.actions) if at != place):
        waits = {w for w in action.waits if w != place}
        waits |= set(gone.waits) if place in action.waits else set()
        actions.append(replace(action, waits=tuple(w - (w > place) for w in sorted(waits))))
    return replace(schedule, actions=tuple(actions))


def test_a_task_that_does_not_fit_is_refused_by_name():
    workload = layers(2, 1e-3)
    with pytest.raises(ArenaTooSmallError, match=r"task 0\.1: .* leaves 272,000,000") as e:
        make_schedule(workload, FAST, 272 * MB)
    assert e.value.missing == e.value.needed - e.value.available == 1024
    make_schedule(workload, FAST, 272 * MB + 1024)
    assert str(pickle.loads(pickle.dumps(e.value))) == str(e.value)  # noqa: S301


def test_given_residents_leave_room_and_are_the_same_in_every_run():
    workload = layers(2, 1e-3)
    with pytest.raises(ArenaTooSmallError, match="bytes are missing"):
        make_schedule(workload, FAST, 400 * MB, resident=(1,))
    with pytest.raises(PlanError, match="input: differs from run to run"):
        make_schedule(workload, FAST, 400 * MB, resident=(0,))


def test_the_arena_is_what_workspace_and_margin_leave():
    workload = Workload((), (Task("a", (), (), 1000), Task("b", (), (), 3000)))
    assert arena_bytes(workload, 10_000, margin=1000) == 11 * 512
    assert arena_bytes(workload, 2000) == -2 * 512


@pytest.mark.parametrize(
    ("tensors", "tasks", "message"),
    [
        ([Begins.MADE], [((), ())], "x0: no task writes it"),
        ([Begins.MADE], [((0,), ()), ((), (0,))], "t0: reads x0 before it is written"),
        ([Begins.HOST], [((), (0,))], "t0: writes x0, which is there already"),
        ([Begins.MADE], [((), (0,)), ((), (0,))], "t1: writes x0, which is there already"),
        ([Begins.MADE], [((), (0, 0))], "t0: writes x0, which is there already"),
        ([Begins.HOST], [((1,), ())], "t0: .* not all numbers of tensors"),
    ],
)
def test_workloads_that_are_not_well_formed(tensors, tasks, message):
    paged = tuple(Paged(n, f"x{n}", 8, begins) for n, begins in enumerate(tensors))
    with pytest.raises(PlanError, match=message):
        Workload(paged, tuple(Task(f"t{n}", *used) for n, used in enumerate(tasks)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ({"lasting": True}, {}, "old: only what runs are given anew can be renewed"),
        ({"is_result": True}, {}, "old: only what runs are given anew can be renewed"),
        ({}, {"is_result": False}, "old: new is not a result of its own"),
        ({"renewed_by": 0}, {}, "old: old is not a result of its own"),
        ({}, {"nbytes": 1024}, "old: has 8 bytes, but new 1,024"),
    ],
)
def test_what_cannot_be_renewed(old, new, message):
    given = Paged(0, "old", 8, Begins.HOST, lasting=False, renewed_by=1)
    made = Paged(1, "new", 8, Begins.MADE, True)
    with pytest.raises(PlanError, match=message):
        Workload((replace(given, **old), replace(made, **new)), (Task("make", (0,), (1,)),))


def test_scattered_room_is_packed():
    """x0 and x2 lie apart when x1 between them is gone; x3 needs all the room beside them."""
    tensors = [Paged(n, f"x{n}", size * 512, Begins.MADE) for n, size in enumerate([1, 2, 1, 4])]
    used = [((), (0,)), ((), (1,)), ((1,), (2,)), ((0, 2), (3,))]
    tasks = [Task(f"make x{n}", *reads_and_writes) for n, reads_and_writes in enumerate(used)]
    schedule = make_schedule(Workload(tuple(tensors), tuple(tasks)), FAST, 6 * 512)
    verify_schedule(schedule)
    first, last = schedule.actions[0], schedule.actions[-1]
    assert isinstance(first, Execute)
    assert isinstance(last, Execute)
    assert first.writes == (5 * 512,)
    assert sorted((*last.reads, *last.writes)) == [0, 512, 1024]
    assert [a.tensor for a in schedule.actions if isinstance(a, Store)] == [0, 2]


def test_a_schedule_prints_as_a_table():
    schedule = random_schedule(2, 0)
    lines = str(schedule).splitlines()
    assert len(lines) == 2 + len(schedule.resident) + len(schedule.actions)
    assert lines[0].startswith("11 tasks in an arena of 11.0 KiB: 0 resident tensors")
    assert lines[1].split() == ["action", "stream", "does", "on", "where", "bytes", "waits", "for"]
