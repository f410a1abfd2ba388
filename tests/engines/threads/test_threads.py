"""The default engine: results equal the reference, bytes equal the plan, failures leave no mess."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from weakref import ref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import random_graph
from transformer import small_transformer

import eindecomp as ed
from eindecomp.engines.result import KernelCompiled, TaskFinished
from eindecomp.engines.threads.engine import ThreadsEngine

SEEDS = st.integers(0, 2**32)
DEVICES = st.integers(1, 16)
MATMUL = "input X[i: 4, j: 6], Y[j, k: 4]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"


def arrays_for(graph, seed=0):
    rng = np.random.default_rng(seed)
    return {v.name: rng.uniform(-1, 1, v.shape).astype(v.dtype) for v in graph.inputs}


def close(found, wanted):
    for name, expected in wanted.items():
        left, right = found[name], expected
        assert left.shape == right.shape
        assert left.dtype == right.dtype
        rough = 2e-2 if right.dtype.itemsize == 2 else 2e-5
        left, right = (x.astype(np.float64) for x in (left, right))
        scale = max(np.abs(right[np.isfinite(right)]).max(initial=0), 1e-6)
        np.testing.assert_allclose(left, right, rtol=0, atol=rough * scale)


PLANS = st.sampled_from([{}, {"inputs": "sharded"}, {"strategy": "sqrt"}])


@given(seed=SEEDS, devices=DEVICES, asked=PLANS)
def test_any_plan_gives_what_the_reference_gives(seed, devices, asked):
    graph = random_graph(seed, tree=False)
    plan = ed.plan(graph, devices, **asked)
    arrays = arrays_for(graph, seed)
    found, again = (ed.run(plan, arrays, ThreadsEngine(workers=4)) for _ in range(2))
    assert 1 <= found.stats.workers <= min(4, devices)  # fewer where no vertex has so many tiles
    close(found, ed.evaluate(graph, arrays))
    assert found.stats.bytes_moved == plan.cost
    assert sum(found.stats.bytes_by_vertex.values()) == plan.cost
    for name in found:
        assert found[name].tobytes() == again[name].tobytes()
    close(ed.run(plan, arrays), ed.evaluate(graph, arrays))


def test_nothing_is_kept_of_a_plan_that_is_gone():
    graph = ed.parse(MATMUL)
    plan = ed.plan(graph, 2)
    ed.run(plan, arrays_for(graph))
    program = ref(ThreadsEngine().prepare(plan).ready)
    assert ThreadsEngine().prepare(plan).ready is program()
    gone = ref(plan)
    del plan
    gc.collect()
    assert gone() is None
    assert program() is None


@pytest.mark.long("8")
@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_a_transformer_runs(devices):
    graph = small_transformer(1)
    arrays = arrays_for(graph)
    found = ed.run(ed.plan(graph, devices), arrays)
    close(found, ed.evaluate(graph, arrays))


@pytest.mark.parametrize("strategy", [["i"], ["j"], ["k"], "sqrt"])
def test_strategies_run(strategy):
    graph = ed.parse(MATMUL)
    arrays = arrays_for(graph)
    plan = ed.plan(graph, 4, strategy=strategy)
    close(ed.run(plan, arrays), ed.evaluate(graph, arrays))


def test_a_failing_kernel_names_its_vertex_and_tile_and_leaves_the_pool_usable():
    text = "input E[v: 4, a: 8], ids[b: 6] int64\nZ[b,a] <- E[ids[b], a]\noutput Z"
    graph = ed.parse(text)
    plan = ed.plan(graph, 2, strategy=["b"])
    table = np.ones((4, 8), np.float32)
    before = threading.active_count()
    with pytest.raises(ed.RunError, match=r"Z\[b,a\], tile \[3:6, 0:8\] on device 1: index 9 is"):
        ed.run(plan, {"E": table, "ids": np.array([0, 1, 2, 3, 9, 0])})
    found = ed.run(plan, {"E": table, "ids": np.zeros(6, np.int64)})
    assert (found["Z"] == 1).all()
    assert threading.active_count() <= before + 1


def test_an_interrupt_stops_the_run_and_nothing_hangs():
    plan = ed.plan(small_transformer(1), 4)
    arrays = arrays_for(plan.graph)
    seen = []

    def interrupt(event):
        if isinstance(event, TaskFinished):
            seen.append(event)
            if len(seen) == 5:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ed.run(plan, arrays, on_event=interrupt)
    assert len(ed.run(plan, arrays)) == 1


def test_inputs_stored_on_disk_are_read_by_tiles(tmp_path):
    class Stored:
        """Like a zarr array."""

        def __init__(self, array):
            self.array, self.shape, self.dtype, self.chunks = (
                array,
                array.shape,
                array.dtype,
                (2, 2),
            )
            self.seen = []

        def __getitem__(self, where):
            self.seen.append(where)
            return self.array[where]

    graph = ed.parse(MATMUL)
    arrays = arrays_for(graph)
    stored = Stored(arrays["X"])
    np.save(tmp_path / "y.npy", arrays["Y"])
    mapped = np.load(tmp_path / "y.npy", mmap_mode="r")
    found = ed.run(ed.plan(graph, 2, strategy=["i"]), {"X": stored, "Y": mapped})
    close(found, ed.evaluate(graph, arrays))
    assert stored.seen == [(slice(0, 2), slice(0, 6)), (slice(2, 4), slice(0, 6))]


def test_what_cannot_fit_is_refused_before_it_runs():
    size = 1 << 20
    text = f"input X[i: {size}], Y[j: {size}]\nZ[i,j] <- X[i] * Y[j]\noutput Z"
    plan = ed.plan(ed.parse(text), 2)
    one = np.ones(size, np.float32)
    with pytest.raises(ed.InputError, match=r"needs .* when it comes to Z\[i,j\]; .* available"):
        ed.run(plan, {"X": one, "Y": one})


def test_memory_is_dropped_after_the_last_use():
    lines = ["input X0[i: 1000, j: 1000]"]
    lines += [f"X{k + 1}[j,i] <- X{k}[i,j] + {k}" for k in range(6)]
    graph = ed.parse("\n".join([*lines, "output X6"]))
    plan = ed.plan(graph, 2, rewrite=False)
    found = ed.run(plan, arrays_for(graph))
    assert found.stats.peak_memory <= 4 * 4_000_000  # one given, one read, one written, one ahead


def test_a_kernel_is_compiled_once_and_that_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = "input X[i: 8]\nZ[i] <- cos(X[i]) * 0.123456789\noutput Z"
    plan = ed.plan(ed.parse(text), 2)
    heard = []
    for _ in range(2):
        ed.run(plan, {"X": np.ones(8, np.float32)}, on_event=heard.append)
    assert sum(isinstance(event, KernelCompiled) for event in heard) == 1


def test_bad_arguments():
    graph = ed.parse(MATMUL)
    plan = ed.plan(graph, 2)
    arrays = arrays_for(graph)
    with pytest.raises(ed.InputError, match="there is no engine 'thread'; did you mean 'threads'"):
        ed.run(plan, arrays, "thread")
    with pytest.raises(ed.InputError, match="run takes a Plan"):
        ed.run(graph, arrays)
    for engine in (None, ThreadsEngine):
        with pytest.raises(ed.InputError, match="engine is a name or an engine, not"):
            ed.run(plan, arrays, engine)
    with pytest.raises(ed.InputError, match="missing inputs: Y"):
        ed.run(plan, {"X": arrays["X"]})
    for workers in (0, -1, 1.5, "2", True):
        with pytest.raises(ed.InputError, match="workers must be 1 or more"):
            ThreadsEngine(workers=workers)
    assert ThreadsEngine(workers=np.int64(3)).workers == 3


def test_next_to_nothing_is_one_call_however_it_is_cut():
    graph = ed.parse("""
    input X[i: 160, j: 160], Y[j, k: 160]
    S[i]   <- sum X[i,j]
    T[]    <- max S[i] * 2
    Z[i,k] <- sum X[i,j] * Y[j,k]
    U[i,k] <- Z[i,k] - T[]
    output U, S
    """)
    plan = ed.plan(graph, 2, rewrite=False, strategy=["j", "i"])
    done: Counter[str] = Counter()

    def hear(event):
        if isinstance(event, TaskFinished):
            done[event.vertex] += 1

    arrays = arrays_for(graph)
    result = ed.run(plan, arrays, ThreadsEngine(workers=2), on_event=hear)
    close(result, ed.evaluate(graph, arrays))
    assert done["T"] == done["Z"] == 2
    prepared = ThreadsEngine(workers=2).prepare(plan)
    calls = Counter(call.vertex for call in prepared.ready.schedule.calls)
    assert calls["T"] == 1
    assert calls["Z"] == 2
    assert result.stats.bytes_moved == plan.cost
