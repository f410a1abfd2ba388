"""Plans whose results may stay pending move as little as brute force over all of them finds."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from brute_bytes import prime_axes
from brute_ops import brute_ops
from brute_pending import brute_pending, pending_oracle
from random_linear import random_linear

import eindecomp as ed
from cases import FACTOR
from eindecomp.graph.parts import parts_of
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.memory import fullest

MOST_CELLS = 2 << 20
"""The entries of the largest table that brute force may take."""
PRODUCTS = (
    "input A[i: 4, j: 4], B[j, k: 4], C[i, l: 4], D[l, k], E[i, m: 3], F[m, k], w[k], V[i, k]\n"
)
CASES = {
    "two products before a function": (2, 64, """
        P[i,k] <- sum A[i,j] * B[j,k]
        Q[i,k] <- sum C[i,l] * D[l,k]
        Z[i,k] <- P[i,k] + Q[i,k]
        R[i,k] <- relu(Z[i,k])
    """),
    "three products": (2, 64, """
        P[i,k] <- sum A[i,j] * B[j,k]
        Q[i,k] <- sum C[i,l] * D[l,k]
        S[i,k] <- sum E[i,m] * F[m,k]
        Z[i,k] <- P[i,k] + Q[i,k]
        R[i,k] <- Z[i,k] - S[i,k]
    """),
    "a bias, a sign and a reduction": (2, 24, """
        P[i,k] <- sum A[i,j] * B[j,k]
        Z[i,k] <- P[i,k] + w[k]
        Y[i,k] <- -Z[i,k]
        R[k] <- sum Y[i,k]
    """),
    "weights": (3, 160, """
        P[i,k] <- sum A[i,j] * B[j,k]
        Q[i,k] <- sum C[i,l] * D[l,k]
        R[i,k] <- P[i,k] * w[k] + Q[i,k]
    """),
    "the greatest of two max-plus products": (2, 16, """
        P[i,k] <- max A[i,j] + B[j,k]
        Q[i,k] <- max C[i,l] + D[l,k]
        Z[i,k] <- max(P[i,k], Q[i,k])
        R[k] <- max Z[i,k]
    """),
    "what was greatest, negated, is least": (2, 16, """
        P[i,k] <- max A[i,j] + B[j,k]
        Y[i,k] <- -P[i,k]
        R[k] <- min Y[i,k]
    """),
    "half of a sum": (2, 32, """
        P[i,k] <- sum A[i,j] * B[j,k]
        R[i,k] <- P[i, k in 0:2]
    """),
}  # fmt: skip
FOUND = {
    "a weight that only some devices need": (4, "sharded", """
        input X[i: 3], A[i, j: 3]
        Y[j] <- sum X[i] * A[i,j]
        Z[j] <- X[j] + Y[j]
        output Z
    """),
    "the least as a part of a sum": (2, "sharded", """
        input X[j: 4, i: 4], Y[i], A[k: 4], B[k, j], C[l: 4], D[l, j]
        Z0[j] <- min X[j,i] + Y[i]
        Z1[j] <- sum A[k] * B[k,j]
        Z2[j] <- sum C[l] * D[l,j]
        Z3[j] <- Z0[j] + Z1[j] + Z2[j]
        output Z3
    """),
    "kept where the first device needs it": (4, "sharded", """
        input X[k: 4], A[k, l: 4]
        Z1[k] <- sum A[k,l] * X[l]
        Z2[k] <- X[k] + Z1[k]
        Z3[k] <- Z2[k] + X[k]
        Z4[k] <- Z3[k in 2:4]
        output Z4
    """),
    "nothing to cut": (4, "free", """
        input X[k: 2, j: 2], Y[j]
        Z1[j] <- sum X[k,j]
        Z2[j] <- Z1[j] * Y[j]
        Z4[j] <- Z1[j in 1:2]
        output Z4, Z2
    """),
    "fewer labels than devices": (3, "sharded", """
        input X[k: 2, j: 4], Y[j]
        Z0[k] <- max X[k,j] + Y[j]
        Z1[] <- max Z0[k]
        Z2[k] <- -Z0[k]
        output Z1, Z2
    """),
    "a scalar of a sum": (2, "sharded", """
        input X[k: 5], A[k, i: 5, j: 5], W[i, j]
        Z0[i,j] <- sum X[k] * A[k,i,j]
        Z1[] <- sum Z0[i,j]
        Z4[i,j] <- W[i,j] - Z1[]
        Z5[i,j] <- Z4[i,j] - Z0[i,j]
        output Z5
    """),
    "a greatest of all": (3, "sharded", """
        input X0[i: 3], X1[i, j: 2], X2[j, i], X3[i], Z3[j]
        Z0[j] <- max X0[i] + X1[i,j]
        Z1[j] <- max X2[j,i] + X3[i]
        Z2[j] <- Z0[j] + Z1[j]
        Z4[j] <- max(max(Z2[j], Z3[j]), Z0[j])
        output Z4
    """),
    "the least of a difference": (3, "sharded", """
        input X[i: 2], A[i, k: 3], Y[k]
        Z1[i] <- max A[i,k] + Y[k]
        Z2[i] <- X[i] - Z1[i]
        Z3[i] <- Z2[i in 1:2]
        output Z3
    """),
    "a whole result in parts on an axis without a label": (4, "free", """
        input X[m: 2], A[m, k: 3], V[i: 2], B[i, k], Y[k], C[k, l: 3], D[l]
        Z0[k] <- min X[m] + A[m,k]
        Z1[k] <- sum V[i] * B[i,k]
        Z2[k] <- sum C[k,l] * D[l]
        Z3[k] <- Z0[k] + Z1[k] + Z2[k]
        output Z3
    """),
    "a second layout for all and for a slice": (3, "sharded", """
        input X[k: 4], Y[i: 4], A[i, k]
        Z1[k] <- min Y[i] + A[i,k]
        Z2[k] <- X[k] - Z1[k]
        Z3[] <- max Z2[k]
        Z4[k] <- X[k in 1:3]
        output Z3, Z4
    """),
    "a part of an input": (3, "sharded", """
        input X[a: 3], A[b: 1, i: 4], Y[i]
        Z1[b] <- X[b in 0:1]
        Z2[b] <- sum A[b,i] * Y[i]
        Z3[b] <- Z1[b] - Z2[b]
        output Z3
    """),
    "a slice that lies on the first devices only": (4, "free", """
        input X[j: 3, i: 3], V[i]
        Y[j] <- sum X[j,i] * V[i]
        Z[j] <- Y[j in 0:1]
        output Z
    """),
    "parts of parts of inputs": (3, "free", """
        input X[i: 2, k: 4], Y[i, k]
        Z1[i,k] <- X[i,k] - Y[i,k]
        Z2[i,k] <- Z1[i, k in 0:3]
        Z3[i,k] <- Z2[i in 0:1, k]
        output Z3
    """),
}  # fmt: skip
"""Graphs at which the planner once moved more than it had to, or failed."""


def check(graph: ed.Graph, devices: int, inputs: str) -> int:
    """A plan's cost and bound are the least of all plans in which vertices wait for parts.

    No less than where vertices may also wait when nothing that they read is pending: planning lets
    some do that, those that read what could be.
    """
    asked = graph, prime_axes(devices), inputs
    least = brute_pending(*asked, seconds="read")
    most = brute_pending(*asked, seconds="read", idle=False)
    made = ed.plan(graph, devices, inputs=inputs, rewrite=False, pending=True)
    assert made.bound == made.cost, f"{devices} {inputs}\n{graph}"
    assert least <= made.cost, f"{devices} {inputs}\n{graph}"
    assert made.cost <= most or has_several_kinds(made), f"{devices} {inputs}\n{graph}"
    return made.cost


def has_several_kinds(made: ed.Plan) -> bool:
    """Whether some vertex joins parts of several ⊕: planning lets it read those of one."""
    parts = parts_of(made.graph)
    inputs = (vertex.inputs for vertex in made.graph.vertices.values())
    return any(len({parts[name].agg.name for name in own if name in parts}) > 1 for own in inputs)


@pytest.mark.parametrize("case", CASES)
def test_a_person_would_count_as_much(case):
    devices, least, text = CASES[case]
    graph = ed.parse(PRODUCTS + text.strip() + "\noutput R")
    assert check(graph, devices, "sharded") == least


@pytest.mark.parametrize("case", FOUND)
def test_hard_cases(case):
    devices, inputs, text = FOUND[case]
    check(ed.parse(text), devices, inputs)


@pytest.mark.parametrize("seed", range(60 * FACTOR))
def test_random_graphs(seed):
    devices, inputs = asked(seed)
    graph = random_linear(seed)
    if pending_oracle(graph, prime_axes(devices), inputs).cells <= MOST_CELLS:
        check(graph, devices, inputs)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100_000, 100_000 + 500 * FACTOR))
def test_more_random_graphs(seed):
    test_random_graphs(seed)


@pytest.mark.parametrize("seed", range(15 * FACTOR))
def test_contractions_may_wait_where_work_is_free(seed):
    devices, inputs = asked(seed)
    graph = random_linear(seed, most=5)
    made = ed.plan(graph, devices, inputs=inputs, work=1e9, pending=True)
    axes = prime_axes(devices)
    oracle = pending_oracle(made.graph, axes, inputs, contractions=True)
    if oracle.cells <= MOST_CELLS // 4:
        assert made.bound == made.cost >= oracle.least(), f"{devices} {inputs}\n{made.graph}"


@pytest.mark.parametrize("seed", range(10))
def test_brute_force_without_waiting_is_the_usual_one(seed):
    devices, inputs = asked(seed)
    graph = random_linear(seed)
    axes = prime_axes(devices)
    usual = brute_ops(graph, axes, inputs)
    assert brute_pending(graph, axes, inputs, waiting=False) == usual
    assert brute_pending(graph, axes, inputs) <= usual


def asked(seed: int) -> tuple[int, str]:
    """How many devices, and where inputs lie."""
    rng = random.Random(seed)
    return rng.choice((2, 3, 4)), rng.choice(("free", "sharded", "sharded"))


GRADIENTS = """
    input X1[i: 64, a: 8], G1[i, b: 8], X2[i, a], G2[i, b], X3[i, a], G3[i, b], W[a,b]
    D1[a,b] <- sum X1[i,a] * G1[i,b]
    D2[a,b] <- sum X2[i,a] * G2[i,b]
    D3[a,b] <- sum X3[i,a] * G3[i,b]
    D[a,b] <- D1[a,b] + D2[a,b] + D3[a,b]
    N[a,b] <- W[a,b] - 0.1 * D[a,b]
    output N
    tie W <- N
