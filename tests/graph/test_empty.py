"""Dimensions of size 0: of nothing an aggregation is its identity, from the text to the run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eindecomp as ed

INF = np.inf
PRODUCT = "Z[i,k] <- sum X[i,j] * Y[j,k]"
TRIPLE = "Z[i,l] <- sum X[i,j] * Y[j,k] * V[k,l]"
CASES: list[tuple[str, str, Any]] = [
    ("X[i: 0]", "Z[] <- sum X[i]", 0),
    ("X[i: 0]", "Z[] <- max X[i]", -INF),
    ("X[i: 0]", "Z[] <- min X[i]", INF),
    ("X[i: 0]", "Z[] <- prod X[i]", 1),
    ("X[i: 0] int32", "Z[] <- max X[i]", -(2**31)),
    ("X[i: 0]", "Z[] <- all X[i]", True),
    ("X[i: 0]", "Z[i] <- exp(X[i])", np.zeros(0)),
    ("X[i: 3, j: 0]", "Z[i] <- max X[i,j]", np.full(3, -INF)),
    ("X[i: 3, j: 0]", "Z[j] <- sum X[i,j]", np.zeros(0)),
    ("X[i: 3, j: 0]", "Z[i] <- lse X[i,j]", np.full(3, -INF)),
    ("X[i: 0, j: 3]", "Z[i] <- argmax[j] X[i,j]", np.zeros(0)),
    ("X[i: 0, j: 9]", "Y[i] <- argmax[j] X[i,j]\nZ[i] <- Y[i] + 1", np.zeros(0)),
    ("X[i: 3, j: 0], Y[j, k: 4]", PRODUCT, np.zeros((3, 4))),
    ("X[i: 0, j: 5], Y[j, k: 4]", PRODUCT, np.zeros((0, 4))),
    ("X[i: 2], Y[j: 0], V[k: 3]", "Z[] <- sum X[i] * Y[j] * V[k]", 0),
    ("X[i: 3, j: 0], Y[j, k: 4], V[k, l: 2]", TRIPLE, np.zeros((3, 2))),
    ("X[i: 3, j: 5], Y[j, k: 0], V[k, l: 2]", TRIPLE, np.zeros((3, 2))),
    ("X[i: 0, j: 5], Y[j, k: 4], V[k, l: 2]", TRIPLE, np.zeros((0, 2))),
    ("X[i: 3, j: 0], Y[j, k: 4], V[k]", "Z[i] <- max X[i,j] + Y[j,k] + V[k]", np.full(3, -INF)),
    ("X[i: 0, j: 5], Y[i, k: 4]", "Z[j,k] <- sum (X[i,j] - Y[i,k])**2", np.zeros((5, 4))),
    ("X[i: 0, j: 5]", "Z[i,j] <- softmax[j] X[i,j]", np.zeros((0, 5))),
    ("X[i: 0, j: 5]", "Z[i,j] <- softmax[i] X[i,j]", np.zeros((0, 5))),
    ("X[i: 4]", "Z[i] <- X[i in 2:2]", np.zeros(0)),
    ("X[i: 0], Y[i]", "Z[i] <- concat[i](X[i], Y[i])", np.zeros(0)),
    ("X[i: 4, j: 0]", "Z[(i, j)] <- X[i,j]", np.zeros(0)),
    ("X[i: 4, j: 0]", "Z[j,i] <- X[i,j]", np.zeros((0, 4))),
    ("X[i: 0]", "Z[p,q] <- X[(p: 4, q)]", np.zeros((4, 0))),
    ("X[v: 4, a: 2], Y[b: 0] int32", "Z[b,a] <- X[Y[b], a]", np.zeros((0, 2))),
    ("X[v: 0, a: 2], Y[b: 0] int32", "Z[b,a] <- X[Y[b], a]", np.zeros((0, 2))),
    ("X[b: 0, a: 2], Y[b] int32", "Z[v: 3 = Y[b], a] <- sum X[b,a]", np.zeros((3, 2))),
    ("X[i: 4]", "Z[i, k: 0] <- X[i]", np.zeros((4, 0))),
    ("X[i: 4]", "Z[k: 0] <- fill k", np.zeros(0)),
    ("X[i: 3, j: 0]", "Z[i] <- sum j with X[i,j]", np.zeros(3)),
]
LSE = "monoid lse(x; y) = max(x, y) + log(exp(x - max(x, y)) + exp(y - max(x, y))) identity -inf"


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("inputs", "text", "wanted"), CASES)
def test_nothing(inputs: str, text: str, wanted: Any) -> None:
    graph = ed.parse(f"{LSE if 'lse' in text else ''}\ninput {inputs}\n{text}\noutput Z")
    assert ed.parse(str(graph)) == graph
    given = {v.name: np.ones(v.shape, v.dtype) for v in graph.inputs}
    expected = ed.evaluate(graph, given)["Z"]
    np.testing.assert_array_equal(expected, wanted)
    assert expected.shape == np.shape(wanted)
    for devices in (1, 2, 3, 6, 8):
        plan = ed.plan(graph, devices)
        found = ed.run(plan, given)
        np.testing.assert_array_equal(found["Z"], wanted)
        assert found["Z"].dtype == expected.dtype
        assert found.stats.bytes_moved == plan.cost
    assert ed.plan(graph, 4, objective="bound", rewrite=False).explain()
    machine = ed.Machine(flops=1e9, memory_bandwidth=1e9, bandwidth=1e6)
    for rewrite in (True, False):
        timed = ed.plan(graph, 4, objective="time", machine=machine, rewrite=rewrite)
        np.testing.assert_array_equal(ed.run(timed, given)["Z"], wanted)
    unlike = ed.plan(graph, 4, strategy=["i", "k", "a"], rewrite=False)
    np.testing.assert_array_equal(ed.run(unlike, given)["Z"], wanted)


def test_gradients_of_nothing_are_nothing() -> None:
    text = f"input X[i: 3, j: 0], Y[j, k: 2]\n{PRODUCT}\nloss[] <- sum Z[i,k]**2\noutput loss"
    graph = ed.grad(ed.parse(text), "loss", wrt=["X", "Y"])
    given = {"X": np.zeros((3, 0)), "Y": np.zeros((0, 2))}
    found = ed.run(ed.plan(graph, 3), given)
    assert (found["loss"], found["grad_X"].shape, found["grad_Y"].shape) == (0, (3, 0), (0, 2))


def test_arrays_of_nothing() -> None:
    found = ed.einsum("ij,jk->ik", np.ones((2, 0)), np.ones((0, 3)))
    np.testing.assert_array_equal(found, np.zeros((2, 3)))
