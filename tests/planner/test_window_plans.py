"""Plans of what is read at computed places: against brute force, and by hand."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from brute_bytes import prime_axes
from brute_ops import ops_oracle
from brute_pending import pending_oracle
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from simulate import simulate

import eindecomp as ed
from eindecomp.planner.make import plan as make_plan
from window_cases import random_case

plan = partial(make_plan, pending=False, rewrite=False)
SEEDS = st.integers(0, 2**32)
INPUTS = st.sampled_from(["free", "sharded"])
SOME = settings(max_examples=3 * settings.default.max_examples)

STENCIL = """
input U[i: {n}, j: {n}]
V[i: {a}, j: {a}] <- U[i+1, j+1] / 2 + (U[i, j+1] + U[i+2, j+1] + U[i+1, j] + U[i+1, j+2]) / 8
W[i: {b}, j: {b}] <- V[i+1, j+1] / 2 + (V[i, j+1] + V[i+2, j+1] + V[i+1, j] + V[i+1, j+2]) / 8
output W
"""


@SOME
@given(seed=SEEDS, devices=st.sampled_from([2, 3, 4, 6]), inputs=INPUTS)
def test_plans_are_optimal(seed, devices, inputs):
    graph = random_case(seed, most=2, largest=6).graph
    oracle = ops_oracle(graph, prime_axes(devices), inputs)
    assume(oracle.cells <= 1 << 14)
    made = plan(graph, devices, inputs=inputs)
    assert made.cost == oracle.least() >= made.bound


@given(seed=SEEDS, inputs=INPUTS)
def test_plans_whose_results_may_wait_are_optimal(seed, inputs):
    graph = random_case(seed, most=2, largest=5, calm=True).graph
    oracle = pending_oracle(graph, (2,), inputs)
    assume(oracle.cells <= 1 << 14)
    made = ed.plan(graph, 2, inputs=inputs, rewrite=False)
    assert made.bound <= made.cost == oracle.least()


@SOME
@given(
    seed=SEEDS,
    devices=st.integers(1, 12),
    inputs=INPUTS,
    pieces=st.sampled_from(["balanced", "even", "ceil"]),
    rewrite=st.booleans(),
)
def test_the_cost_is_what_devices_receive(seed, devices, inputs, pieces, rewrite):
    graph = random_case(seed, largest=9).graph
    asked = {"inputs": inputs, "pieces": pieces, "time_limit": 5}
    made = make_plan(graph, devices, pending=False, rewrite=rewrite, **asked)
    assert simulate(made).total == made.cost >= made.bound


def stencil(n):
    return ed.parse(STENCIL.format(n=n, a=n - 2, b=n - 4))


def test_a_stencil_is_divided_into_squares_and_only_halos_move():
    made = ed.plan(stencil(1024), 4)
    assert made.cost == made.bound == 16_320
    assert made.parts == {"V": {"i": 2, "j": 2}, "W": {"i": 2, "j": 2}}
    strips = ed.plan(stencil(1024), 4, strategy=["i"], pending=False)
    # Of V's 1,022 rows devices have 255 or 256, and of W's 1,020 they make 255, for which they read
    # 3, 2, 2 and 2 rows of others, each 1,020 long.
    assert strips.cost == 36_720 > made.cost
    small = ed.plan(stencil(64), 4, strategy=["i"], pending=False)
    assert simulate(small).total == small.cost
    assert "in windows over axis0, j in 1:1021 in windows over axis1" in made.explain(width=200)


@pytest.mark.parametrize("devices", [2, 4, 6, 9])
def test_small_stencils_are_optimal(devices):
    for n in (8, 11):
        for inputs in ("free", "sharded"):
            oracle = ops_oracle(stencil(n), prime_axes(devices), inputs)
            made = plan(stencil(n), devices, inputs=inputs)
            assert made.cost == oracle.least() == made.bound


LAYERS = """
input X[b: {b}, h: {n}, w: {n}, c: 8], K[y: 3, x: 3, c: 8, d: 8], L[y: 3, x: 3, d: 8, e: 8]
Y[b,h,w,d] <- sum X[b, h+y-1 else 0, w+x-1 else 0, c] * K[y,x,c,d]
R[b,h,w,d] <- relu(Y[b,h,w,d])
Z[b,h,w,e] <- sum R[b, h+y-1 else 0, w+x-1 else 0, d] * L[y,x,d,e]
output Z
"""


@pytest.mark.parametrize("inputs", ["free", "sharded"])
def test_one_large_image_is_cut_in_space_and_many_small_ones_in_batch(inputs):
    text = LAYERS.replace("Y[b,h,w,d]", "Y[b, h: {n}, w: {n}, d]", 1)
    text = text.replace("Z[b,h,w,e]", "Z[b, h: {n}, w: {n}, e]", 1)
    one = ed.plan(ed.parse(text.format(b=1, n=256)), 8, inputs=inputs)
    for parts in one.parts.values():
        assert parts["h"] * parts["w"] == 8
    many = ed.plan(ed.parse(text.format(b=256, n=16)), 8, inputs=inputs)
    for parts in many.parts.values():
        assert parts["b"] == 8


def test_labels_that_only_windows_have_are_cut_too():
    graph = ed.parse("input X[i: 1025]\nZ[] <- sum (X[i in 1:1025] - X[i in 0:1024])**2\noutput Z")
    made = ed.plan(graph, 4)
    assert made.parts["Z"] == {"i": 4}
    assert made.cost == 2 * 3 * 4  # one number from each of three, and back
    # Where it is stored once, the 256 that each reads first begin one later than those it has.
    stored = ed.plan(graph, 4, inputs="sharded")
    assert stored.cost == simulate(plan(graph, 4, inputs="sharded")).total


def test_concatenations_are_cut_along_their_label():
    graph = ed.parse(
        "input X[i: 64, j: 6], Y[i: 64, j: 6]\nE[i,j] <- exp(X[i,j])\nF[i,j] <- exp(Y[i,j])\n"
        "Z[i,j] <- concat[i](E[i,j], F[i,j])\nS[i,j] <- Z[i,j] * 2\noutput S"
    )
    made = plan(graph, 8)
    assert made.cost == ops_oracle(graph, (2, 2, 2), "free").least() == made.bound
    assert simulate(plan(graph, 8, strategy=["i"])).total == plan(graph, 8, strategy=["i"]).cost


def test_saved_plans_have_windows(tmp_path):
    made = ed.plan(stencil(64), 4, inputs="sharded")
    made.save(tmp_path / "plan.json")
    loaded = ed.Plan.load(tmp_path / "plan.json")
    assert loaded.graph == made.graph
    assert (loaded.cost, loaded.parts) == (made.cost, made.parts)


def test_what_labels_of_windows_alone_take_is_simulated():
    n = 2**24
    text = f"input X[i: {n + 1}]\nZ[] <- sum (X[i in 1:{n + 1}] - X[i in 0:{n}])**2\noutput Z"
    graph = ed.parse(text)
    made = ed.plan(graph, 4, objective="time", machine="cpu-cluster")
    assert made.parts["Z"] == {"i": 4}
    assert ed.simulate(made).seconds > 0


ROWS = (
    "input X[b: 4, n: 8], K[r: 3]\nY[b, w: 6] <- sum X[b, w + r] * K[r]\nZ[b] <- sum {}\noutput Z"
)


def test_rows_beside_windows_go_through_in_microbatches():
    made = ed.plan(ed.parse(ROWS.format("Y[b,w]**2")), 2, microbatches={"b": 2})
    arrays = {"X": np.arange(32.0).reshape(4, 8), "K": np.array([1.0, 2.0, -1.0])}
    wanted = ed.evaluate(ed.parse(ROWS.format("Y[b,w]**2")), arrays)
    np.testing.assert_allclose(ed.run(made, arrays)["Z"], wanted["Z"])
    shifted = ROWS.format("Y[b - 1 else 0, w]").replace("Z[b]", "Z[b: 4]")
    with pytest.raises(ed.PlanError, match=r"Z\[b\] (does not read the rows|reads at places)"):
        ed.plan(ed.parse(shifted), 2, microbatches={"b": 2})


def test_what_is_wider_than_its_reader_is_not_followed():
    graph = ed.parse("""
        input X[i: 8, j: 6], K[j: 6, i: 8]
        Y[i,j] <- max[r: 1] X[i, 3 - 2*j - r else 2.5] * K[j,i]
        A[w: 4] <- Y[w - 1 else clamp, 3]
        B[w: 1] <- A[w + 3]
        output B
    """)
    for devices in (2, 4):
        asked = {"objective": "time", "machine": "cpu-cluster", "inputs": "sharded"}
        made = ed.plan(graph, devices, **asked)
        assert made.bound <= made.cost
