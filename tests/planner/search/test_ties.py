"""Of plans that cost the same, the one whose devices read and hold least."""

from __future__ import annotations

from math import prod

import pytest
from brute_bytes import prime_axes
from brute_ordered import ordered_oracle
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_graphs import random_graph
from transformer import small_transformer

import eindecomp as ed
from eindecomp.lang.scalar import used_args

SCALE = 1 << 24  # more than devices read and hold in any of these graphs
SEEDS = st.integers(0, 2**32)
hundreds = settings(max_examples=settings.default.max_examples * 5)


def load(plan: ed.Plan) -> int:
    """The bytes that all devices read and hold, if each had the largest pieces."""
    total = 0
    for name, decision in plan.decisions.items():
        vertex, sizes = plan.graph[name], plan.graph.label_sizes(plan.graph[name])
        for k in used_args(vertex.op.join):
            labels, item = vertex.op.inputs[k], plan.graph[vertex.inputs[k]].dtype.itemsize
            total += item * prod(-(-sizes[label] // plan.parts[name][label]) for label in labels)
        total += kept(plan, name, decision)
    total += sum(kept(plan, name, layouts) for name, layouts in plan.given.items())
    return total * plan.devices


def kept(plan: ed.Plan, name: str, layouts) -> int:
    """The bytes of a tensor's home and of its second layout on one device."""
    cuts = [cut for cut in (layouts.home, layouts.second) if cut is not None]
    elements = sum(prod(side(plan, span) for span in cut) for cut in cuts)
    return plan.graph[name].dtype.itemsize * elements


def side(plan: ed.Plan, span) -> int:
    parts = prod(plan.mesh.sizes[axis] for axis in span.axes)
    return -(-span.units // parts) * span.scale


def product(rows: int, inner: int, columns: int) -> ed.Graph:
    return ed.parse(f"""
    input X[b: {rows}, i: {inner}], W[i, o: {columns}]
    Y[b,o] <- sum X[b,i] * W[i,o]
    output Y
    """)


@hundreds
@given(
    seed=SEEDS,
    devices=st.sampled_from([2, 3, 4, 6, 8, 12]),
    inputs=st.sampled_from(["free", "sharded"]),
)
def test_no_plan_of_equal_cost_in_mesh_order_reads_and_holds_less(seed, devices, inputs):
    graph, axes = random_graph(seed, tree=False), prime_axes(devices)
    """Nor does any whose axes nest in mesh order; among all, a plan may be lighter."""
    oracle = ordered_oracle(graph, axes, inputs, scale=SCALE)
    assume(oracle.cells <= 1 << 20)
    found = ed.plan(graph, devices, inputs=inputs, rewrite=False, pending=False)
    least = oracle.least()
    in_mesh_order = ordered_oracle(graph, axes, inputs, order="mesh", scale=SCALE).least()
    assert found.cost == least // SCALE
    assert least <= found.cost * SCALE + load(found) <= in_mesh_order


@pytest.mark.parametrize("devices", [2, 3, 4, 6, 8, 16, 64])
@pytest.mark.parametrize(("rows", "columns", "label"), [(128, 8192, "o"), (8192, 128, "b")])
def test_a_product_is_cut_along_the_longer_side(rows, columns, label, devices):
    """Cut along the shorter one every device would read all of the larger matrix."""
    found = ed.plan(product(rows, 2048, columns), devices)
    assert found.cost == found.bound == 0
    assert {name for name, n in found.parts["Y"].items() if n > 1} == {label}


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_a_square_product_is_cut_both_ways(devices):
    """n/√p rows and columns are the least that devices can read between them."""
    found = ed.plan(product(4096, 4096, 4096), devices)
    pieces = found.parts["Y"]
    assert pieces["i"] == 1
    assert max(pieces["b"], pieces["o"]) == {2: 2, 4: 2, 8: 4}[devices]


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_weights_that_can_be_cut_for_nothing_are(devices):
    """Heads of attention are independent, so their projections read a part of the weights each."""
    graph = ed.parse("""
    input X[s: 24, a: 96], WQ[a, h: 24, d: 8], WK[a, h, d], WV[a, h, d]
    Q[s,h,d] <- sum X[s,a] * WQ[a,h,d]
    K[t,h,d] <- sum X[t,a] * WK[a,h,d]
    V[t,h,d] <- sum X[t,a] * WV[a,h,d]
    T[h,s,t] <- sum Q[s,h,d] * K[t,h,d]
    P[h,s,t] <- softmax[t] T[h,s,t]
    O[s,h,d] <- sum P[h,s,t] * V[t,h,d]
    output O
    """)
    found = ed.plan(graph, devices)
    assert found.cost == 0
    assert all(found.parts[name]["h"] == devices for name in ("Q", "K", "V"))


@pytest.mark.long
def test_the_same_plan_every_time():
    graph = small_transformer(2)
    one, other = (ed.plan(graph, 4) for _ in range(2))
    assert one.decisions == other.decisions


def test_equal_costs_of_huge_tensors_are_still_told_apart():
    """Where costs and what is read together have too many digits, the last ones are dropped."""
    graph = ed.parse("""
    input X[b: 1023, i: 1048573], W[i, o: 16777215], V[i, j: 1048575]
    Y[b,o] <- sum X[b,i] * W[i,o]
    R[i,j] <- exp(V[i,j])
    A[i] <- max R[i,j]
    B[j] <- max R[i,j]
    output Y, A, B
    """)
    found = ed.plan(graph, 4)
    assert found.cost == found.bound > 0
    assert found.parts["Y"] == {"b": 1, "o": 4, "i": 1}
