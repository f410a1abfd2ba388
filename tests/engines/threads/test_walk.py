"""Runs beside and within each other, and runs that fail: nothing hangs, nothing is kept."""

from __future__ import annotations

import gc
import signal
from threading import Barrier, Event, Thread, current_thread, main_thread
from weakref import ref

import numpy as np
import pytest
from lazy import Lazy

import eindecomp as ed
from eindecomp.engines.threads import walk
from eindecomp.engines.threads.engine import ThreadsEngine

DOUBLE = ed.plan(ed.parse("input X[i: 8]\nZ[i] <- X[i] * 2\noutput Z"), 4, strategy=["i"])
ONES = np.ones(8, np.float32)
FOUR = ThreadsEngine(workers=4)
PATIENCE = 60  # seconds after which something that waits counts as hung
on_the_main_thread = pytest.mark.skipif(
    current_thread() is not main_thread(), reason="signals reach the main thread"
)


def run(array, engine=FOUR, **more):
    return ed.run(DOUBLE, {"X": array}, engine, **more)["Z"]


def never_hangs(function):
    """Call a function; fail if it does not come back."""
    found = []
    thread = Thread(target=lambda: found.append(function()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert found
    return found[0]


def test_a_run_waits_for_no_other():
    begun, free = Event(), Event()

    def hold(_):
        begun.set()
        assert free.wait(PATIENCE)

    slow = []
    other = Thread(target=lambda: slow.append(run(Lazy(ONES, hold))), daemon=True)
    other.start()
    assert begun.wait(PATIENCE)
    for _ in range(3):
        assert (never_hangs(lambda: run(ONES)) == 2).all()
    free.set()
    other.join(PATIENCE)
    assert (slow[0] == 2).all()


def test_runs_start_within_tiles_that_are_read():
    inner = Lazy(ONES, lambda _: run(ONES))
    assert (never_hangs(lambda: run(Lazy(ONES, lambda _: run(inner)))) == 2).all()


def test_runs_start_within_events():
    assert (never_hangs(lambda: run(ONES, on_event=lambda _: run(ONES))) == 2).all()


def test_many_runs_at_once():
    arrays = [np.full(8, k, np.float32) for k in range(20)]
    found = {}

    def work(k):
        found[k] = run(arrays[k])

    threads = [Thread(target=work, args=(k,), daemon=True) for k in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert all((found[k] == 2 * k).all() for k in range(20))


def test_a_failure_on_a_helper_reaches_the_caller_that_waits():
    text = "input X[i: 8]\nZ[i] <- exp(X[i])\nS[] <- sum Z[i]\noutput S"
    plan = ed.plan(ed.parse(text), 2, strategy=["i"], rewrite=False)
    both = Barrier(2, timeout=PATIENCE)

    def fail_elsewhere(_):
        both.wait()  # each of two threads has a tile
        if current_thread() is not caller:
            raise OSError("the disk is gone")

    caller = current_thread()
    with pytest.raises(ed.RunError, match=r"Z\[i\], tile \[.:.\] on device .: OSError: the disk"):
        ed.run(plan, {"X": Lazy(ONES, fail_elsewhere)}, ThreadsEngine(workers=2))
    assert (run(ONES) == 2).all()


@on_the_main_thread
def test_after_an_interrupt_nobody_works():
    both = Barrier(2, timeout=PATIENCE)
    done = []

    def interrupt(_):
        both.wait()
        if current_thread() is main_thread():
            signal.raise_signal(signal.SIGINT)

    def note(event):
        done.append(event)

    plan = ed.plan(DOUBLE.graph, 2, strategy=["i"])
    with pytest.raises(KeyboardInterrupt):
        ed.run(plan, {"X": Lazy(ONES, interrupt)}, ThreadsEngine(workers=2), on_event=note)
    before = len(done)
    assert (run(ONES) == 2).all()
    assert len(done) == before


@pytest.fixture
def long(monkeypatch):
    """A plan that counts as long."""
    monkeypatch.setattr(walk, "_LONG", 0)
    return ed.plan(DOUBLE.graph, 2, strategy=["i"])


@on_the_main_thread
@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupt_waits_for_no_kernel(long, workers):
    free, all_at_work, told = Event(), Barrier(workers, timeout=PATIENCE), []

    def hold(_):
        if all_at_work.wait() == 0:
            signal.pthread_kill(main_thread().ident, signal.SIGINT)
        assert free.wait(PATIENCE)

    with pytest.raises(KeyboardInterrupt):
        ed.run(long, {"X": Lazy(ONES, hold)}, ThreadsEngine(workers), on_event=told.append)
    before = len(told)
    for _ in range(3):  # beside those that are still at work
        assert (ed.run(long, {"X": ONES}, ThreadsEngine(workers))["Z"] == 2).all()
    free.set()
    assert (ed.run(long, {"X": ONES}, ThreadsEngine(workers))["Z"] == 2).all()
    assert len(told) == before


@on_the_main_thread
def test_what_is_at_work_after_an_interrupt_keeps_its_arrays(long):
    free, read = Event(), Event()
    found = []

    def hold(_):
        signal.pthread_kill(main_thread().ident, signal.SIGINT)
        assert free.wait(PATIENCE)

    class Noting(Lazy):
        def __getitem__(self, where):
            tile = super().__getitem__(where)
            found.append(tile.sum())
            read.set()
            return tile

    with pytest.raises(KeyboardInterrupt):
        ed.run(long, {"X": Noting(np.ones(8, np.float32), hold)}, ThreadsEngine(1))
    gc.collect()
    free.set()
    assert read.wait(PATIENCE)
    assert found[0] == 4


@on_the_main_thread
def test_a_long_run_waits_for_no_thread_that_is_busy(long):
    free, busy = Event(), Barrier(3, timeout=PATIENCE)

    def hold(_):
        busy.wait()
        assert free.wait(PATIENCE)

    def hold_two():
        ed.run(long, {"X": Lazy(ONES, hold)}, ThreadsEngine(2))

    other = Thread(target=hold_two, daemon=True)
    other.start()
    busy.wait()
    assert (ed.run(long, {"X": ONES}, ThreadsEngine(2))["Z"] == 2).all()
    free.set()
    other.join(PATIENCE)
    assert not other.is_alive()


@on_the_main_thread
def test_a_long_run_that_fails_says_so(long):
    def fail(_):
        raise OSError("the disk is gone")

    with pytest.raises(ed.RunError, match="the disk is gone"):
        ed.run(long, {"X": Lazy(ONES, fail)}, ThreadsEngine(2))
    assert (ed.run(long, {"X": ONES}, ThreadsEngine(2))["Z"] == 2).all()


def test_a_failed_run_keeps_nothing():
    def fail(_):
        raise OSError("the disk is gone")

    def fail_with(array):
        plan = ed.plan(ed.parse("input X[i: 8], Y[i]\nZ[i] <- X[i] * Y[i]\noutput Z"), 2)
        try:
            ed.run(plan, {"X": array, "Y": Lazy(array, fail)}, ThreadsEngine(workers=2))
        except ed.RunError:
            return ref(array)

    gc.collect()
    gc.disable()
    try:
        array = fail_with(np.ones(8, np.float32))
        assert array() is None
    finally:
        gc.enable()
