"""Partial sums that travel in a smaller type are rounded where they are made, and once combined."""

from __future__ import annotations

from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from agreement import JAX, RAY, TORCH, arrays_for, engine_of, without_torch
from hypothesis import given
from hypothesis import strategies as st

import eindecomp as ed
from eindecomp.engines.engine import find_engine
from eindecomp.engines.threads.engine import ThreadsEngine
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.memory import peak_on
from pending_plans import BOTH, Own, P, Q, plan_by_hand, products
from random_waits import linear_graph

AS_PLANNED = pytest.param(ThreadsEngine(workers=2, shortcuts=False), id="threads-as-planned")
each_engine = pytest.mark.parametrize("engine", ["apart", "threads", AS_PLANNED, RAY, TORCH, JAX])
apart_from_each_other = pytest.mark.parametrize("engine", ["apart", RAY, TORCH, JAX])
NUMPY = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}
TEXT = """
input A[i: {i}, k: 12] {dtype}, B[k, j: 5] {dtype}
Z[i,j] <- sum A[i,k] * B[k,j]
output Z
"""


def product(devices, dtype, travels, **options):
    """A product whose sums are cut over all devices, and the plan of it."""
    graph = ed.parse(TEXT.format(i=7, dtype=dtype))
    return graph, ed.plan(graph, devices, strategy=["k"], reduce_dtype=travels, **options)


def whole_numbers(graph, seed=0):
    """Numbers whose products and sums float32 holds exactly, and smaller types do not."""
    rng = np.random.default_rng(seed)
    return {v.name: rng.integers(-30, 30, v.shape).astype(v.dtype) for v in graph.inputs}


def promised(plan, arrays, travels, dtype):
    """Every device's part, rounded to the type; their sum in float32, rounded to the result's."""
    a, b = (arrays[name].astype(np.float32) for name in "AB")
    ways = plan.parts["Z"]["k"]
    ends = [p * 12 // ways for p in range(ways + 1)]
    total = np.zeros((7, 5), np.float32)
    for low, high in pairwise(ends):
        part = (a[:, low:high] @ b[low:high]).astype(NUMPY[travels])
        total += part.astype(np.float32)
    return total.astype(NUMPY[dtype])


@pytest.mark.parametrize("devices", [2, 6])
@pytest.mark.parametrize(
    ("dtype", "travels"),
    [("float32", "bfloat16"), ("float32", "float16"), ("bfloat16", "bfloat16"),
     ("float16", "bfloat16"), ("bfloat16", "float16")],
)  # fmt: skip
@pytest.mark.one_in(2)
@apart_from_each_other
def test_each_part_is_rounded_once(engine, dtype, travels, devices):
    graph, plan = product(devices, dtype, travels)
    assert plan.parts["Z"]["k"] == devices
    arrays = whole_numbers(graph)
    found = ed.run(plan, arrays, engine_of(engine))
    assert (found["Z"] == promised(plan, arrays, travels, dtype)).all()
    assert found.stats.bytes_moved == plan.cost == program_of(plan).moved


@pytest.mark.parametrize("engine", ["threads", AS_PLANNED])
def test_where_memory_is_shared_the_sum_is_rounded(engine):
    graph, plan = product(6, "float32", "bfloat16")
    arrays = whole_numbers(graph)
    running = engine_of(engine) if isinstance(engine, str) else engine
    exact = arrays["A"].astype(np.float64) @ arrays["B"].astype(np.float64)
    assert (ed.run(plan, arrays, running)["Z"] == exact.astype(ml_dtypes.bfloat16)).all()


@pytest.mark.parametrize("way", ["two memories", "paged"])
@without_torch
def test_memories_of_torch(way):
    options = {"two memories": {"device": ["cpu", "cpu"]}, "paged": {"gpu_memory": "100MB"}}
    engine = find_engine("torch", {"device": "cpu", "fuse": False, **options[way]})
    graph, plan = product(2, "float32", "bfloat16")
    arrays = whole_numbers(graph)
    found = ed.run(plan, arrays, engine)["Z"]
    assert (found == promised(plan, arrays, "bfloat16", "float32")).all()


@pytest.mark.parametrize("devices", [2, 4, 6])
@pytest.mark.parametrize("travels", [None, "bfloat16", {"Z": "float16"}])
def test_memory_is_what_the_model_says(travels, devices):
    graph, plan = product(devices, "float32", travels)
    program, found = program_of(plan), ed.run(plan, arrays_for(graph), "apart")
    peaks = [peak_on(program, device).bytes for device in range(devices)]
    assert found.stats.peak_memory == max(peaks)
    with pytest.raises(ed.PlanError, match="least found"):
        product(devices, "float32", travels, memory=max(peaks) // 2)


@given(seed=st.integers(0, 2**32), devices=st.sampled_from([2, 3, 4]))
def test_random_graphs_move_no_more(seed, devices):
    graph = linear_graph(seed)
    usual = ed.plan(graph, devices, inputs="sharded")
    plan = ed.plan(graph, devices, inputs="sharded", reduce_dtype="float32")
    assert plan.bound == plan.cost <= usual.cost
    arrays = arrays_for(graph)
    found, wanted = ed.run(plan, arrays, "apart"), ed.evaluate(graph, arrays)
    assert found.stats.bytes_moved == plan.cost
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("travels", ["bfloat16", {"activations": "bfloat16"}])
def test_sums_that_wait_are_held_so(travels):
    """P and Q wait as bfloat16, and their sum, which is made in float32, travels so."""
    graph = products("R[i,j] <- P[i,j] + Q[i,j]", dtype="float32")
    own = {"P": P, "Q": Q, "R": Own(waits=BOTH, home={"i": (0,)})}
    plan = plan_by_hand(graph, {"a": 2, "b": 2}, reduce_dtype=travels, **own)
    program = program_of(plan)
    held = {b.tensor: b.types[0].name for b in program.buffers if b.role.value == "partial"}
    assert held == {"P.part": "bfloat16", "Q.part": "bfloat16", "R.part": "bfloat16"}
    arrays = whole_numbers(graph)
    found = ed.run(plan, arrays, "apart")
    assert found.stats.bytes_moved == program.moved == 3 * 2 * 35 + 35 * 4
    exact = arrays["A"] @ arrays["B"] + arrays["C"] @ arrays["D"]
    np.testing.assert_allclose(found["R"], exact, rtol=0.03, atol=30)


def test_what_is_looked_up_travels_so_too():
    graph = ed.parse("""
    input D[b: 8, a: 4], at[b] int32
    G[v: 6 = at[b], a] <- sum D[b,a]
    output G
    """)
    arrays = {"D": np.arange(32, dtype=np.float32).reshape(8, 4) * 9, "at": np.arange(8) % 3}
    arrays["at"] = arrays["at"].astype(np.int32)
    for lookups in ("whole", "rows"):
        plan = ed.plan(graph, 4, strategy=["b"], reduce_dtype="bfloat16", lookups=lookups)
        found = ed.run(plan, arrays, "apart")
        np.testing.assert_allclose(found["G"], ed.evaluate(graph, arrays)["G"], rtol=0.02)
        assert found.stats.bytes_moved <= plan.cost
        if lookups == "whole":
            assert found.stats.bytes_moved == plan.cost == 3 * 2 * 24
