"""What listeners hear of runs on engine `torch`, and that they can stop them."""

from __future__ import annotations

from collections import Counter

import pytest
from agreement import agree, arrays_for
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_step
from torch_ways import WAYS, every_way
from transformer import small_transformer

import eindecomp as ed
from eindecomp.engines.result import BytesMoved, RunStarted, TaskFinished, TaskStarted, TensorFreed
from eindecomp.show.progress import showing


def told(plan, engine, **options):
    events = []
    result = ed.run(plan, arrays_for(plan.graph), engine, on_event=events.append, **options)
    return events, result


def of(events, kind):
    return [event for event in events if isinstance(event, kind)]


def tasks(events):
    return Counter((e.vertex, e.kind, e.device) for e in of(events, TaskFinished))


def moved(events):
    found = Counter()
    for event in of(events, BytesMoved):
        found[event.vertex, event.kind] += event.count
    return found


@every_way
def test_events_tell_what_happens(way):
    plan = ed.plan(small_transformer(1), 4, strategy=["s"])
    events, result = told(plan, "torch", **way)
    assert events[0] == RunStarted(result.stats.tasks)
    done = of(events, TaskFinished)
    assert len(done) == result.stats.tasks
    begun = [(e.vertex, e.kind, e.device, e.start) for e in of(events, TaskStarted)]
    assert begun == [(e.vertex, e.kind, e.device, e.start) for e in done]
    assert all(0 <= e.start <= e.end <= result.stats.seconds for e in done)
    assert sum(e.count for e in of(events, BytesMoved)) == result.stats.bytes_moved == plan.cost
    freed = of(events, TensorFreed)
    assert {e.tensor for e in freed} <= {*plan.graph.vertices}
    assert all(e.count > 0 for e in freed)


@settings(max_examples=settings.default.max_examples // 2)
@given(
    seed=st.integers(0, 2**32),
    devices=st.sampled_from([2, 3, 4]),
    way=st.sampled_from([*WAYS.values()]),
    inputs=st.sampled_from(["free", "sharded"]),
)
def test_they_are_those_of_devices_that_share_nothing(seed, devices, way, inputs):
    graph, tie = random_step(seed)
    plan = ed.plan(graph, devices, inputs=inputs, tie=tie, rewrite=False)
    found, wanted = told(plan, "torch", **way), told(plan, "apart")
    assert tasks(found[0]) == tasks(wanted[0])
    assert moved(found[0]) == moved(wanted[0])
    assert found[1].stats.bytes_by_vertex == wanted[1].stats.bytes_by_vertex
    agree(found[1], wanted[1], 1e-4)


@pytest.mark.one_in(3)
@every_way
@pytest.mark.parametrize("kind", [RunStarted, TaskStarted, TaskFinished, BytesMoved, TensorFreed])
def test_what_a_listener_raises_cancels_the_run(kind, way):
    plan = ed.plan(small_transformer(1), 4, strategy=["s"])
    arrays = arrays_for(plan.graph)

    def cancel(event):
        if isinstance(event, kind):
            raise StopIteration("enough")

    with ed.compile(plan, "torch", **way) as executable:
        with pytest.raises(StopIteration, match="enough"):
            executable(arrays, on_event=cancel)
        agree(executable(arrays), ed.evaluate(plan.graph, arrays), 1e-4)


@every_way
def test_a_listener_may_run_the_same_unless_that_is_in_its_memory(way):
    plan = ed.plan(ed.parse("input X[i: 8]\nZ[i] <- X[i] + 1\noutput Z"), 2)
    arrays = arrays_for(plan.graph)
    found = []
    with ed.compile(plan, "torch", **way) as executable:

        def listen(event):
            if isinstance(event, TaskStarted) and not found:
                found.append(None)
                found.append(executable(arrays))

        if "gpu_memory" in way:
            with pytest.raises(ed.RunError, match="a listener cannot run the paged executable"):
                executable(arrays, on_event=listen)
        else:
            found.append(executable(arrays, on_event=listen))
        for result in (*found[1:], executable(arrays)):
            agree(result, ed.evaluate(plan.graph, arrays), 1e-6)


@every_way
def test_progress_reaches_its_end(way, monkeypatch):
    monkeypatch.setattr("eindecomp.show.progress._PATIENCE", 0)
    monkeypatch.setattr("eindecomp.show.progress._PAUSE", 0)
    plan = ed.plan(small_transformer(1), 2)
    shown = []

    class Shown:
        def show(self, _words, done=None, total=None):
            shown.append((done, total))

        def close(self):
            shown.append("closed")

    monkeypatch.setattr("eindecomp.show.progress._display", Shown)
    with showing(True) as listen:
        stats = ed.run(plan, arrays_for(plan.graph), "torch", on_event=listen, **way).stats
    assert shown == [*((n, stats.tasks) for n in range(1, stats.tasks + 1)), "closed"]
