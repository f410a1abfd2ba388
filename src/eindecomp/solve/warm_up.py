"""Compiles the hot loops before the clock starts.

On a machine's first call this takes about half a minute; the result is kept on disk if possible,
and later processes load it in about a second. Neither counts towards the time limit of a problem.
"""

from __future__ import annotations

from functools import cache
from time import monotonic

import numpy as np

from eindecomp.solve.problem.arrays import Ints
from eindecomp.solve.problem.core import core_of
from eindecomp.solve.problem.problem import Problem
from eindecomp.solve.reduce.reduce import reduce_core
from eindecomp.solve.search.close_gap import close_gap
from eindecomp.solve.search.incumbent import Incumbent

_PATIENCE = 600.0  # seconds that compiling may take at most


@cache
def warm_up_reductions() -> None:
    """Run every reduction once."""
    reduce_core(core_of(_small_problem(6)), np.inf)


@cache
def warm_up_search() -> None:
    """Run ascent, search and branch and bound once."""
    for size in (6, 14):
        core = core_of(_small_problem(size))
        incumbent = Incumbent(_ignore, _ignore, True, _same)
        close_gap(core, incumbent, monotonic() + _PATIENCE, seed=0)


def _small_problem(size: int) -> Problem:
    """A ring with chords and a usage limit that binds, so that every stage has work to do."""
    rng = np.random.default_rng(0)
    pairs = [(i, (i + step) % size) for step in (1, 2, 3) for i in range(size)]
    choices = 4
    usage = rng.integers(0, 9, (size, choices))
    starts = np.arange(size) // 2
    return Problem.of(
        list(rng.integers(0, 100, (size, choices))),
        pairs,
        list(rng.integers(0, 100, (len(pairs), choices, choices))),
        usage=list(usage),
        intervals=np.column_stack([starts, starts + 3]),
        limit=int(usage.min(axis=1).sum() + 6),
    )


def _ignore(_: object) -> None:
    return None


def _same(choice: Ints) -> Ints:
    return choice
