"""Memory that is given up is used for nothing that somebody still has."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import JAX, RAY, TORCH

import eindecomp as ed

SIDE = 1024  # of arrays that are large enough to be kept for the next run
DOUBLE = f"input W[i: {SIDE}, j: {SIDE}]\nnew_W[i,j] <- W[i,j] * 2\noutput new_W"
ENGINES = ["threads", "apart", TORCH, JAX, RAY]
every_engine = pytest.mark.parametrize("engine", ENGINES)


def full(value):
    return np.full((SIDE, SIDE), value, np.float32)


@pytest.fixture(params=ENGINES)
def executable(request):
    return ed.compile(ed.plan(ed.parse(DOUBLE), 2), request.param)


def _own(executable, value):
    """A tensor whose memory nobody else has."""
    return executable({"W": full(value)}).tensor("new_W")


def test_a_tensor_placed_again_outlives_the_first(executable):
    first = _own(executable, 1)
    second = executable.place({"W": first})["W"]
    executable({"W": first}, donate=["W"])
    for _ in range(2):
        executable({"W": _own(executable, 5)}, donate=["W"])
    assert (second.numpy() == 2).all()


def test_memory_that_is_named_twice_is_given_up_once(executable):
    executable({"W": _own(executable, 1)}, donate=["W", "W"])
    results = [executable({"W": _own(executable, v)}, donate=["W"]) for v in (10, 20)]
    assert [result["new_W"][0, 0] for result in results] == [40, 80]


@every_engine
def test_one_tensor_for_two_inputs_is_given_up_once(engine):
    text = f"input A[i: {SIDE}, j: {SIDE}], B[i, j]\nC[i,j] <- A[i,j] + 1\nD[i,j] <- B[i,j] + 2\n"
    executable = ed.compile(ed.plan(ed.parse(text + "output C, D"), 2), engine)
    both = executable({"A": full(0), "B": full(0)}).tensor("C")
    executable({"A": both, "B": both}, donate=["A", "B"])
    made = executable({"A": full(1), "B": full(1)})
    again = executable({"A": made.tensor("C"), "B": made.tensor("D")}, donate=["A", "B"])
    assert (again["C"] == 3).all()
    assert (again["D"] == 5).all()


@every_engine
@pytest.mark.parametrize("other", ENGINES)
def test_a_tensor_of_any_engine_can_be_given_up(engine, other):
    plan = ed.plan(ed.parse(DOUBLE), 2)
    given = _own(ed.compile(plan, other), 1)
    found = ed.compile(plan, engine)({"W": given}, donate=["W"])
    assert (found["new_W"] == 4).all()
    with pytest.raises(ed.InputError, match="was donated or released"):
        given.numpy()


@every_engine
def test_an_output_that_is_a_donated_input_is_there(engine):
    graph = ed.parse("input X[i: 4]\nZ[i] <- X[i] + 1\noutput Z, X")
    executable = ed.compile(ed.plan(graph, 2), engine)
    x = np.arange(4, dtype=np.float32)
    result = executable(executable.place({"X": x}), donate=["X"])
    np.testing.assert_array_equal(result["X"], x)
    np.testing.assert_array_equal(result["Z"], x + 1)
