"""Events: what they tell, when, and to whom; and that listeners can do as they like."""

from __future__ import annotations

from collections import Counter
from itertools import count, pairwise
from threading import Lock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lazy import Lazy
from random_graphs import random_graph
from transformer import small_transformer

import eindecomp as ed
from eindecomp.engines.result import BytesMoved, KernelCompiled, TaskFinished, TaskStarted
from eindecomp.engines.threads.engine import ThreadsEngine
from pending_plans import CASES

FOUR = ThreadsEngine(workers=4)
ONES = np.ones(8, np.float32)
FRESH = count(1)


def arrays_for(graph):
    rng = np.random.default_rng(0)
    return {v.name: rng.uniform(-1, 1, v.shape).astype(v.dtype) for v in graph.inputs}


def new_kernel():
    """A plan for which something is compiled that never was before."""
    text = f"input X[i: 8]\nZ[i] <- cos(X[i]) * 0.12345{next(FRESH)}\noutput Z"
    return ed.plan(ed.parse(text), 4, strategy=["i"])


@pytest.fixture
def _empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_events_tell_what_happens():
    plan = ed.plan(small_transformer(1), 4, strategy=["s"])
    events = []
    result = ed.run(plan, arrays_for(plan.graph), FOUR, on_event=events.append)
    kinds = [type(event).__name__ for event in events]
    assert kinds[0] == "RunStarted"
    assert "TensorFreed" in kinds
    done = [event for event in events if isinstance(event, TaskFinished)]
    assert len(done) == result.stats.tasks == kinds.count("TaskStarted")
    assert all(0 <= event.start <= event.end <= result.stats.seconds for event in done)
    for worker in range(4):
        own = [e for e in events if getattr(e, "worker", None) == worker]
        own = [e for e in own if not isinstance(e, KernelCompiled)]
        begun = [(e.vertex, e.device, e.start) for e in own if isinstance(e, TaskStarted)]
        ended = [e for e in own if isinstance(e, TaskFinished)]
        assert begun == [(e.vertex, e.device, e.start) for e in ended]
        # Tiles that are computed as one begin and end together.
        assert all(a.end <= b.start or a.start == b.start for a, b in pairwise(ended))
    moved = [event for event in events if isinstance(event, BytesMoved)]
    assert sum(event.count for event in moved) == result.stats.bytes_moved == plan.cost


def test_bytes_move_when_the_vertex_they_are_for_starts():
    plan = ed.plan(small_transformer(1), 4, strategy=["s"])
    events = []
    ed.run(plan, arrays_for(plan.graph), ThreadsEngine(workers=1), on_event=events.append)
    for moved, begun in pairwise(e for e in events if isinstance(e, BytesMoved | TaskStarted)):
        if isinstance(moved, BytesMoved):
            assert (moved.vertex, moved.time) == (
                begun.vertex,
                begun.start if isinstance(begun, TaskStarted) else begun.time,
            )


def check_moves(plan):
    moved = Counter()

    def listen(event):
        if isinstance(event, BytesMoved):
            moved[event.vertex] += event.count

    found = ed.run(plan, arrays_for(plan.graph), on_event=listen)
    assert moved == Counter(found.stats.bytes_by_vertex)


@pytest.mark.parametrize("case", CASES)
def test_all_moves_are_told_where_results_stay_in_parts(case):
    check_moves(CASES[case]({"a": 2, "b": 2}))


@given(
    seed=st.integers(0, 2**32),
    devices=st.sampled_from([2, 3, 4]),
    inputs=st.sampled_from(["free", "sharded"]),
)
def test_all_moves_are_told(seed, devices, inputs):
    check_moves(ed.plan(random_graph(seed, tree=False), devices, inputs=inputs, rewrite=False))


def test_one_event_is_told_at_a_time():
    alone = Lock()

    def listen(_):
        assert alone.acquire(blocking=False)
        total = sum(range(2000))
        alone.release()
        assert total

    plan = ed.plan(small_transformer(1), 4)
    assert ed.run(plan, arrays_for(plan.graph), FOUR, on_event=listen)


@pytest.mark.usefixtures("_empty_cache")
def test_a_listener_may_compile():
    plan, nested = new_kernel(), []

    def listen(event):
        if isinstance(event, KernelCompiled):
            nested.append(ed.run(new_kernel(), {"X": ONES}, FOUR))

    ed.run(plan, {"X": ONES}, FOUR, on_event=listen)
    assert len(nested) == 1


@pytest.mark.usefixtures("_empty_cache")
def test_a_run_hears_of_its_own_compilations_alone():
    heard = []
    array = Lazy(ONES, lambda _: ed.run(new_kernel(), {"X": ONES}))
    plan = new_kernel()
    ed.run(plan, {"X": array}, on_event=heard.append)
    [compiled] = [event for event in heard if isinstance(event, KernelCompiled)]
    [task] = [e for e in heard if isinstance(e, TaskFinished) and e.start < compiled.start < e.end]
    assert (task.worker, task.device) == (compiled.worker, compiled.device)
    assert compiled.start < compiled.end <= task.end


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.usefixtures("_empty_cache")
@pytest.mark.parametrize("kind", ["RunStarted", "TaskStarted", "KernelCompiled", "TaskFinished"])
def test_what_a_listener_raises_cancels_the_run(kind, workers):
    plan = new_kernel()

    def cancel(event):
        if type(event).__name__ == kind:
            raise StopIteration("enough")

    with pytest.raises(StopIteration, match="enough"):
        ed.run(plan, {"X": ONES}, ThreadsEngine(workers), on_event=cancel)
