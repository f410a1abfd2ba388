"""Brief runs that are repeated: later ones give what the first gave, for any arrays."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import random_graph

import eindecomp as ed
from eindecomp.engines.threads import repeat
from eindecomp.engines.threads.engine import ThreadsEngine
from eindecomp.engines.threads.prepare import ALONE, prepared
from eindecomp.kernels.cpu.fork_join import HELPERS, data_word

PRODUCT = "input X[i: 8, j: 512], Y[k: 512, j]\nZ[i,k] <- sum X[i,j] * Y[k,j]\noutput Z"
TWO = """
input X[i: 4, j: 300], Y[k: 400, j]
Z[i,k] <- sum X[i,j] * Y[k,j]
A[i,k] <- abs(Z[i,k])
output A, Z
"""


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def is_repeated(plan: ed.Plan) -> bool:
    return prepared(plan, ALONE).repeated is not None


@pytest.mark.skipif(data_word() < 0, reason="arrays' data cannot be found")
def test_later_runs_are_repetitions_on_other_arrays():
    plan = ed.plan(ed.parse(PRODUCT), 2)
    run = ed.compile(plan)
    found = []
    for seed in range(6):
        x, y = numbers(seed, 8, 512), numbers(seed + 9, 512, 512)
        found.append((run({"X": x, "Y": y}), x @ y.T))
        assert is_repeated(plan) == (seed > 0)
    for result, wanted in found:  # each has an array of its own
        np.testing.assert_array_equal(result["Z"], wanted)
    first, last = found[0][0].stats, found[-1][0].stats
    assert (first.workers, first.tasks, first.peak_memory, first.bytes_moved) == (
        last.workers,
        last.tasks,
        last.peak_memory,
        last.bytes_moved,
    )


def test_several_vertices_and_outputs():
    run = ed.compile(ed.plan(ed.parse(TWO), 2))
    for seed in range(5):
        x, y = numbers(seed, 4, 300), numbers(seed + 9, 400, 300)
        result = run({"X": x, "Y": y})
        np.testing.assert_array_equal(result["Z"], x @ y.T)
        np.testing.assert_array_equal(result["A"], abs(x @ y.T))


def test_arrays_that_lie_otherwise(tmp_path: Path):
    plan = ed.plan(ed.parse(PRODUCT), 2)
    run = ed.compile(plan)
    x, y = numbers(0, 8, 512), numbers(1, 512, 512)
    np.save(tmp_path / "y.npy", y)
    mapped = np.load(tmp_path / "y.npy", mmap_mode="r")
    wide = np.zeros((512, 1024), np.float32)
    wide[:, 100:612] = y
    lies = [y, np.asfortranarray(y), wide[:, 100:612], mapped, np.asarray(mapped), y.astype("f2")]
    placed = run.place({"Y": y})["Y"]
    for _ in range(4):
        for other in (*lies, placed, y):
            np.testing.assert_array_equal(run({"X": x, "Y": other})["Z"], x @ y.T)


STEP = """
scalar at int32
input E[v: 9, a: 600], ids[b: 2] int32, W[o: 700, a], KL[b, r: 5, o]
X[b,a]      <- E[ids[b], a]
J[r: 5]     <- fill r
Y[b,o]      <- sum X[b,a] * W[o,a]
new_KL[b,r,o] <- where(J[r] == at, Y[b,o], KL[b,r,o])
S[b,r]      <- sum new_KL[b,r,o]
Z[b,p]      <- sum Y[b,o] * W[o,p]
R[b,a]      <- X[b,a] + Z[b,a]
output R, S, new_KL, J
tie KL <- new_KL
"""


@pytest.mark.skipif(data_word() < 0, reason="arrays' data cannot be found")
def test_scalars_fills_rows_and_tensors_of_the_run_before():
    graph = ed.parse(STEP)
    plan = ed.plan(graph, 2)
    run = ed.compile(plan)
    given = {"E": numbers(0, 9, 600), "W": numbers(1, 700, 600), "KL": numbers(2, 2, 5, 700)}
    wanted = given["KL"].copy()
    held = given["KL"]
    for at in range(5):
        ids = np.array([at, 8 - at], np.int32)
        values = {**given, "KL": held, "ids": ids, "at": at}
        result = run(values)
        expected = ed.evaluate(graph, {**values, "KL": wanted})
        for name, array in result.items():
            np.testing.assert_array_equal(array, expected[name])
        result["J"][:] = -1  # whoever has an output may change it
        wanted, held = expected["new_KL"], result.tensor("new_KL")
    assert is_repeated(plan)
    with pytest.raises(ed.EinDecompError, match="X"):
        run({**given, "ids": np.array([0, 9], np.int32), "at": 0})


@pytest.mark.skipif(data_word() < 0, reason="arrays' data cannot be found")
def test_runs_that_are_given_memory_are_repetitions_too_and_keep_one_step_of_it():
    graph = ed.parse(
        "input X[b: 2, i: 600], W[i, j: 600]\nY[b,j] <- sum X[b,i] * W[i,j]\n"
        "new_W[i,j] <- sum W[i,j] + X[b,i] * Y[b,j]\noutput Y, new_W\ntie W <- new_W"
    )
    plan, x = ed.plan(graph, 2), numbers(0, 2, 600) / 64
    program = ThreadsEngine().prepare(plan)
    start = program.place("W", numbers(1, 600, 600))
    kept = given_up = start
    for _ in range(8):
        alike = program.run({"X": x, "W": kept}, {})
        donated = program.run({"X": x, "W": given_up}, {}, donated=["W"])
        for name, array in alike.items():
            np.testing.assert_array_equal(array, donated.tensors[name].data.array)
        kept, given_up = alike.tensors["new_W"], donated.tensors["new_W"]
        assert program._spare.nbytes <= start.numpy().nbytes
    assert is_repeated(plan)
    assert program._ready is None  # nothing was made ready for threads


def test_a_product_that_is_added_to_what_was_filled():
    graph = ed.parse(
        "input X[i: 300, j: 200], W[j, k: 300]\nF[i: 300, k: 300] <- fill float32(i - k)\n"
        "P[i,k] <- sum X[i,j] * W[j,k]\nS[i,k] <- F[i,k] + P[i,k]\nA[i,k] <- abs(S[i,k])\noutput A"
    )
    run = ed.compile(ed.plan(graph, 2))
    for seed in range(5):
        values = {"X": numbers(seed, 300, 200), "W": numbers(seed + 9, 200, 300)}
        np.testing.assert_array_equal(run(values)["A"], ed.evaluate(graph, values)["A"])


@given(seed=st.integers(0, 2**32), devices=st.integers(1, 4))
def test_any_graph_again_and_again(seed, devices):
    graph = random_graph(seed, tree=False)
    rng = np.random.default_rng(seed)
    plan = ed.plan(graph, devices)
    given_first = {v.name: rng.uniform(-1, 1, v.shape).astype(v.dtype) for v in graph.inputs}
    given_then = {v.name: rng.uniform(-1, 1, v.shape).astype(v.dtype) for v in graph.inputs}
    run = ed.compile(plan)
    wanted = run(given_then)
    run(given_first)
    run(given_first)
    for name, array in run(given_then).items():
        np.testing.assert_array_equal(array, wanted[name])


def test_runs_beside_each_other():
    run = ed.compile(ed.plan(ed.parse(PRODUCT), 2))
    y = numbers(1, 512, 512)

    def check(seed: int) -> bool:
        x = numbers(seed, 8, 512)
        return all((run({"X": x, "Y": y})["Z"] == x @ y.T).all() for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(check, range(8)))


def test_while_helpers_are_busy_elsewhere():
    run = ed.compile(ed.plan(ed.parse(PRODUCT), 2))
    x, y = numbers(0, 8, 512), numbers(1, 512, 512)
    for _ in range(3):
        run({"X": x, "Y": y})
    with patch.object(HELPERS, "repeat", return_value=False) as tried:
        np.testing.assert_array_equal(run({"X": x, "Y": y})["Z"], x @ y.T)
    assert tried.called


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_in_a_forked_child():
    run = ed.compile(ed.plan(ed.parse(PRODUCT), 2))
    x, y = numbers(0, 8, 512), numbers(1, 512, 512)
    for _ in range(3):
        run({"X": x, "Y": y})
    process = os.fork()
    if not process:
        right = all((run({"X": x, "Y": y})["Z"] == x @ y.T).all() for _ in range(4))
        os._exit(0 if right else 1)
    assert os.waitpid(process, 0)[1] == 0


@pytest.mark.skipif(data_word() < 0, reason="arrays' data cannot be found")
def test_blas_is_held_for_products_that_python_calls_in_their_turn():
    launch = repeat._Finder._launch  # pyright: ignore[reportPrivateUsage]

    def none_for_the_product(self, call):
        return None if call.vertex == "Z" else launch(self, call)

    plan = ed.plan(ed.parse(TWO), 2)
    with patch.object(repeat._Finder, "_launch", none_for_the_product):  # pyright: ignore[reportPrivateUsage]
        run = ed.compile(plan)
        for seed in range(4):
            run({"X": numbers(seed, 4, 300), "Y": numbers(seed + 9, 400, 300)})
    again = prepared(plan, ALONE).repeated
    assert again is not None
    assert again.uses_blas
