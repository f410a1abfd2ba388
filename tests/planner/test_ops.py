"""Every kind of vertex is planned, and costs what carrying it out element by element moves."""

from __future__ import annotations

from functools import partial
from math import prod

import pytest
from brute_bytes import prime_axes
from brute_ops import brute_ops, ops_oracle
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_graphs import random_graph
from simulate import label_sizes, simulate

import eindecomp as ed
from eindecomp.graph.ops import Fill, Input
from eindecomp.planner.make import plan as make_plan
from strategies import graphs

plan = partial(make_plan, pending=False)
"""In the space of the oracles here; `test_waiting.py` has the one in which results stay pending."""

OPS = {
    "gather from an input": """
        input E[v: {k}, a: {i}], ids[b: {m}, s: {j}] int64
        Z[b,s,a] <- E[ids[b,s], a]
        Y[a,s] <- sum Z[b,s,a]
        output Y
    """,
    "gather from what is computed": """
        input E[v: {k}, k: {j}], W[k, a: {i}], ids[s: {m}] int64
        F[v,a] <- sum E[v,k] * W[k,a]
        Z[a,s] <- F[ids[s], a]
        output Z, F
    """,
    "scatter": """
        input D[b: {m}, s: {j}, a: {i}], ids[b, s] int64
        E[b,s,a] <- exp(D[b,s,a])
        G[v: {k} = ids[b,s], a] <- sum E[b,s,a]
        H[a,v] <- G[v,a] * 2
        output H
    """,
    "scatter to rows alone": """
        input D[b: {m}], ids[b] int64
        G[v: {k} = ids[b]] <- sum D[b]
        S[] <- sum G[v]
        output S
    """,
    "concat": """
        input X[i: {i}, j: {j}], Y[i, k: {k}], W[j2: {jk}, m: {m}]
        E[i,j] <- exp(X[i,j])
        Z[i,j] <- concat[j](E[i,j], Y[i,j])
        V[i,m] <- sum Z[i,j] * W[j,m]
        U[i,j] <- concat[i](E[i,j], E[i,j])
        output V, U
    """,
    "slice": """
        input X[i: {i}, j: {long}]
        E[i,j] <- exp(X[i,j])
        A[i,j] <- E[i, j in 2:10]
        B[i,j] <- E[i, j in 5:9]
        C[j] <- sum A[i,j]
        D[i,j] <- X[i, j in 3:11]
        output B, C, D
    """,
    "split and merge": """
        input X[b: {m}, c: {jk2}]
        E[b,c] <- exp(X[b,c])
        Z[b,h,d] <- E[b, (h: {jk}, d)]
        M[b,h] <- max Z[b,h,d]
        Y[b, (h, d)] <- Z[b,h,d]
        V[d, (h, b)] <- Z[b,h,d]
        U[(b, h, d)] <- Z[b,h,d]
        S[] <- sum U[q]
        output M, Y, V, S
    """,
    "split an input": """
        input X[b: {m}, c: {jk2}]
        Z[h,b,d] <- X[b, (h: {jk}, d)]
        Y[h,d] <- sum Z[h,b,d]
        output Y
    """,
    "fill": """
        input X[s: {i}, t: {j}]
        M[s: {i}, t: {j}] <- fill s >= t
        Z[s] <- sum where(M[s,t], X[s,t], 0)
        F[t: {j}] <- fill 2 * t
        Y[s,t] <- Z[s] * F[t]
        output Y
    """,
    "broadcast": """
        input X[i: {i}]
        E[i] <- exp(X[i])
        Z[j: {j}, i] <- E[i]
        Y[j] <- sum Z[j,i]
        output Y, Z
    """,
    "diagonal of what is computed": """
        input A[i: {i}, k: {k}], B[k, j: {i}]
        X[i,j] <- sum A[i,k] * B[k,j]
        Z[i,m: {m}] <- X[i,i]
        T[] <- sum X[i,i]
        output Z, T
    """,
    "diagonal of an input": """
        input X[i: {i}, j: {i}], Y[k: {k}]
        Z[i,k] <- X[i,i] * Y[k]
        W[k] <- sum Z[i,k]
        output W
    """,
    "scalars": """
        input X[], Y[i: {i}]
        E[] <- exp(X[])
        Z[i] <- E[] * Y[i]
        S[] <- sum Z[i]
        T[] <- S[] + E[]
        output T
    """,
    "three inputs": """
        input X[i: {i}, j: {j}], Y[j, k: {k}], W[k]
        E[i,j] <- exp(X[i,j])
        Z[i,k] <- max E[i,j] * Y[j,k] + W[k]
        output Z
    """,
    "a pair of values": """
        monoid average(x0, x1; y0, y1) = (x0 + y0, x1 + y1) identity (0, 0) finish x0 / x1
        input X[i: {i}, j: {j}]
        Z[i] <- average (X[i,j], 1.0)
        Y[i,j] <- X[i,j] - Z[i]
        M[j] <- average.1 (Y[i,j], 1.0)
        output Y, M
    """,
    "a pair of values to a scalar": """
        monoid average(x0, x1; y0, y1) = (x0 + y0, x1 + y1) identity (0, 0) finish x0 / x1
        input X[i: {i}, j: {j}]
        Z[] <- average (X[i,j], 1.0)
        output Z
    """,
    "truth values": """
        input X[i: {i}, j: {j}]
        Z[i] <- any X[i,j] > 0
        Y[j] <- all where(Z[i], X[i,j] < 1, X[i,j] > 2)
        output Y
    """,
}
SIZES = {
    "even": {"i": 8, "j": 4, "k": 12, "m": 8},
    "uneven": {"i": 5, "j": 7, "k": 9, "m": 3},
    "small": {"i": 2, "j": 1, "k": 3, "m": 2},
}


