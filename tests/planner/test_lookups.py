"""Lookups and scatters that move only rows: plans against brute force, and against running them."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
import pytest
from brute_bytes import prime_axes
from brute_rows import rows_oracle
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_graphs import random_graph

import eindecomp as ed
from eindecomp.graph.ops import Gather, ScatterAdd
from eindecomp.planner.make import plan as make_plan
from eindecomp.tra.program.make import program_of

plan = partial(make_plan, pending=False)
"""In the space of the oracles here; `test_waiting.py` has the one in which results stay pending."""

LOOKUPS = {
    "lookup": """
        input E[v: {v}, k: 4], W[k, a: {a}], ids[n: {n}] int64
        F[v,a] <- sum E[v,k] * W[k,a]
        Z[n,a] <- F[ids[n], a]
        Y[n] <- max Z[n,a]
        output Y
    """,
    "lookup that two read": """
        input E[v: {v}, a: {a}], ids[n: {n}] int64
        F[v,a] <- exp(E[v,a])
        Z[n,a] <- F[ids[n], a]
        S[v] <- sum F[v,a]
        output Z, S
    """,
    "lookup in groups": """
        input E[g: 2, v: {v}, a: {a}], ids[g, n: {n}] int64
        F[g,v,a] <- exp(E[g,v,a])
        Z[g,n,a] <- F[g, ids[g,n], a]
        Y[g,n] <- max Z[g,n,a]
        output Y
    """,
    "scatter": """
        input D[n: {n}, a: {a}], W[v: {v}, a], ids[n] int64
        T[v: {v} = ids[n], a] <- sum D[n,a]
        Y[v] <- max T[v,a] * W[v,a]
        output Y
    """,
    "scatter in groups": """
        input D[g: 2, n: {n}, a: {a}], ids[g, n, k: 2] int64
        T[g, v: {v} = ids[g,n,k], a] <- sum D[g,n,a]
        Y[v] <- max T[g,v,a]
        output Y
    """,
    "there and back": """
        input X[n: {n}, a: {a}], ids[n] int64, W[v: {v}, a]
        T[v: {v} = ids[n], a] <- sum X[n,a]
        S[v,a] <- T[v,a] * W[v,a]
        Z[n,a] <- S[ids[n], a]
        Y[n] <- max Z[n,a]
        output Y
    """,
}
SIZES = {
    "even": {"v": 16, "a": 8, "n": 4},
    "uneven": {"v": 13, "a": 5, "n": 6},
    "narrow": {"v": 24, "a": 1, "n": 4},
}


def parse(kind: str, sizes: dict[str, int]) -> ed.Graph:
    return ed.parse(LOOKUPS[kind].format(**sizes))


def arrays(graph: ed.Graph, rng: np.random.Generator) -> dict:
    """Random inputs, with indices that the tables have."""
    rows = {
        v.inputs[1]: (graph[v.inputs[0]] if isinstance(v.op, Gather) else v).shape[v.op.axis]
        for v in graph.vertices.values()
        if isinstance(v.op, Gather | ScatterAdd)
    }
    return {
        v.name: rng.integers(0, rows.get(v.name, 4), v.shape)
        if v.dtype == np.int64
        else rng.integers(-4, 5, v.shape).astype(v.dtype)
        for v in graph.inputs
    }


def check_run(made, given: dict) -> int:
    """Devices apart compute what the graph means and move no more than planned; how much."""
    result = ed.run(made, given, engine="apart")
    for name, array in ed.evaluate(made.graph, given).items():
        np.testing.assert_allclose(result[name], array, rtol=1e-5)
    moved = result.stats.bytes_moved
    assert moved <= made.cost == made.traffic.total == program_of(made).moved
    return moved


@pytest.mark.parametrize("inputs", ["free", "sharded"])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", LOOKUPS)
def test_each_kind_at_least_cost(kind, sizes, inputs):
    graph, rng = parse(kind, SIZES[sizes]), np.random.default_rng(1)
    for devices in (2, 3, 4):
        made = plan(graph, devices, inputs=inputs, rewrite=False, lookups="rows")
        least = rows_oracle(graph, prime_axes(devices), inputs).least()
        assert made.bound <= made.cost == least
        assert made.cost <= plan(graph, devices, inputs=inputs, rewrite=False).cost
        check_run(made, arrays(graph, rng))


@settings(max_examples=settings.default.max_examples // 2)
@given(st.integers(0, 2**32), st.sampled_from([2, 3, 4, 6]), st.sampled_from(["free", "sharded"]))
def test_graphs_of_all_kinds_at_least_cost(seed, devices, inputs):
    graph = random_graph(seed, tree=False, most=5, moves=True)
    kinds = [vertex.op for vertex in graph.vertices.values()]
    assume(any(isinstance(op, Gather | ScatterAdd) for op in kinds))
    oracle = rows_oracle(graph, prime_axes(devices), inputs)
    assume(oracle.cells <= 1 << 14)
    made = plan(graph, devices, inputs=inputs, rewrite=False, lookups="rows")
    assert made.bound <= made.cost == oracle.least()


@pytest.mark.parametrize("kind", ["lookup", "scatter"])
def test_the_worst_of_all_indices_moves_what_was_planned(kind):
    """Two devices with an index each, of four rows: all sixteen runs."""
    graph = parse(kind, {"v": 4, "a": 8, "n": 2})
    vertex, pin = {
        "lookup": ("Z", {"F": {"v": 2}, "Z": {"n": 2}}),
        "scatter": ("T", {"D": {"n": 2}, "W": {"v": 2}, "Y": {"v": 2}}),
    }[kind]
    made = plan(graph, 2, pin=pin, rewrite=False, lookups="rows")
    assert [step.vertex for step in program_of(made).by_rows] == [vertex]
    given = arrays(graph, np.random.default_rng(0))
    moved = [
        check_run(made, given | {"ids": np.array(each)}) for each in product(range(4), range(4))
    ]
    assert max(moved) == made.cost
    assert min(moved) == made.cost - 2 * (4 * 8 + 8)  # each finds its row where it is


def by_rows(devices: int = 2):
    """A plan of which a lookup moves only rows."""
    graph = parse("lookup", {"v": 16, "a": 8, "n": 4})
    pin = {"F": {"v": devices}, "Z": {"n": devices}}
    return plan(graph, devices, pin=pin, rewrite=False, lookups="rows")


def test_a_plan_says_that_its_bytes_are_a_worst_case(tmp_path):
    made = by_rows()
    said = made.explain()
    assert "that devices receive, at most." in said
    assert "A worst case: for Z only rows move" in said
    assert "worst case" in str(made.compare({"by columns": ["a"]}))
    whole = plan(made.graph, 2, pin=made.pin, rewrite=False)
    assert "worst case" not in whole.explain() + str(whole.compare({"by columns": ["a"]}))
    made.save(tmp_path / "plan.json")
    again = ed.Plan.load(tmp_path / "plan.json")
    assert (again.lookups, again.cost, again.decisions) == ("rows", made.cost, made.decisions)


def test_engines_that_move_blocks_refuse_a_plan_by_rows():
    program = program_of(by_rows())
    with pytest.raises(ed.PlanError, match=r"'ray' moves whole blocks.*for Z: plan with lookups"):
        program.check_moves_blocks("ray")
    whole = program_of(plan(program.graph, 2, rewrite=False))
    assert whole.check_moves_blocks("ray") is whole


def test_an_unknown_way_to_look_up_is_refused():
    with pytest.raises(ed.PlanError, match="lookups 'some' is not one of whole, rows"):
        plan(parse("lookup", SIZES["even"]), 2, lookups="some")
