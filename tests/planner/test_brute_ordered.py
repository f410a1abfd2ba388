"""The oracle over nested layouts: hand counts, a plain list of all plans, and the mesh's order."""

from __future__ import annotations

from math import prod

import pytest
from brute_bytes import brute_bytes, plans, prime_axes
from brute_ordered import brute_ordered, ordered_oracle
from hypothesis import assume, given
from hypothesis import strategies as st
from listed_plans import assignments, least_listed
from nested_layouts import cut_most
from random_graphs import LARGER, random_chain, random_graph, random_step

import eindecomp as ed

REDUCED = """
input I1[l: 24, n: 48, j: 24], I2[k: 48, m: 24]
V0[n] <- max I1[l,n,j]
V1[m] <- sum V0[k] * I2[k,m]
output V1
"""
READ_BOTH_WAYS = """
input X[i: 64, j: 64]
A[i,j] <- exp(X[i,j])
R[i] <- sum A[i,j]
C[j] <- max X[i,j]
output R, C
"""
READ_AGAIN = """
input X[i: 8, j: 8], at[s: 8]
A[s,j] <- sum X[i,j] * at[s]
B[s,j] <- max X[i,j] * at[s]
output A, B
"""
TRANSPOSED = "input W[i: 8, j: 8]\nnew_W[i,j] <- W[j,i] * 2\noutput new_W"
ROWS = "input X[i: 8, j: 8]\nZ[i] <- sum X[i,j]\noutput Z"
SCATTERED = """
input X[i: 8, j: 8], P[i: 8]
Y[i] <- sum X[i,j]
Z[i] <- Y[i] * P[i]
output Z
"""
SMALL = "input X[i: 2, j: 2]\nZ[i,j,k: 8] <- X[i,j] * 2\noutput Z"

SEEDS = st.integers(0, 2**32)
DEVICES = st.sampled_from([4, 6, 8, 12])
INPUTS = st.sampled_from(["free", "sharded"])


@pytest.mark.parametrize(
    ("text", "axes", "asked", "least", "in_mesh_order"),
    [
        # V0 is left n over 2·3 or 3·2, and only one of them is how V1 sums over k.
        (REDUCED, (2, 3), {}, 384, 480),
        # Cut 2 by 2, two groups of two reduce 32 elements each, for R and again for C.
        (READ_BOTH_WAYS, (2, 2), {"inputs": "sharded"}, 2 * 2 * 32 * 4, 2 * 2 * 32 * 4),
        (READ_BOTH_WAYS, (2, 2), {}, 0, 0),
        # If all are cut along i alone, C is read otherwise than X lies: all but a fourth of it.
        (
            READ_BOTH_WAYS,
            (2, 2),
            {"inputs": "sharded", "parts": {"A": {"i": 4}, "R": {"i": 4}, "C": {"j": 4}}},
            (4 - 1) * 64 * 64 // 4 * 4,
            (4 - 1) * 64 * 64 // 4 * 4,
        ),
        # Gathered once, X is there for both readers that need all of it.
        (
            READ_AGAIN,
            (2, 2),
            {"pin": {"X": [((0, 1), ())]}, "parts": {"A": {"s": 4}, "B": {"s": 4}}},
            (4 - 1) * 64 * 4,
            (4 - 1) * 64 * 4,
        ),
        # Two of the four devices have the transposed tile already.
        (TRANSPOSED, (2, 2), {"tie": {"W": "new_W"}}, 2 * 16 * 4, 2 * 16 * 4),
        (TRANSPOSED, (2,), {"tie": {"W": "new_W"}}, 2 * 16 * 4, 2 * 16 * 4),
        (TRANSPOSED, (2, 2), {}, 0, 0),
        # Z can be computed over 1·0 as X lies; in the mesh's order two devices must swap rows.
        (ROWS, (2, 2), {"pin": {"X": [((1, 0), ())]}}, 0, 2 * 16 * 4),
        # A reduce-scatter leaves Y just as P lies; otherwise two devices swap parts of either.
        (
            SCATTERED,
            (2, 2),
            {"pin": {"P": [((1, 0),)]}, "parts": {"Y": {"j": 4}}},
            3 * 8 * 4,
            3 * 8 * 4 + 2 * 2 * 4,
        ),
        # Too small for all axes, X is on two devices each; Z, cut along k alone, reads all of it.
        (SMALL, (2, 2, 2), {"inputs": "sharded", "parts": {"Z": {"k": 8}}}, 96, 96),
    ],
)
def test_what_can_be_counted_by_hand(text, axes, asked, least, in_mesh_order):
    graph = ed.parse(text)
    assert brute_ordered(graph, axes, **asked) == least
    assert brute_ordered(graph, axes, order="mesh", **asked) == in_mesh_order


@given(seed=SEEDS, tree=st.booleans(), devices=DEVICES)
def test_in_mesh_order_it_is_the_sum_over_all_assignments(seed, tree, devices):
    graph, axes = random_graph(seed, tree=tree), prime_axes(devices)
    assume(plans(graph, axes) <= 10_000)
    assert brute_ordered(graph, axes, order="mesh") == brute_bytes(graph, axes)
    scale = 1 << 24
    weighed = brute_ordered(graph, axes, order="mesh", scale=scale)
    assert weighed == brute_bytes(graph, axes, scale=scale)


@given(seed=SEEDS, devices=DEVICES, inputs=INPUTS, chain=st.booleans())
def test_any_order_never_costs_more(seed, devices, inputs, chain):
    graph = random_chain(seed) if chain else random_graph(seed, tree=False, most=5, sizes=LARGER)
    oracle = ordered_oracle(graph, prime_axes(devices), inputs)
    assume(oracle.cells <= 1 << 20)
    assert oracle.least() <= brute_ordered(graph, prime_axes(devices), inputs, order="mesh")


@given(
    seed=SEEDS,
    axes=st.sampled_from([(2,), (2, 2), (3, 2), (4, 2)]),
    inputs=INPUTS,
    pinned=st.booleans(),
    kind=st.sampled_from(["step", "chain", "any"]),
)
def test_it_is_the_least_of_all_plans_listed_one_by_one(seed, axes, inputs, pinned, kind):
    graph, tie = random_step(seed, most=2)
    if kind != "step":
        chain = random_chain(seed, most=3)
        graph = chain if kind == "chain" else random_graph(seed, tree=False, least=2, most=3)
        tie = {}
    assume(prod(len(rows) for rows in assignments(graph, axes).values()) <= 1_000)
    every = {v.name: cut_most(v.shape, axes, "any") for v in graph.inputs if v.name not in tie}
    pin = {name: [own[seed % len(own)]] for name, own in every.items()} if pinned else {}
    stored = every if inputs == "sharded" else {}
    least = least_listed(graph, axes, stored | pin, tie)
    assert brute_ordered(graph, axes, inputs, pin=pin, tie=tie) == least