"""
OWN = """
    monoid {monoid}
    input A[i: 16, j: 64], B[j, k: 16], C[i, l: 64], D[l, k]
    P[i,k] <- own A[i,j] * B[j,k]
    G[i,k] <- own C[i,l] * D[l,k]
    S[i,k] <- {join}
    R[i,k] <- S[i,k] * S[i,k]
    output R
"""


@pytest.mark.parametrize("rewrite", [False, True])
@pytest.mark.parametrize("devices", [2, 4, 8])
def test_gradients_of_a_weight_that_is_used_three_times(devices, rewrite):
    plan = ed.plan(ed.parse(GRADIENTS), devices, inputs="sharded", rewrite=rewrite)
    assert plan.cost == plan.bound == 4 * 64 * (devices - 1)


@pytest.mark.parametrize(
    ("monoid", "join"),
    [
        ("own(x; y) = sqrt(x**2 + y**2) identity 0", "sqrt(P[i,k]**2 + G[i,k]**2)"),
        ("own(x; y) = x + y identity 0", "G[i,k] + P[i,k]"),
        ("own(x; y) = max(x, y) identity -inf", "max(P[i,k], G[i,k])"),
    ],
)
def test_parts_of_ones_own_monoid_are_joined_by_it(monoid, join):
    plan = ed.plan(ed.parse(OWN.format(monoid=monoid, join=join)), 2, inputs="sharded")
    assert plan.cost == plan.bound == 4 * 256


def test_whatever_fits_without_waiting_fits():
    """S stays a vertex where it may wait, and takes memory."""
    text = """
        input X[i: 16, a: 256], W[a, b: 16], V[a, b]
        P[i,b] <- sum X[i,a] * W[a,b]
        G[i,b] <- sum X[i,a] * V[a,b]
        S[i,b] <- P[i,b] - G[i,b]
        Z[i,b] <- S[i,b] * S[i,b]
        output Z
    """
    usual = {"inputs": "sharded", "pending": False}
    least = fullest(program_of(ed.plan(ed.parse(text), 2, **usual))).bytes + 1
    for memory in range(least - 1025, least + 2049, 512):
        with suppress(ed.PlanError):
            narrow = ed.plan(ed.parse(text), 2, memory=memory, **usual)
            wide = ed.plan(ed.parse(text), 2, inputs="sharded", memory=memory)
            assert wide.cost <= narrow.cost
            continue
        with pytest.raises(ed.PlanError):
            ed.plan(ed.parse(text), 2, memory=memory, **usual)
