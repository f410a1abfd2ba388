"""Forks beside runs: children run plans, or say why they cannot; nothing hangs."""

from __future__ import annotations

import os
import subprocess
import sys
from threading import Event, Thread

import numpy as np
import pytest
from lazy import Lazy

import eindecomp as ed
from eindecomp.engines.threads.engine import ThreadsEngine
from eindecomp.kernels.cpu.products import blas_libraries as blas
from eindecomp.kernels.cpu.products.blas_libraries import GATE, controller

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")

HEAD = """
import faulthandler, os, signal, sys
from threading import Event, Thread
import numpy as np
import eindecomp as ed
from eindecomp.kernels.cpu.products import blas_libraries

sys.path.insert(0, {folder!r})
from lazy import Lazy

graph = ed.parse("input X[i: 200, j: 200], Y[j, k: 200]\\nZ[i,k] <- sum X[i,j] * Y[j,k]\\noutput Z")
plan, x = ed.plan(graph, 2), np.ones((200, 200), np.float32)

def run(x=x, y=x):
    return ed.run(plan, {{"X": x, "Y": y}}, forking_engine)["Z"]

def fork(child):
    process = os.fork()
    if not process:
        faulthandler.dump_traceback_later(60, exit=True)
        try:
            print(child(), flush=True)
        finally:
            os._exit(0)
    os.waitpid(process, 0)

def is_right():
    return bool((run() == 200).all())

def refusal():
    try:
        return run()
    except ed.RunError as error:
        return error

from eindecomp.engines.threads.engine import ThreadsEngine
forking_engine = ThreadsEngine(workers=2)
"""

BESIDE = """
run()  # what is imported at first has locks of its own
over = Event()
def work():
    while not over.is_set():
        run()
thread = Thread(target=work)
thread.start()
for _ in range(10):
    fork(is_right)
over.set()
thread.join()
"""

WITHIN = """
blas_libraries.PATIENCE = 0
begun, free = Event(), Event()
def hold(_):
    begun.set()
    free.wait(60)
thread = Thread(target=run, args=(Lazy(x, hold),))
thread.start()
begun.wait(60)
fork(refusal)
free.set()
thread.join()
print(is_right())
fork(is_right)
"""

FROM_WITHIN = """
def read(_):
    fork(is_right)
run(Lazy(x, read))
print(is_right())
"""


def lines(program: str) -> list[str]:
    text = HEAD.format(folder=os.path.dirname(os.path.dirname(__file__))) + program
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-u", "-c", text], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_children_of_forks_beside_a_run_can_run():
    assert lines(BESIDE) == ["True"] * 10


def test_a_child_of_a_fork_within_a_call_refuses_to_run():
    [refused, *rest] = lines(WITHIN)
    assert "forked while its parent was within a kernel" in refused
    assert rest == ["True", "True"]


def test_a_fork_from_within_a_read():
    assert lines(FROM_WITHIN) == ["True"] * 3


def test_no_call_begins_while_a_fork_is_under_way():
    begun, over = Event(), []
    plan = ed.plan(ed.parse("input X[i: 8]\nZ[i] <- X[i] * 2\noutput Z"), 1)
    x = Lazy(np.ones(8, np.float32), lambda _: begun.set())
    thread = Thread(target=lambda: over.append(ed.run(plan, {"X": x}, ThreadsEngine(1))["Z"]))
    GATE._close()
    try:
        thread.start()
        assert not begun.wait(0.05)
    finally:
        GATE._open()
    thread.join(60)
    assert (over[0] == 2).all()


def test_blas_has_its_threads_back_where_no_run_survived():
    before = [pool["num_threads"] for pool in controller().info()]
    with blas.one_thread_each():
        other = Thread(target=lambda: blas._RUNNING.append(-1))
        other.start()
        other.join()
        child = os.fork()
        if not child:
            os._exit(0 if len(blas._RUNNING) == 1 else 1)
        assert os.waitpid(child, 0)[1] == 0
        blas._RUNNING.remove(-1)
    assert not blas._RUNNING
    assert [pool["num_threads"] for pool in controller().info()] == before
