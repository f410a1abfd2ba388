"""Every compiled function of the package is kept by our cache, and works without one."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from numba.core.caching import NullCache
from numba.core.dispatcher import Dispatcher

import eindecomp
from eindecomp.solve.compiled import StoredLoop

PROGRAM = """
import numpy as np
from eindecomp.kernels import cache
from eindecomp.solve.search.random_trees import random_below as drawn
state = np.array([7], np.uint64)
drawn_number, folder = drawn(state, 10), cache.cache_folder()
kept = 0 if folder is None else len([*folder.iterdir()])
print(drawn_number, sum(drawn.stats.cache_hits.values()), kept)
"""


def run(**environment: str) -> str:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", PROGRAM],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.long
def test_functions_are_compiled_where_nothing_can_be_written() -> None:
    for home in ("/dev/null", "/proc/1"):
        assert run(HOME=home, XDG_CACHE_HOME="") == "3 0 0"


@pytest.mark.long
def test_functions_are_loaded_by_the_next_process(tmp_path: Path) -> None:
    assert run(XDG_CACHE_HOME=str(tmp_path)) == "3 0 1"
    assert run(XDG_CACHE_HOME=str(tmp_path)) == "3 1 1"


def test_no_function_relies_on_a_cache_of_numba() -> None:
    """It raises "no locator available" where it finds no folder that it can write to."""
    ours = 0
    for module in pkgutil.walk_packages(eindecomp.__path__, "eindecomp."):
        if module.name.endswith("__main__"):
            continue
        for value in vars(import_module(module.name)).values():
            if isinstance(value, Dispatcher):
                assert isinstance(value._cache, StoredLoop | NullCache)
                ours += isinstance(value._cache, StoredLoop)
    assert ours > 50
