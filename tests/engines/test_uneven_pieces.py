"""Pieces that are unequal or empty: results are right, and what moves is what was planned."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import JAX, TORCH, agree, arrays_for, engine_of, precise
from hypothesis import assume, given
from hypothesis import strategies as st
from random_graphs import random_graph, random_step
from test_ops import OPS, SIZES, parse

import eindecomp as ed
from strategies import graphs

every_engine = pytest.mark.parametrize("engine", ["threads", "apart", TORCH, JAX])
no_compiler = pytest.mark.parametrize("engine", ["threads", "apart", TORCH])  # quick to prepare
PIECES = st.sampled_from(["even", "ceil"])
MESHES = [{"a": 4}, {"a": 3, "b": 4}, {"a": 2, "b": 2, "c": 2}, {"a": 6}, {"a": 2, "b": 3}]


def runs(engine, graph, arrays, tolerance=1e-6, **asked):
    """Plan and run a graph, and check what it computes and moves."""
    # XLA merges equal values, and so moves a vertex that copies another only once: rewriting first
    # leaves no such vertex.
    plan = ed.plan(graph, rewrite=engine == "jax", time_limit=5, **asked)
    found = ed.run(plan, arrays, engine_of(engine))
    agree(found, ed.evaluate(graph, arrays), tolerance)
    assert found.stats.bytes_moved == plan.traffic.total
    return plan


@every_engine
@given(
    seed=st.integers(0, 2**32),
    mesh=st.sampled_from(MESHES),
    inputs=st.sampled_from(["free", "sharded"]),
    pieces=PIECES,
)
def test_random_graphs(engine, seed, mesh, inputs, pieces):
    with precise():
        graph = random_graph(seed, tree=False, moves=True)
    arrays = arrays_for(graph, seed)
    try:
        ed.evaluate(graph, arrays)
    except ed.InputError:
        assume(False)  # an index is out of range
    runs(engine, graph, arrays, mesh=mesh, inputs=inputs, pieces=pieces)


@pytest.mark.one_in(2)
@every_engine
@given(seed=st.integers(0, 2**32), mesh=st.sampled_from(MESHES), pieces=PIECES)
def test_state_that_lives_on(engine, seed, mesh, pieces):
    with precise():
        graph, tie = random_step(seed)
    runs(engine, graph, arrays_for(graph, seed), mesh=mesh, tie=tie, pieces=pieces)


@no_compiler
@given(graph=graphs(), mesh=st.sampled_from(MESHES), pieces=PIECES)
def test_graphs_of_every_kind(engine, graph, mesh, pieces):
    runs(engine, graph, arrays_for(graph), 1e-9, mesh=mesh, pieces=pieces)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("mesh", [{"a": 4}, {"a": 3, "b": 2}])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("op", OPS)
@no_compiler
def test_each_kind(engine, op, sizes, mesh):
    graph = parse(op, SIZES[sizes])
    for rewrite in (True, False):
        plan = ed.plan(graph, mesh=mesh, pieces="ceil", rewrite=rewrite)
        arrays = arrays_for(graph)
        found = ed.run(plan, arrays, engine_of(engine))
        agree(found, ed.evaluate(graph, arrays), 1e-4)
        assert found.stats.bytes_moved == plan.cost


REDUCED = """
input X[i: 5, j: 6] {dtype}, Y[i: 5, k: 3] {dtype}
S[j] <- {agg} X[i,j]
P[j,k] <- {agg} X[i,j] * Y[i,k]
A[] <- {agg} X[i,j]
output S, P, A
"""


TYPES = ["int8", "bfloat16", "float32"]
MORE_TYPES = [
    pytest.param(each, marks=pytest.mark.long) for each in ("int64", "float16", "complex64")
]


@pytest.mark.one_in(6)
@pytest.mark.parametrize("dtype", [*TYPES, *MORE_TYPES])
@pytest.mark.parametrize("agg", ["sum", "prod", "max", "min"])
@no_compiler
def test_the_share_of_a_device_that_has_none_of_a_sum_is_neutral(engine, agg, dtype):
    """One of four devices has none of five rows: 2, 2, 1 and 0."""
    if agg in ("max", "min") and dtype == "complex64":
        return
    graph = ed.parse(REDUCED.format(agg=agg, dtype=dtype))
    arrays = arrays_for(graph)
    low = dtype in ("float16", "bfloat16")
    for name in ("i", "j"):
        runs(
            engine, graph, arrays, 3e-2 if low else 1e-5,
            mesh={"a": 4}, strategy=[name], pieces="ceil",
        )  # fmt: skip


@no_compiler
def test_a_softmax_over_chunks_of_which_one_is_empty(engine):
    graph = ed.parse(
        "input Q[s: 5, d: 4], K[t: 5, d], V[t, d]\nU[s,t] <- sum Q[s,d] * K[t,d]\n"
        "P[s,t] <- softmax[t] U[s,t]\nO[s,d] <- sum P[s,t] * V[t,d]\noutput O"
    )
    for strategy in (["s"], ["t"], ["t", "s"]):
        for rewrite in (True, False):
            plan = ed.plan(graph, mesh={"a": 4}, strategy=strategy, pieces="ceil", rewrite=rewrite)
            arrays = arrays_for(graph)
            found = ed.run(plan, arrays, engine_of(engine))
            agree(found, ed.evaluate(graph, arrays), 1e-5)
            assert found.stats.bytes_moved == plan.cost


@pytest.mark.one_in(3)
@pytest.mark.parametrize("strategy", [None, ["i"], ["j"], ["j", "k"]])
@no_compiler
def test_fused_contractions(engine, strategy):
    graph = ed.parse(
        "input X[i: 5, j: 5, k: 7], A[j, a: 3], B[k, a]\n"
        "Z[i,a] <- sum X[i,j,k] * A[j,a] * B[k,a]\noutput Z"
    )
    for mesh in MESHES:
        plan = ed.plan(graph, mesh=mesh, strategy=strategy, work=float("inf"), pieces="ceil")
        arrays = arrays_for(graph)
        found = ed.run(plan, arrays, engine_of(engine))
        agree(found, ed.evaluate(graph, arrays), 1e-5)
        assert found.stats.bytes_moved == plan.cost


@every_engine
def test_tensors_stay_in_chunks(engine):
    """What a run leaves on devices is there for the next one, also under another rule."""
    graph = ed.parse("input W[i: 5, j: 3]\nnew_W[i,j] <- W[i,j] * 2\noutput new_W")
    given = np.arange(15, dtype=np.float32).reshape(5, 3)
    made = {
        pieces: ed.compile(
            ed.plan(graph, mesh={"a": 4}, tie={"W": "new_W"}, pieces=pieces), engine_of(engine)
        )
        for pieces in ("ceil", "balanced")
    }
    first = made["ceil"]({"W": given})
    second = made["ceil"]({"W": first.tensor("new_W")})
    assert second.stats.bytes_moved == 0
    third = made["balanced"]({"W": second.tensor("new_W")})
    np.testing.assert_array_equal(third["new_W"], given * 8)
