"""Devices that run behind the host: the watch sees what they do when they do it."""

from __future__ import annotations

from types import SimpleNamespace

import eindecomp as ed
from eindecomp.engines.spmd.watched_steps import Pace
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.steps import Load

TEXT = "input X[i: 4, j: 4], Y[j, k: 4]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"


def test_the_watch_follows_a_device_that_runs_behind():
    program = program_of(ed.plan(ed.parse(TEXT), 2, strategy=["j"], rewrite=False))
    watch = SimpleNamespace(step=0, waits=False)
    done, seen = [], []

    class Mark:
        """A place in the queue, which notes what the watch says while it is waited for."""

        def synchronize(self):
            seen.append((watch.step, watch.waits))

    pace = Pace(watch, Mark)
    steps = range(len(program.steps))
    calls = [(n, lambda _, n=n: done.append(n), n % 2 == 1) for n in steps]
    loads = {n for n in steps if isinstance(program.steps[n], Load)}
    for n, do, waits in pace.paced(calls, program):
        watch.step, watch.waits = n, waits
        before = len(seen)
        do(None)
        # The host waits for the device where it copies to it, and nowhere else.
        assert n in loads or len(seen) == before
        assert (watch.step, watch.waits) == (n, waits)
    pace.follow()
    assert done == [*steps]
    # In order, the device computes up to each step that waits, and then waits in it.
    assert seen == [(n, waits) for n in steps if n % 2 for waits in (False, True)]
    seen.clear()
    pace.follow()
    assert not seen
