"""The toy engine of docs/write-an-engine.md: it is short, and gives what every engine must."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from agreement import agree, arrays_for
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import random_graph
from test_ops import OPS, SIZES, parse

import eindecomp as ed
from eindecomp.engines.result import BytesMoved, TaskFinished
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.memory import peak_on
from pending_plans import CASES
from strategies import graphs

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples" / "toy_engine.py"
GUIDE = ROOT / "docs" / "write-an-engine.md"


def _load():
    spec = importlib.util.spec_from_file_location("toy_engine", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ToyEngine()


TOY = _load()


def test_the_guide_shows_the_file():
    text = FILE.read_text()
    assert len(text.splitlines()) < 80
    assert f"```python\n{text}```" in GUIDE.read_text()


@pytest.mark.parametrize("devices", [1, 3, 8])
@pytest.mark.parametrize("op", OPS)
def test_each_kind(op, devices):
    graph = parse(op, SIZES["uneven"])
    arrays = arrays_for(graph)
    for inputs in ("free", "sharded"):
        plan = ed.plan(graph, devices, inputs=inputs)
        found = ed.run(plan, arrays, TOY)
        agree(found, ed.evaluate(graph, arrays), 1e-4)
        assert found.stats.bytes_moved == plan.cost


@given(graph=graphs(), devices=st.integers(1, 16))
def test_graphs_of_every_kind(graph, devices):
    arrays = arrays_for(graph)
    plan = ed.plan(graph, devices, rewrite=False)
    agree(ed.run(plan, arrays, TOY), ed.evaluate(graph, arrays), 1e-9)


@given(seed=st.integers(0, 2**32), devices=st.integers(1, 16), sharded=st.booleans())
def test_counted_bytes_and_peaks(seed, devices, sharded):
    graph = random_graph(seed, tree=False)
    plan = ed.plan(graph, devices, inputs="sharded" if sharded else "free")
    arrays = arrays_for(graph, seed)
    stats = ed.run(plan, arrays, TOY).stats
    assert stats.bytes_moved == plan.cost
    assert stats.bytes_by_vertex == {name: plan.costs.of(name) for name in plan.costs.join}
    program = program_of(plan)
    model = max(peak_on(program, device).bytes for device in range(devices))
    # It copies even where the model counts a view.
    assert stats.peak_memory >= model
    assert stats.flops == ed.run(plan, arrays, "apart").stats.flops


@pytest.mark.parametrize("case", CASES)
def test_sums_that_wait(case):
    plan = CASES[case]({"a": 2, "b": 3})
    found = ed.run(plan, arrays_for(plan.graph), TOY)
    apart = ed.run(plan, arrays_for(plan.graph), "apart")
    assert found.stats.bytes_moved == program_of(plan).moved
    assert all((found[name] == apart[name]).all() for name in apart)


def test_tensors_stay_and_moving_them_is_counted():
    graph = ed.parse("input W[i: 8, j: 8]\nnew_W[i,j] <- W[i,j] + 1\noutput new_W, W")
    rows, columns = (ed.plan(graph, 4, strategy=[label]) for label in "ij")
    with ed.compile(rows, TOY) as executable:
        placed = executable.place({"W": np.zeros((8, 8), np.float32)})
        made = executable(placed, donate=["W"]).tensor("new_W")
        assert executable({"W": made}).stats.bytes_placed == 0
    other = ed.compile(columns, TOY)({"W": made})
    assert other.stats.bytes_placed == 4 * 64 * 3 // 4
    assert (other["new_W"] == 2).all()
    assert (other["W"] == 1).all()


def test_events_and_errors():
    text = "input E[v: 4, a: 8], ids[b: 6] int64\nZ[a] <- sum E[ids[b], a]\noutput Z"
    plan = ed.plan(ed.parse(text), 2, strategy=["b"])
    inputs = {"E": np.ones((4, 8), np.float32), "ids": np.array([0, 1, 2, 3, 3, 0])}
    events = []
    found = ed.run(plan, inputs, TOY, on_event=events.append)
    moved = [event.count for event in events if isinstance(event, BytesMoved)]
    assert sum(moved) == found.stats.bytes_moved == plan.cost > 0
    done = [event for event in events if isinstance(event, TaskFinished)]
    assert len(done) == found.stats.tasks
    inputs["ids"][4] = 9
    with pytest.raises(ed.RunError, match=r"tile .* on device 1: index 9 is"):
        ed.run(plan, inputs, TOY)
    with pytest.raises(StopIteration):
        ed.run(plan, inputs, TOY, on_event=lambda _: next(iter(())))
