"""Schedules: what a plan's calls are, which arrays they use, and for how long."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import random_graph

import eindecomp as ed
from eindecomp.engines.result import TensorFreed
from eindecomp.engines.threads.engine import ThreadsEngine


def test_a_fill_that_only_lends_its_sizes_is_not_made():
    graph = ed.Graph()
    graph.input("X", {"i": 4, "j": 3})
    graph.fill({"i": 4}, 1, name="F")
    graph.output(graph.einsum("ij,i->ij", "X", "F", join="x*2", name="Z"))
    plan = ed.plan(graph, 2, rewrite=False)
    assert {call.kind for call in ThreadsEngine().prepare(plan).ready.schedule.calls} == {"compute"}
    x = np.ones((4, 3), np.float32)
    assert (ed.run(plan, {"X": x})["Z"] == 2).all()


@given(seed=st.integers(0, 2**32), devices=st.integers(1, 16))
def test_arrays_live_from_the_first_use_to_the_last(seed, devices):
    graph = random_graph(seed, tree=False)
    plan = ed.plan(graph, devices)
    rng = np.random.default_rng(seed)
    arrays = {v.name: rng.uniform(-1, 1, v.shape).astype(v.dtype) for v in graph.inputs}
    ready = ThreadsEngine(workers=1).prepare(plan).ready
    given = sum(array.nbytes for array in arrays.values())
    outputs = {vertex.name for vertex in plan.graph.outputs}
    made = Counter(key if isinstance(key, str) else key[0] for key in ready.schedule.shapes)
    for workers in (1, 4):
        events = []
        found = ed.run(plan, arrays, ThreadsEngine(workers), on_event=events.append)
        freed = Counter(event.tensor for event in events if isinstance(event, TensorFreed))
        assert freed == made - Counter(outputs)
        if workers == 1:
            assert found.stats.peak_memory <= given + ready.space.bytes
