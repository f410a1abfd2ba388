"""Sums that wait: every engine computes what partial results are combined to, and moves no more."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import JAX, RAY, TORCH, agree, arrays_for, engine_of, without_torch
from hypothesis import given
from hypothesis import strategies as st

import eindecomp as ed
from eindecomp.engines.engine import find_engine
from eindecomp.engines.threads.engine import ThreadsEngine
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.memory import peak_on
from eindecomp.tra.program.steps import ReduceScatter
from pending_plans import (
    BOTH,
    CASES,
    Own,
    P,
    Q,
    added,
    lora,
    plan_by_hand,
    products,
    residual,
    second_layout,
    views,
)
from random_waits import linear_graph, random_waits

AS_PLANNED = pytest.param(ThreadsEngine(workers=2, shortcuts=False), id="threads-as-planned")
here = pytest.mark.parametrize("engine", ["apart", "threads", AS_PLANNED])
MORE = [pytest.param(way, marks=without_torch) for way in ("two memories", "paged")]
elsewhere = pytest.mark.parametrize("engine", [RAY, TORCH, JAX, *MORE])
every_engine = pytest.mark.parametrize("engine", ["apart", "threads", AS_PLANNED, RAY, TORCH, JAX])
TWO, SIX = {"a": 2, "b": 2}, {"a": 2, "b": 3}


WAYS = {
    "two memories": {"device": ["cpu", "cpu"], "fuse": False},
    "paged": {"device": "cpu", "fuse": False, "gpu_memory": "100MB"},
}


def running(engine):
    if engine in WAYS:
        return find_engine("torch", WAYS[engine])
    return engine_of(engine) if isinstance(engine, str) else engine


def check(engine, plan, tolerance=1e-5):
    """The result of a plan is that of the reference, and what moves is what its program says."""
    arrays = arrays_for(plan.graph)
    program, wanted = program_of(plan), ed.evaluate(plan.graph, arrays)
    program.verify()
    agree(ed.evaluate(program.graph, arrays), wanted, tolerance)
    found = ed.run(plan, arrays, running(engine))
    agree(found, wanted, tolerance)
    assert found.stats.bytes_moved == program.moved
    if engine == "apart":
        peaks = (peak_on(program, device).bytes for device in range(plan.devices))
        assert found.stats.peak_memory == max(peaks)
    if engine != "jax":  # XLA may put collectives of two vertices together
        assert dict(found.stats.bytes_by_vertex) == program.bytes_by_vertex


@pytest.mark.parametrize("mesh", [TWO, SIX], ids=["2x2", "2x3"])
@pytest.mark.parametrize("case", CASES)
@here
def test_results_and_bytes(engine, case, mesh):
    check(engine, CASES[case](mesh), 2e-2 if "float16" in case else 1e-5)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("case", CASES)
@elsewhere
def test_results_and_bytes_elsewhere(engine, case):
    check(engine, CASES[case](SIX), 2e-2 if "float16" in case else 1e-5)


@here
@given(seed=st.integers(0, 2**32))
def test_random_plans(engine, seed):
    check(engine, random_waits(linear_graph(seed), seed), 1e-9)


@every_engine
@pytest.mark.parametrize("join", ["P[i,j] + Q[i,j]", "P[i,j] + bfloat16(2 * Q[i,j])"])
def test_what_waits_is_rounded_once(engine, join):
    """Whole numbers that float32 holds exactly, and bfloat16 does not."""
    graph = products(f"R[i,j] <- {join}", dtype="bfloat16")
    rng = np.random.default_rng(0)
    arrays = {v.name: rng.integers(0, 30, v.shape).astype(v.dtype) for v in graph.inputs}
    a, b, c, d = (arrays[name].astype("float64") for name in "ABCD")
    plan = plan_by_hand(graph, TWO, P=P, Q=Q, R=Own(waits=BOTH, home={"i": (0,)}))
    found = ed.run(plan, arrays, running(engine))["R"]
    exact = a @ b + (2 if "2" in join else 1) * (c @ d)
    assert (found == exact.astype(found.dtype)).all()


@pytest.mark.parametrize(
    ("plan", "count"),
    [
        (added(SIX), 1),
        (lora(SIX), 1),
        (second_layout(SIX, {}), 2),
        (views(TWO, "sum A[i,k] * B[k,j]", "sum", late=True), 1),
    ],
)
def test_what_waits_is_reduced_once(plan, count):
    steps = program_of(plan).steps
    assert sum(isinstance(step, ReduceScatter) for step in steps) == count


@pytest.mark.parametrize(("dtype", "item"), [("float32", 4), ("bfloat16", 4), ("complex64", 8)])
def test_a_reduction_moves_unrounded_parts(dtype, item):
    plan = added(SIX, dtype)
    assert program_of(plan).moved == 5 * item * plan.graph["Z"].elements


def test_only_the_first_device_receives_what_is_whole():
    program = program_of(residual(SIX, "bfloat16"))
    moves = [program.moved_by(step) for step in program.steps if getattr(step, "first", 0)]
    assert moves == [0, 2 * 4 * 5, 0]  # of v, which lies everywhere, W, and T, which is made there
    assert "to the first of W (piece)" in str(program)


def test_what_is_pending_cannot_be_read_whole():
    with pytest.raises(ed.PlanError, match=r"P\[i,j\] is read whole, and is left pending"):
        program_of(plan_by_hand(products(), TWO, P=P, Q=Q))


def test_parts_stay_where_they_are():
    p, q = Own({"k": (0,), "j": (1,)}, pending=(0,)), Own({"l": (0,)}, pending=(0,))
    z = Own(waits=(((0,), (0, 1)),))
    with pytest.raises(ed.PlanError, match=r"more of P\[i,j\] in parts than devices hold"):
        program_of(plan_by_hand(products(), SIX, P=p, Q=q, Z=z))


def test_what_does_not_combine_is_refused():
    z = Own(waits=(((0, 1), (0,)),))
    with pytest.raises(ed.PlanError, match=r"parts of P do not make up parts of Z\[i,j\]"):
        program_of(plan_by_hand(products(), TWO, P=P, Z=z))
