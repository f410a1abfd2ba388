import os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, get_ident

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.kernels.cores import cores
from eindecomp.kernels.cpu.compiling.compile import compile_source
from eindecomp.kernels.cpu.fork_join import HELPERS, CompiledJob, Helpers
from eindecomp.kernels.library import library_of

_COUNT = """
def kernel(at):
    total = 0
    for k in range(load_int64(at, 0)):
        total += k
    store_int64(at, 1, total)
    store_int64(at, 2, load_int64(at, 2) + 1)
"""


class Counts:
    """Jobs that each add numbers up, and count how often they were done."""

    def __init__(self, jobs: int, size: int = 100) -> None:
        self.words = np.zeros((jobs, 8), np.int64)
        self.words[:, 0] = size + np.arange(jobs)
        function = compile_source(_COUNT, "a count")
        start = self.words.__array_interface__["data"][0]
        self.jobs = [CompiledJob(function, start + 64 * k) for k in range(jobs)]

    def check(self, times: int) -> None:
        size, total, done, *_ = self.words.T
        assert (total == size * (size - 1) // 2).all()
        assert (done == times).all()


@pytest.mark.parametrize("jobs", [1, 2, 3, 16, 256, 300])
def test_every_job_is_done_once(jobs: int) -> None:
    counts = Counts(jobs)
    for _ in range(20):
        HELPERS.run(counts.jobs)
    counts.check(20)


def test_thousands_of_times() -> None:
    counts = Counts(2 * cores())
    for _ in range(5000):
        HELPERS.run(counts.jobs)
    counts.check(5000)


def test_from_several_threads_at_once() -> None:
    start = Barrier(4)

    def many(_: int) -> None:
        counts = Counts(4)
        start.wait()
        for _ in range(1000):
            HELPERS.run(counts.jobs)
        counts.check(1000)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(many, range(4)))


def test_helpers_that_sleep_are_woken_or_done_without() -> None:
    helpers = Helpers()
    for size in (10, 10**6):
        counts = Counts(4, size)
        for times in range(1, 6):
            helpers.rouse()
            helpers.run(counts.jobs)
            counts.check(times)


def test_python_functions_are_jobs_too() -> None:
    counts, seen = Counts(3), list[int]()
    HELPERS.run([*counts.jobs, *[lambda: seen.append(get_ident())] * 5])
    counts.check(1)
    assert len(seen) == 5


def test_what_a_job_raises_is_raised_after_all_are_done() -> None:
    counts = Counts(3)

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        HELPERS.run([fail, *counts.jobs])
    if cores() > 1:
        counts.check(1)
    HELPERS.run(counts.jobs)


def test_jobs_may_have_jobs() -> None:
    inner = [Counts(4) for _ in range(4)]
    HELPERS.run([lambda own=own: HELPERS.run(own.jobs) for own in inner])
    for own in inner:
        own.check(1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_has_helpers_of_its_own() -> None:
    counts = Counts(4)
    HELPERS.run(counts.jobs)
    child = os.fork()
    if not child:
        try:
            for _ in range(100):
                HELPERS.run(counts.jobs)
            counts.check(101)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    HELPERS.run(counts.jobs)
    counts.check(2)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex64"])
def test_tiles_at_once_are_those_one_by_one(dtype: str) -> None:
    text = f"input X[i: 48, j: 64] {dtype}, Y[j, k: 96] {dtype}"
    graph = ed.parse(f"{text}\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z")
    kernel = library_of("numpy").kernel(graph, graph["Z"])
    rng = np.random.default_rng(0)
    of = graph["Z"].dtype
    x, y = (rng.standard_normal(shape).astype(of) for shape in ((48, 64), (64, 96)))
    cuts = [slice(low, low + 24) for low in range(0, 96, 24)]
    one, all_at_once = np.ones((2, 48, 96), of)
    for cut in cuts:
        kernel.whole([x, y[:, cut]], one[:, cut])
    kernel.wholes([([x, y[:, cut]], all_at_once[:, cut]) for cut in cuts])
    assert (one == all_at_once).all()