def parse(op: str, sizes: dict[str, int]) -> ed.Graph:
    jk = sizes["j"] + sizes["k"]
    return ed.parse(OPS[op].format(**sizes, jk=jk, jk2=2 * jk, long=max(sizes["j"], 11)))


def check(found) -> None:
    """Parts respect sizes and devices, and costs are those of the simulation."""
    planned = {n: v for n, v in found.graph.vertices.items() if not isinstance(v.op, Input | Fill)}
    assert found.parts.keys() == found.decisions.keys() == planned.keys()
    for name, parts in found.parts.items():
        shapes = [found.graph[source].shape for source in planned[name].inputs]
        sizes = label_sizes(planned[name], shapes)
        assert all(1 <= pieces <= sizes[label] for label, pieces in parts.items())
        assert found.devices % prod(parts.values()) == 0
    moved = simulate(found)
    assert found.traffic.join == moved.join
    assert found.traffic.aggregate == moved.aggregate
    assert found.traffic.repartition == moved.repartition
    assert found.traffic.edges == moved.edges
    assert found.bound <= found.cost


@pytest.mark.one_in(4)
@pytest.mark.parametrize("inputs", ["free", "sharded"])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("op", OPS)
def test_each_kind(op, sizes, inputs):
    graph = parse(op, SIZES[sizes])
    for devices in (1, 2, 3, 4, 6, 8):
        for rewrite in (False, True):
            found = plan(graph, devices, inputs=inputs, rewrite=rewrite)
            check(found)
            assert found.cost == found.traffic.total
        check(plan(graph, devices, "bound", inputs=inputs, rewrite=False))


@settings(max_examples=settings.default.max_examples * 5)
@given(
    graphs(),
    st.sampled_from([2, 3, 4, 6, 8, 12]),
    st.sampled_from(["free", "sharded"]),
    st.sampled_from(["bytes", "bound"]),
    st.booleans(),
)
def test_graphs_of_all_kinds(graph, devices, inputs, objective, rewrite):
    check(plan(graph, devices, objective, inputs=inputs, rewrite=rewrite))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("op", OPS)
def test_each_kind_at_least_cost(op, sizes):
    graph = parse(op, SIZES[sizes])
    for devices in (2, 3, 4):
        for inputs in ("free", "sharded"):
            found = plan(graph, devices, inputs=inputs, rewrite=False)
            assert found.cost == brute_ops(graph, prime_axes(devices), inputs)


@settings(max_examples=settings.default.max_examples * 2)
@given(graphs(), st.sampled_from([2, 3, 4, 6]), st.sampled_from(["free", "sharded"]))
def test_graphs_of_all_kinds_at_least_cost(graph, devices, inputs):
    oracle = ops_oracle(graph, prime_axes(devices), inputs)
    assume(oracle.cells <= 1 << 16)
    found = plan(graph, devices, inputs=inputs, rewrite=False)
    assert found.bound <= found.cost == oracle.least()


