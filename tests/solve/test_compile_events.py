"""Compilation is announced, to a listener and among the events of `minimize`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from eindecomp.solve import Problem, Progress
from eindecomp.solve.compile_events import tell_compiling, watch_compilation
from eindecomp.solve.run import Run

PROGRAM = """
import numpy as np
from eindecomp.solve.compile_events import watch_compilation
from eindecomp.solve.search.random_numbers import random_below
told = []
with watch_compilation(told.append):
    random_below(np.ones(1, np.uint64), 10)
    random_below(np.ones(1, np.uint64), 10)
print(told, sum(random_below.stats.cache_hits.values()))
"""


def _run(cache: Path) -> str:
    # In a new process: a loop is compiled or loaded only once in each.
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_loop_is_announced_if_compiled_and_not_if_loaded(tmp_path: Path) -> None:
    assert _run(tmp_path) == "[True, False] 0"
    assert _run(tmp_path) == "[] 1"


def test_an_inner_watch_replaces_an_outer_one() -> None:
    outer: list[bool] = []
    inner: list[bool] = []
    tell_compiling(True)
    with watch_compilation(outer.append):
        with watch_compilation(inner.append):
            tell_compiling(True)
        tell_compiling(False)
    assert (outer, inner) == ([False], [True])


def test_a_run_reports_the_outermost_compilation() -> None:
    events: list[Progress] = []
    run = Run(Problem.of([[0]]), 0.0, np.inf, events.append)
    run.enter("split")
    for active in (True, True, False, False):
        run.set_compiling(active)
    assert [event.stage for event in events] == ["split", "compile", "split"]
