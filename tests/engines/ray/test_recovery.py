"""Workers that are killed in the midst of a run: the result is the same to the last bit."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from agreement import arrays_for
from processes import below

import eindecomp as ed
from eindecomp.engines.result import TaskFinished

STEPS = 20
TEXT = "input X0[i: 320, j: 320], Y[j, k: 320]\n" + "".join(
    f"X{n + 1}[i,k] <- max abs(X{n}[i,j] - Y[j,k])\n" for n in range(STEPS)
)
GRAPH = ed.parse(f"{TEXT}output X{STEPS}")


def kill_one():
    """Kill a worker of this process that is computing something; whether there was one."""
    for pid, words in below().items():
        if words.startswith("ray::run_task"):
            os.kill(pid, signal.SIGKILL)
            return True
    return False


@pytest.mark.long
def test_killed_workers(engine, monkeypatch):
    monkeypatch.setattr(engine, "task_seconds", 0)
    plan = ed.plan(GRAPH, 2, strategy=["j"])
    arrays = arrays_for(GRAPH)
    wanted = ed.run(plan, arrays, "apart")
    killed = []

    def kill(event):
        # Tasks are heard of by the dozen: at the first most are yet to come.
        if isinstance(event, TaskFinished) and len(killed) < 2 and kill_one():
            killed.append(event)

    with ed.compile(plan, engine) as executable:
        executable(arrays)  # so that workers have compiled and loaded what they need
        found = executable(arrays, on_event=kill)
    np.testing.assert_array_equal(found[f"X{STEPS}"], wanted[f"X{STEPS}"])
    assert found.stats.bytes_moved == plan.cost
    assert found.stats.recovered
    assert all(" on device " in line and ": attempt " in line for line in found.stats.recovered)
    assert killed
