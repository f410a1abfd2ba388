"""The clock of planning, which compiling stops; and who is told of that."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, process_time, sleep

import numpy as np
import pytest

import eindecomp
from eindecomp.solve import Problem, Progress
from eindecomp.solve.clock import (
    planning_time,
    stopped_clock,
    tell_compiling,
    watch_compilation,
)
from eindecomp.solve.run import Run

PROGRAM = """
import numpy as np
from eindecomp.solve.clock import watch_compilation
from eindecomp.solve.search.random_trees import random_below
told = []
with watch_compilation(told.append):
    random_below(np.ones(1, np.uint64), 10)
    random_below(np.ones(1, np.uint64), 10)
print(told, sum(random_below.stats.cache_hits.values()))
"""


def _run(cache: Path, program: str = PROGRAM) -> str:
    # In a new process: a loop is compiled or loaded only once in each.
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program],
        env=os.environ | {"XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.long
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


STOPPING = """
import numpy as np
from eindecomp.solve.clock import planning_time, watch_compilation
from eindecomp.solve.search.random_trees import random_below
told = []
with watch_compilation(lambda active: told.append(planning_time())):
    random_below(np.ones(1, np.uint64), 10)
print(len(told), len(set(told)), planning_time() > told[0])
"""


def test_the_clock_stands_still_while_a_loop_is_compiled(tmp_path: Path) -> None:
    assert _run(tmp_path, STOPPING) == "2 1 True"


def test_the_clock_goes_on_when_all_who_stopped_it_have_ended() -> None:
    with stopped_clock():
        at = planning_time()
        with stopped_clock():
            assert planning_time() == at
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(planning_time).result() == at
    assert planning_time() >= at


def test_planning_has_one_clock() -> None:
    package = Path(eindecomp.__file__).parent
    others = [
        path.relative_to(package).as_posix()
        for folder in ("solve", "planner")
        for path in (package / folder).rglob("*.py")
        if re.search(r"^(import time|from time import)", path.read_text(), re.MULTILINE)
    ]
    assert others == ["solve/clock.py"]


def test_time_that_others_use_does_not_count() -> None:
    """On a busy machine a search has as much of the processor as on a quiet one."""
    start, used = planning_time(), process_time()
    sleep(0.3)
    assert planning_time() - start <= process_time() - used + 0.01
    start, ended = planning_time(), monotonic() + 0.2
    while monotonic() < ended:
        pass
    assert planning_time() - start > 0.01
