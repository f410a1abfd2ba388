"""How long schedules take: by hand, at least what each stream needs, and little more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paging_cases import (
    FAST,
    MB,
    layers,
    least_arena,
    random_workload,
    renewing,
    stored_by,
    training,
)

from eindecomp.tra.paging.make import make_schedule
from eindecomp.tra.paging.schedule import (
    COMPUTE,
    DISK,
    STREAMS,
    TO_GPU,
    TO_HOST,
    Execute,
    Fetch,
    Keep,
    Prefetch,
    Store,
    predicted_seconds,
    simulate,
)
from eindecomp.tra.paging.workload import Begins, Links, Paged, Staging, Task, Workload
from eindecomp.tra.tiles.ops import ALIGNMENT
from verify_schedule import verify_schedule

UNIT = ALIGNMENT
SLOW = Links(to_gpu=UNIT, to_host=UNIT / 2, from_disk=UNIT / 4, latency=0.5)
"""A window of one unit takes 1.5 s to the GPU, 2.5 s to the host, 4.5 s from disk."""


def chain(weights, begins=Begins.HOST):
    """Tasks of one second each, each with a weight of one unit that it alone reads."""
    tensors = [Paged(n, f"w{n}", UNIT, begins) for n in range(weights)]
    return Workload(tuple(tensors), tuple(Task(f"t{n}", (n,), (), 0, 1.0) for n in range(weights)))


def spans(schedule, links, stream):
    """What is done on a stream, and from when to when."""
    found = []
    for action, span in zip(schedule.actions, simulate(schedule, links), strict=True):
        if action.stream == stream:
            tasks, tensors = schedule.workload.tasks, schedule.workload.tensors
            on = tasks[action.task] if isinstance(action, Execute) else tensors[action.tensor]
            found.append((on.name, *span))
    return found


def busy(schedule, links, stream):
    """For how many seconds a stream does something."""
    return sum(end - begin for _, begin, end in spans(schedule, links, stream))


@pytest.mark.parametrize(
    ("room", "resident", "seconds"),
    [
        (1, (), 4 * (1.5 + 1)),  # nothing overlaps
        (2, (), 4 * 1.5 + 1),  # the link is never idle, and the last task comes after it
        (2, (0,), 1.5 + 1 + 1.5 + 1 + 1.5 + 1),  # one window is left for the other three
        (3, (0,), 3 * 1.5 + 1),
        (4, (0, 1, 2, 3), 4),
    ],
)
def test_a_chain_by_hand(room, resident, seconds):
    schedule = make_schedule(chain(4), SLOW, room * UNIT, resident=resident)
    verify_schedule(schedule)
    assert predicted_seconds(schedule, SLOW) == pytest.approx(seconds)


def test_the_best_residents_of_a_chain():
    """Keeping the first and the third leaves one window, which is filled while these are used."""
    assert predicted_seconds(make_schedule(chain(4), SLOW, 4 * UNIT), SLOW) == pytest.approx(4)
    three = make_schedule(chain(4), SLOW, 3 * UNIT)
    assert predicted_seconds(three, SLOW) == pytest.approx(2 * (1.5 + 1))


def test_disk_link_and_tasks_overlap():
    """Two blocks: the third read waits until the first block has gone to the GPU."""
    workload = chain(3, Begins.DISK)
    schedule = make_schedule(workload, SLOW, 3 * UNIT, Staging(UNIT, 2), resident=())
    verify_schedule(schedule)
    assert spans(schedule, SLOW, DISK) == [("w0", 0, 4.5), ("w1", 4.5, 9), ("w2", 9, 13.5)]
    assert spans(schedule, SLOW, TO_GPU) == [("w0", 4.5, 6), ("w1", 9, 10.5), ("w2", 13.5, 15)]
    assert spans(schedule, SLOW, COMPUTE) == [("t0", 6, 7), ("t1", 10.5, 11.5), ("t2", 15, 16)]
    one = make_schedule(workload, SLOW, 3 * UNIT, Staging(UNIT, 1), resident=())
    assert predicted_seconds(one, SLOW) == pytest.approx(3 * 6 + 1)


def test_what_is_on_disk_stays_where_it_can():
    """Six weights, two of them on disk, and room for four: the disk is never waited for."""
    tensors = chain(6).tensors
    tiers = [Begins.HOST, Begins.HOST, Begins.DISK, Begins.HOST, Begins.DISK, Begins.HOST]
    mixed = tuple(replace(t, begins=begins) for t, begins in zip(tensors, tiers, strict=True))
    schedule = make_schedule(Workload(mixed, chain(6).tasks), SLOW, 4 * UNIT)
    verify_schedule(schedule)
    assert {2, 4} <= {window.tensor for window in schedule.resident}
    assert not any(isinstance(action, Prefetch) for action in schedule.actions)


def test_what_is_made_and_leaves_comes_back():
    """x is made, leaves for two weights, and comes back when both are done with."""
    tensors = (
        Paged(0, "x", UNIT, Begins.MADE),
        Paged(1, "v", UNIT, Begins.HOST),
        Paged(2, "w", UNIT, Begins.HOST),
    )
    tasks = (
        Task("make", (), (0,), 0, 1.0),
        Task("both", (1, 2), (), 0, 1.0),
        Task("use", (0,), (), 0, 1.0),
    )
    schedule = make_schedule(Workload(tensors, tasks), SLOW, 2 * UNIT, resident=())
    verify_schedule(schedule)
    assert spans(schedule, SLOW, TO_HOST) == [("x", 1, 3.5)]
    assert spans(schedule, SLOW, TO_GPU) == [("v", 0, 1.5), ("w", 3.5, 5), ("x", 6, 7.5)]
    assert schedule.seconds == pytest.approx(8.5)
    assert stored_by(schedule) == (0,)


def test_what_ends_on_the_host_is_stored_at_once():
    tensors = (Paged(0, "x", UNIT, Begins.MADE, True), Paged(1, "y", UNIT, Begins.MADE))
    tasks = (Task("make", (), (0,), 0, 1.0), Task("go on", (0,), (1,), 0, 9.0))
    schedule = make_schedule(Workload(tensors, tasks), SLOW, 2 * UNIT)
    assert spans(schedule, SLOW, TO_HOST) == [("x", 1, 3.5)]


def test_what_is_renewed_is_kept_when_its_last_reader_has_run():
    """u is made from w, which another task reads after that: w neither comes nor goes."""
    tensors = (
        Paged(0, "w", UNIT, Begins.HOST, lasting=False, renewed_by=1),
        Paged(1, "u", UNIT, Begins.MADE, True),
    )
    tasks = (Task("make", (0,), (1,), 0, 1.0), Task("read", (0,), (), 0, 1.0))
    links = replace(SLOW, within_gpu=UNIT)
    schedule = make_schedule(Workload(tensors, tasks), links, 2 * UNIT)
    verify_schedule(schedule)
    assert spans(schedule, links, COMPUTE) == [("make", 0, 1), ("read", 1, 2), ("u", 2, 3.5)]
    assert schedule.seconds == pytest.approx(3.5)
    assert schedule.fetched == schedule.stored == 0


@pytest.mark.parametrize("seconds", [1e-4, 1e-3])
def test_where_the_link_is_slower_a_run_takes_as_long_as_the_link(seconds):
    schedule = make_schedule(layers(32, seconds), FAST, 1000 * MB)
    link = schedule.fetched / FAST.to_gpu
    assert link <= predicted_seconds(schedule, FAST) <= 1.01 * link
    none = make_schedule(layers(32, seconds), FAST, 1000 * MB, resident=())
    assert none.fetched == sum(t.nbytes for t in none.workload.tensors if not t.made)
    assert predicted_seconds(none, FAST) <= 1.01 * none.fetched / FAST.to_gpu
    assert predicted_seconds(schedule, FAST) < 0.97 * none.fetched / FAST.to_gpu


@pytest.mark.parametrize("seconds", [4e-3, 2e-2])
def test_where_tasks_are_slower_a_run_takes_as_long_as_the_tasks(seconds):
    schedule = make_schedule(layers(32, seconds), FAST, 1000 * MB)
    verify_schedule(schedule)
    assert predicted_seconds(schedule, FAST) <= 1.01 * 64 * seconds


@pytest.mark.parametrize(("weight", "activation"), [(200 * MB, 50 * MB), (50 * MB, 200 * MB)])
def test_what_a_step_of_training_keeps_leaves_and_comes_back_meanwhile(weight, activation):
    workload = training(32, weight, activation, 10e-3)
    schedule = make_schedule(workload, FAST, 1500 * MB)
    verify_schedule(schedule)
    assert schedule.stored > 32 * weight
    last = weight / FAST.to_host
    assert predicted_seconds(schedule, FAST) <= 1.01 * (32 * 30e-3 + last)


def test_all_is_resident_where_all_fits():
    schedule = make_schedule(layers(8, 1e-3), FAST, 4000 * MB)
    assert len(schedule.resident) == 16
    assert schedule.fetched == MB


@given(
    seed=st.integers(0, 2**32),
    room=st.sampled_from([0, 1, 3, 8, 50]),
    latency=st.sampled_from([0.0, 1e-6]),
)
def test_no_stream_is_faster_than_its_work(seed, room, latency):
    workload = renewing(random_workload(seed), seed)
    links = Links(1e9, 5e8, 1e8, latency, 1e10)
    arena = least_arena(workload) + room * ALIGNMENT
    schedule = make_schedule(workload, links, arena, Staging(700, 2))
    kept = [action.nbytes for action in schedule.actions if isinstance(action, Keep)]
    computing = sum(task.seconds for task in workload.tasks) + sum(kept) / 1e10
    computing += latency * len(kept)
    assert busy(schedule, links, COMPUTE) == pytest.approx(computing)
    for stream, kind, pace in ((TO_GPU, Fetch, 1e9), (TO_HOST, Store, 5e8), (DISK, Prefetch, 1e8)):
        moved = [action.nbytes for action in schedule.actions if isinstance(action, kind)]
        needed = sum(moved) / pace + latency * len(moved)
        assert busy(schedule, links, stream) == pytest.approx(needed)
    busiest = max(busy(schedule, links, stream) for stream in STREAMS)
    assert schedule.seconds >= busiest * (1 - 1e-9)
    alone = make_schedule(workload, links, arena, Staging(700, 2), resident=())
    assert schedule.seconds <= predicted_seconds(alone, links)
