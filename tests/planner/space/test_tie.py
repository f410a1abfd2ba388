"""Ties: an input lies where the result that replaces it does, and wrong ties are named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulate import simulate

import eindecomp as ed
from eindecomp.store.plan_file import from_json, to_json

STEP = ed.parse("""
    input X[i: 8, j: 8], W[j, k: 8], V[j, k], B[k], D[j, k] float64
    Y[i,k] <- sum X[i,j] * W[j,k]
    G[j,k] <- sum X[i,j] * Y[i,k]
    W2[j,k] <- W[j,k] - G[j,k] * B[k]
    L[k] <- sum G[j,k] + V[j,k]
    E[j,k] <- exp(D[j,k])
    F[j: 8, k: 8] <- fill j >= k
    output W2, L, E, F, G
""")


@pytest.mark.parametrize(
    ("tie", "message"),
    [
        (3, "a tie is {input: result}, not 3"),
        ("W", "a tie is {input: result}, not 'W'"),
        ([("W", "W2")], "a tie is {input: result}, not"),
        ({"W": 3}, "a tie is {input: result}, not {'W': 3}"),
        ({"W": ["W2"]}, "a tie is {input: result}, not"),
        ({3: "W2"}, "a tie is {input: result}, not"),
        ({"Q": "W2"}, "tie: the graph has no input 'Q'; known: "),
        ({"Y": "W2"}, "tie: the graph has no input 'Y'"),
        ({"W2": "W"}, "tie: the graph has no input 'W2'; did you mean 'W'?"),
        ({"W": "Y"}, "tie: the graph has no output 'Y'"),
        ({"W": "X"}, "tie: the graph has no output 'X'"),
        ({"W": "L"}, "tie: W[j,k] is float32 [8, 8], but L[k] is float32 [8]"),
        ({"W": "E"}, "tie: W[j,k] is float32 [8, 8], but E[j,k] is float64 [8, 8]"),
        ({"W": "F"}, "tie: F[j,k] is not computed, so that 'W' cannot be what it leaves"),
        ({"W": "W2", "V": "W2"}, "tie: 'W2' is tied to two inputs"),
    ],
)
def test_wrong_ties_are_named(tie, message):
    with pytest.raises(ed.PlanError) as error:
        ed.plan(STEP, 4, tie=tie)
    assert message in str(error.value)


def test_what_ties_cannot_be_joined_with_is_said():
    with pytest.raises(ed.PlanError, match=r"'W' and 'W2' are tied and have one home"):
        ed.plan(STEP, 4, tie={"W": "W2"}, pin={"W": {"j": 2}, "W2": {"k": 2}})
    with pytest.raises(ed.PlanError, match=r"objective 'bound' has no layouts: pin, tie and"):
        ed.plan(STEP, 4, tie={"W": "W2"}, objective="bound")


@given(
    devices=st.sampled_from([1, 2, 3, 4, 6, 8]),
    inputs=st.sampled_from(["free", "sharded"]),
    tie=st.sampled_from([{}, {"W": "W2"}, {"W": "G"}, {"W": "W2", "V": "G"}, {"B": "L"}]),
)
def test_a_tied_input_lies_where_its_result_does(devices, inputs, tie):
    found = ed.plan(STEP, devices, inputs=inputs, tie=tie)
    assert found.tie == tie
    for name, result in tie.items():
        assert found.given[name].home == found.decisions[result].home
    assert set(found.given) == set(tie if inputs == "free" else "XWVBD")
    assert simulate(found).total == found.cost == found.bound
    assert inputs == "sharded" or found.cost >= ed.plan(STEP, devices).cost


def test_a_pin_of_the_result_is_one_of_the_input():
    found = ed.plan(STEP, mesh={"a": 2, "b": 2}, tie={"W": "W2"}, pin={"W2": {"k": ["b", "a"]}})
    assert [span.axes for span in found.given["W"].home] == [(), (1, 0)]
    assert simulate(found).total == found.cost


def test_a_pin_of_a_tied_input_is_named_as_it_was_given():
    graph = ed.parse("""
        input X[i: 8, j: 8], V[p: 4, q: 8], ids[i] int32
        A[i,j] <- exp(X[i,j])
        new_V[r: 4 = ids[i], s] <- sum A[i,s]
        new_X[m,n] <- X[m,n] + A[n,m]
        output new_X, new_V
    """)
    tie = {"X": "new_X", "V": "new_V"}
    for pin, message in (
        ({"X": {"i": 16}}, "pin: X[i,j] cannot be cut 16 ways along 'i' of 8"),
        ({"X": {"m": 2}}, "pin: X[i,j] has no label 'm'"),
        ({"X": {"i": 3}}, "cut X[i,j] as {'i': 3}"),
        ({"V": {"p": 2}}, "pin: V[p,q] is tied to new_V[r,s], which cannot be cut along 'r'"),
    ):
        with pytest.raises(ed.PlanError) as error:
            ed.plan(graph, 4, tie=tie, pin=pin)
        assert message in str(error.value)
    found = ed.plan(graph, 4, tie=tie, pin={"X": {"j": 4}})
    assert found.pin == {"X": {"j": 4}}
    assert "pinned X," in str(found)
    assert found.given["X"].home == found.decisions["new_X"].home
    assert from_json(to_json(found)) == found
    assert [row.refused for row in found.compare({"columns": ["j", "n"]})] == [None, None]
    both = ed.plan(graph, 4, tie=tie, pin={"X": {"j": 4}, "new_X": {"n": 4}})
    assert both.cost == found.cost
    moved = to_json(found).replace(b'"j": 4', b'"i": 4')
    with pytest.raises(ed.PlanError, match=r"where 'X', which is tied to it, is pinned, {'i': 4}"):
        from_json(moved)


def test_an_input_that_no_output_needs_can_be_tied():
    graph = ed.parse("input X[i: 8], W[i]\nU[i] <- exp(W[i])\nY[i] <- exp(X[i])\noutput Y")
    found = ed.plan(graph, 2, tie={"W": "Y"})
    assert found.tie == {"W": "Y"}
    assert found.given["W"] == found.decisions["Y"].layouts
    assert found.cost == 0
