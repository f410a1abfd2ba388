"""Memory: what a run needs is known before it runs, and so is what can be had."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from lazy import Lazy

import eindecomp as ed
from eindecomp.engines.resources import available
from eindecomp.engines.threads.engine import ThreadsEngine

MEAN = """
monoid average(s, n; t, m) = (s + t, n + m) identity (0, 0) finish s / n
input X[i: 100000, j: 4]
Z[i] <- average (X[i,j], 1)
output Z
"""


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


FREE = {"proc/meminfo": "MemTotal: 9000 kB\nMemAvailable: 8000 kB\n"}
V2 = "sys/fs/cgroup"
V1 = "sys/fs/cgroup/memory"


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, None),
        (FREE, 8_192_000),
        (FREE | {"proc/self/cgroup": "0::/\n"}, 8_192_000),
        (
            FREE
            | {
                "proc/self/cgroup": "0::/job\n",
                f"{V2}/job/memory.max": "5000\n",
                f"{V2}/job/memory.current": "3000\n",
                f"{V2}/job/memory.stat": "anon 2500\ninactive_file 400\nfile 500\n",
            },
            2400,
        ),
        (
            FREE
            | {
                "proc/self/cgroup": "0::/outer/job\n",
                f"{V2}/outer/job/memory.max": "max\n",
                f"{V2}/outer/job/memory.current": "3000\n",
                f"{V2}/outer/memory.max": "4000\n",
                f"{V2}/outer/memory.current": "3500\n",
                f"{V2}/outer/memory.stat": "inactive_file 0\n",
            },
            500,
        ),
        (
            FREE
            | {
                "proc/self/cgroup": "5:cpu:/a\n4:memory:/unseen/b\n0::/\n",
                f"{V1}/memory.limit_in_bytes": "7000\n",
                f"{V1}/memory.usage_in_bytes": "8000\n",
                f"{V1}/memory.stat": "inactive_file 1\ntotal_inactive_file 500\n",
            },
            0,
        ),
    ],
)
def test_control_groups_limit_what_is_available(files, wanted, tmp_path):
    write(tmp_path, files)
    assert available(tmp_path) == wanted


def test_of_stored_inputs_the_tiles_that_are_read_count(tmp_path):
    graph = ed.parse("input X[i: 8, j: 64]\nZ[i] <- sum X[i,j]\noutput Z")
    plan = ed.plan(graph, 4, strategy=["i"])
    x = np.ones((8, 64), np.float32)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for workers in (1, 2):
        for given in (Lazy(x, lambda _: None), mapped):
            stats = ed.run(plan, {"X": given}, ThreadsEngine(workers)).stats
            assert stats.peak_memory == workers * 2 * 64 * 4 + 8 * 4
    assert ed.run(plan, {"X": x}).stats.peak_memory == x.nbytes + 8 * 4


def test_an_input_larger_than_memory_is_refused_if_its_tiles_do_not_fit():
    class Huge:
        shape, dtype, chunks = (1 << 24, 1 << 24), np.dtype("float32"), (1, 1)

        def __getitem__(self, where):
            raise AssertionError("it was read")

    graph = ed.parse(f"input X[i: {1 << 24}, j: {1 << 24}]\nZ[i] <- sum X[i,j]\noutput Z")
    with pytest.raises(ed.InputError, match=r"needs .*B for tiles that it loads"):
        ed.run(ed.plan(graph, 2), {"X": Huge()})


def test_what_is_allocated_is_what_is_counted():
    plan = ed.plan(ed.parse(MEAN), 4, strategy=["j"], rewrite=False)
    x = np.arange(400_000, dtype=np.float32).reshape(100_000, 4)
    engine = ThreadsEngine(workers=1)
    ed.run(plan, {"X": x}, engine)
    tracemalloc.start()
    found = ed.run(plan, {"X": x}, engine)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.allclose(found["Z"], x.mean(axis=1))
    assert peak <= found.stats.peak_memory - x.nbytes + 50_000


def test_an_input_that_is_an_output_too_is_read():
    graph = ed.parse("input X[i: 4]\nZ[i] <- X[i] * 2\noutput X, Z")
    found = ed.run(ed.plan(graph, 2), {"X": Lazy(np.ones(4, np.float32), lambda _: None)})
    assert (found["X"] == 1).all()
    assert (found["Z"] == 2).all()
