"""Objective `bytes`: the optimum against brute force, and the plan against its own execution."""

from __future__ import annotations

from functools import partial
from math import prod

import pytest
from brute_bytes import prime_axes
from brute_ordered import brute_ordered, ordered_oracle
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_graphs import LARGER, random_chain, random_graph, random_step
from simulate import simulate
from transformer import transformer

import eindecomp as ed
from eindecomp.planner.make import plan as make_plan

plan = partial(make_plan, pending=False)
"""In the space of the oracles here; `test_waiting.py` has the one in which results stay pending."""

MATMUL = """
input X[i: 4, j: 4], Y[j, k: 4]
Z[i,k] <- sum X[i,j] * Y[j,k]
output Z
"""
DEVICES = st.sampled_from([2, 3, 4, 6, 8, 12])
INPUTS = st.sampled_from(["free", "sharded"])
SEEDS = st.integers(0, 2**32)
MESHES = st.sampled_from([(2, 4), (4, 2), (3, 2), (2, 6), (6, 2), (3, 4), (8,), (6,), (2, 1, 2)])
FEW = 1 << 20  # entries of the largest table for which the optimum is looked up
hundreds = settings(max_examples=settings.default.max_examples * 5)


def check(found) -> None:
    """A plan's costs are what carrying it out moves, in all and in every part."""
    moved = simulate(found)
    for costs in (found.traffic, found.costs) if found.objective == "bytes" else (found.traffic,):
        assert costs.join == moved.join
        assert costs.aggregate == moved.aggregate
        assert costs.repartition == moved.repartition
        assert costs.edges == moved.edges
        assert costs.total == moved.total


@hundreds
@given(seed=SEEDS, tree=st.booleans(), devices=DEVICES, inputs=INPUTS)
def test_the_plan_equals_brute_force(seed, tree, devices, inputs):
    graph, axes = random_graph(seed, tree=tree), prime_axes(devices)
    oracle = ordered_oracle(graph, axes, inputs)
    assume(oracle.cells <= FEW)
    found = plan(graph, devices, inputs=inputs, rewrite=False)
    assert found.cost == oracle.least()
    assert found.bound <= found.cost
    assert found.gap >= 0
    check(found)


@hundreds
@given(
    seed=SEEDS,
    kind=st.sampled_from(["tree", "shared", "chain"]),
    devices=st.sampled_from([4, 6, 8, 12]),
    inputs=INPUTS,
)
def test_larger_sizes_equal_brute_force(seed, kind, devices, inputs):
    """Where the order in which axes nest makes a difference more often."""
    graph = random_chain(seed)
    if kind != "chain":
        graph = random_graph(seed, tree=kind == "tree", least=2, most=5, sizes=LARGER)
    oracle = ordered_oracle(graph, prime_axes(devices), inputs)
    assume(oracle.cells <= FEW)
    found = plan(graph, devices, inputs=inputs, rewrite=False)
    assert found.bound <= found.cost == oracle.least()
    check(found)


@hundreds
@given(seed=SEEDS, devices=DEVICES, inputs=INPUTS)
def test_tied_inputs_equal_brute_force(seed, devices, inputs):
    graph, tie = random_step(seed)
    oracle = ordered_oracle(graph, prime_axes(devices), inputs, tie=tie)
    assume(oracle.cells <= FEW)
    found = plan(graph, devices, inputs=inputs, tie=tie, rewrite=False)
    assert found.bound <= found.cost == oracle.least()
    check(found)


@hundreds
@given(seed=SEEDS, sizes=MESHES, inputs=INPUTS)
def test_on_a_mesh_of_the_users_own(seed, sizes, inputs):
    graph, axes = random_graph(seed, tree=False), tuple(n for n in sizes if n > 1)
    oracle = ordered_oracle(graph, axes, inputs)
    assume(oracle.cells <= FEW)
    mesh = {f"axis{k}": size for k, size in enumerate(sizes)}
    found = plan(graph, inputs=inputs, mesh=mesh, rewrite=False)
    assert found.devices == prod(sizes)
    assert found.cost == oracle.least()
    assert found.bound <= found.cost
    check(found)