@settings(max_examples=settings.default.max_examples * 2)
@given(
    st.sampled_from(sorted(OPS)),
    st.fixed_dictionaries(dict.fromkeys("ijkm", st.integers(1, 16))),
    st.sampled_from([5, 9, 12, 16]),
    st.sampled_from(["free", "sharded"]),
)
def test_kinds_of_any_size(op, sizes, devices, inputs):
    check(plan(parse(op, sizes), devices, inputs=inputs, rewrite=False))


@settings(max_examples=settings.default.max_examples * 5)
@given(
    st.integers(0, 2**32),
    st.sampled_from([2, 3, 4, 6, 8, 12]),
    st.sampled_from(["free", "sharded"]),
    st.sampled_from([None, "sqrt"]),
    st.booleans(),
)
def test_larger_graphs_of_all_kinds(seed, devices, inputs, strategy, rewrite):
    """Tensors that many vertices read, of which a window, in any layout that one of them needs."""
    graph = random_graph(seed, tree=False, most=7, moves=True)
    check(plan(graph, devices, inputs=inputs, strategy=strategy, rewrite=rewrite))


@settings(max_examples=settings.default.max_examples * 2)
@given(st.integers(0, 2**32), st.sampled_from([2, 3, 4, 6]), st.sampled_from(["free", "sharded"]))
def test_larger_graphs_of_all_kinds_at_least_cost(seed, devices, inputs):
    graph = random_graph(seed, tree=False, most=5, moves=True)
    oracle = ops_oracle(graph, prime_axes(devices), inputs)
    assume(oracle.cells <= 1 << 16)
    found = plan(graph, devices, inputs=inputs, rewrite=False)
    assert found.bound <= found.cost == oracle.least()


def test_a_window_does_not_serve_those_who_read_beyond_it():
    """B's window of T lacks the first number that A reads: each fetches one from T's home."""
    graph = ed.parse("""
        input X[k: 3, i: 7]
        T[i] <- min X[k,i]
        A[u] <- T[u in 0:4]
        B[v] <- T[v in 1:7]
        output T, A, B
    """)
    found = plan(graph, 2)
    assert found.cost == found.bound == 4 * (1 + 1)
    check(found)


def test_an_operand_that_only_gives_sizes_is_not_moved():
    graph = ed.Graph()
    graph.input("X", {"i": 8, "j": 6})
    graph.input("Y", {"i": 8})
    graph.einsum("ij->ij", "X", join="exp(x)", name="E")
    graph.einsum("i,ij->i", "Y", "E", join="x", name="Z")
    graph.output("Z", "E")
    for devices in (2, 3, 6, 8):
        found = plan(graph, devices, inputs="sharded", rewrite=False)
        assert found.cost == 0
        check(found)


def test_a_fill_is_made_where_it_is_read():
    graph = ed.parse("""
        input X[s: 8, t: 8]
        M[s: 8, t: 8] <- fill s >= t
        Z[t] <- sum M[s,t] * X[s,t]
        output Z
    """)
    found = plan(graph, 8, inputs="sharded", rewrite=False)
    assert found.cost == 0
    assert "M" not in found.parts


def test_the_looked_up_dimension_is_read_whole():
    """Every device needs its columns of the table in every row, and both ids; it has one."""
    graph = ed.parse("""
        input E[v: 100, a: 8], ids[s: 2] int64
        Z[s,a] <- E[ids[s], a]
        output Z
    """)
    found = plan(graph, 4, inputs="sharded")
    assert found.parts["Z"] == {"s": 1, "a": 4}
    assert found.costs.edges == {("E", "Z", 0): 0, ("ids", "Z", 1): (4 * 2 - 4) * 8}


def test_a_partial_state_travels_whole_and_a_result_alone():
    """Each of 4 devices ends with one number; before that 3 of them sent a sum and a count."""
    graph = parse("a pair of values to a scalar", SIZES["even"])
    assert plan(graph, 4).costs.aggregate["Z"] == 3 * 2 * 4 + 3 * 4