@hundreds
@given(
    seed=SEEDS,
    devices=st.sampled_from([1, 5, 8, 12, 16, 24]),
    inputs=INPUTS,
    objective=st.sampled_from(["bytes", "bound"]),
    rewrite=st.booleans(),
)
def test_the_plan_moves_what_it_says(seed, devices, inputs, objective, rewrite):
    """On larger graphs than can be planned by brute force."""
    graph = random_graph(seed, tree=False, most=10)
    found = plan(graph, devices, objective=objective, inputs=inputs, rewrite=rewrite)
    assert found.bound <= found.cost
    check(found)


@pytest.mark.long
@given(seed=SEEDS, devices=st.sampled_from([16, 24, 32, 36]), inputs=INPUTS)
def test_axes_that_are_chosen_in_steps(seed, devices, inputs):
    """More devices than can be planned at once: the bound and the plan enclose the optimum."""
    graph, axes = random_graph(seed, tree=False, most=3), prime_axes(devices)
    assume(ordered_oracle(graph, axes, inputs).cells <= FEW)
    found = plan(graph, devices, inputs=inputs, rewrite=False)
    assert found.bound <= brute_ordered(graph, axes, inputs) <= found.cost
    check(found)


@hundreds
@given(seed=SEEDS, devices=DEVICES, inputs=INPUTS)
def test_a_bound_is_one_even_when_there_is_no_time(seed, devices, inputs):
    graph, axes = random_graph(seed, tree=False), prime_axes(devices)
    assume(ordered_oracle(graph, axes, inputs).cells <= FEW)
    found = plan(graph, devices, inputs=inputs, rewrite=False, time_limit=0)
    assert found.bound <= brute_ordered(graph, axes, inputs) <= found.cost
    check(found)


@pytest.mark.parametrize(("inputs", "elements"), [("free", 0), ("sharded", 16)])
def test_a_matrix_product_on_two_devices(inputs, elements):
    """Cut along i, both devices need all of Y: 2 · 16 elements, of which 16 are there."""
    found = plan(ed.parse(MATMUL), 2, inputs=inputs)
    assert found.cost == found.bound == 4 * elements
    check(found)


def test_a_result_that_is_read_whole_is_gathered_after_it_is_scattered():
    """All that j can do is to be summed over; every device then reads all of Z, by its own k."""
    graph = ed.parse("""
    input X[j: 8]
    Z[] <- sum X[j]
    Y[k: 8] <- Z[] * 2
    output Y
    """)
    found = plan(graph, 4, rewrite=False)
    assert found.costs.aggregate == {"Z": 4 * (3 + 3), "Y": 0}
    assert found.cost == 24


def test_a_further_layout_is_moved_once_for_all_its_readers():
    """Rows are looked up in columns and columns in rows, twice each, so Z is kept in both ways."""
    graph = ed.parse("""
    input X[i: 8, j: 8], at[s: 1] int64
    Z[i,j] <- exp(X[i,j])
    A[s,j] <- Z[at[s], j]
    B[s,j] <- Z[at[s], j]
    C[i,s] <- Z[i, at[s]]
    D[i,s] <- Z[i, at[s]]
    output A, B, C, D
    """)
    found = plan(graph, 8, rewrite=False)
    assert found.cost == found.costs.repartition["Z"] == 4 * (64 - 8)
    check(found)


@pytest.mark.long("2-8")
@pytest.mark.parametrize(("layers", "devices"), [(1, 8), (2, 8), (3, 8)])
def test_a_transformer_splits_projections_by_sequence_and_attention_by_head(layers, devices):
    """3.5·b·s·a elements a layer; where nobody reads the last residual stream, no less."""
    b, s, a = 1, 4096, 4096
    graph = transformer(layers)
    found = plan(graph, devices)
    assert found.cost / (4 * b * s * a) == 3.5 * layers
    assert found.bound == found.cost


def test_the_strategies_of_a_transformer():
    """Between two layers Megatron moves 28·b·s·a elements, a split of the sequence 14."""
    b, s, a = 1, 4096, 4096
    layers = {
        name: [plan(transformer(n), 8, strategy=labels).cost / (4 * b * s * a) for n in (1, 2)]
        for name, labels in {"megatron": ["h", "f"], "sequence": ["s"]}.items()
    }
    assert layers["megatron"][1] - layers["megatron"][0] == 28
    assert layers["sequence"][1] - layers["sequence"][0] == 14
