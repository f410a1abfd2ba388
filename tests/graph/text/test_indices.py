"""One index, a label's own number, and indices that are computed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eindecomp as ed

X = np.arange(24.0).reshape(2, 3, 4)
HEAD = "input X[a: 2, b: 3, c: 4]\n"
FEW = settings(max_examples=max(1, settings.default.max_examples // 4))

STATEMENTS: list[tuple[str, Any]] = [
    ("Z[a,c] <- X[a, 1, c]", X[:, 1]),
    ("Z[c,a] <- X[a, -1, c]", X[:, -1].T),
    ("Z[c] <- X[1, 2, c] * 2 + X[0, 0, c]", X[1, 2] * 2 + X[0, 0]),
    ("Z[] <- X[1, 2, 3]", X[1, 2, 3]),
    ("Z[a] <- sum X[a, 2, c in 1:3]", X[:, 2, 1:3].sum(1)),
    ("Z[a,p,q] <- X[a, 0, (p: 2, q)]", X[:, 0].reshape(2, 2, 2)),
    ("Z[a,b,c] <- where(b == c, X[a,b,c], 0)", np.where(np.eye(3, 4, dtype=bool), X, 0)),
    ("Z[a] <- sum X[a,b,c] * (c - b)", (X * (np.arange(4) - np.arange(3)[:, None])).sum((1, 2))),
    ("Z[b] <- sum index(b) with X[a,b,c]", np.arange(3) * 8),
    ("Z[b, d: 5] <- X[0, b, 0] + 10 * d", X[0, :, :1] + 10 * np.arange(5)),
    ("Z[d: 6] <- d % 4 // 2", np.arange(6) % 4 // 2),
    ("Z[] <- sum[a, b, c] 1", 24),
    ("Z[a] <- sum[b](1) with X[a,b,c]", None),
    ("Z[b] <- sum[a, c](X[a,b,c] * c)", (X * np.arange(4)).sum((0, 2))),
    ("Z[] <- max[n: 7](n * (5 - n))", 6),
    ("Z[a,b] <- sum[c] X[a,b,c] * 2 + 1", (X * 2 + 1).sum(2)),
    ("Z[a,b] <- sum [c](X[a,b,c] - 1)**2 / 2", ((X - 1) ** 2 / 2).sum(2)),
    ("Z[b] <- sum[a,c] c * X[a,b,c]", (X * np.arange(4)).sum((0, 2))),
    ("Z[d: 3] <- sum[n: 4] d", 4 * np.arange(3)),
    ("Z[a,b] <- any[c] not X[a,b,c] > 5 and c < 2", (~(X > 5) & (np.arange(4) < 2)).any(2)),
    ("Z[a] <- sum 1 with X[a,b,c]", np.full(2, 12)),
]


@pytest.mark.parametrize(("text", "wanted"), STATEMENTS, ids=[text for text, _ in STATEMENTS])
def test_statements(text: str, wanted: Any) -> None:
    if wanted is None:
        with pytest.raises(ed.TextError, match="label 'c' is aggregated too"):
            ed.parse(f"{HEAD}{text}\noutput Z")
        return
    graph = ed.parse(f"{HEAD}{text}\noutput Z")
    assert ed.parse(str(graph)) == graph
    np.testing.assert_allclose(ed.evaluate(graph, {"X": X})["Z"], wanted)
    for devices in range(1, 9):
        for rewrite in [True, False] if devices == 4 else [True]:
            plan = ed.plan(graph, devices, rewrite=rewrite)
            found = ed.run(plan, {"X": X})
            np.testing.assert_allclose(found["Z"], wanted)
            assert found.stats.bytes_moved == plan.cost


def test_one_index_is_one_vertex() -> None:
    graph = ed.parse(f"{HEAD}Z[a,c] <- X[a, -2, c]\noutput Z")
    assert str(graph).splitlines()[1] == "Z[a,c] <- X[a, 1, c]"
    g = ed.Graph()
    x = g.input("X", {"a": 2, "b": 3, "c": 4})
    g.output(g.slice("abc", x, {"b": 1}, "Z"))
    assert g == graph


def test_scalars_go_before_labels_and_index_always_is_one() -> None:
    graph = ed.parse(f"scalar b\n{HEAD}Z[b] <- sum b * index(b) + 0 * X[a,b,c]\noutput Z")
    assert ed.parse(str(graph)) == graph
    found = ed.evaluate(graph, {"X": X, "b": 5.0})["Z"]
    assert found.tolist() == [0, 40, 80]


def test_a_label_may_have_the_name_of_a_constant() -> None:
    graph = ed.parse("input X[pi: 3]\nZ[pi] <- X[pi] + index(pi) + 0 * pi\noutput Z")
    assert ed.parse(str(graph)) == graph
    assert ed.evaluate(graph, {"X": np.zeros(3)})["Z"].tolist() == [0, 1, 2]


def test_labels_in_python() -> None:
    g = ed.Graph()
    g.input("X", {"i": 3, "j": 4})
    g.output(g.einsum("ij->i", "X", join="where(i == j, x, 0)", name="Z"))
    g.output(g.einsum("xy->x", "X", join="x * index(x) + y", name="W"))
    assert ed.parse(str(g)) == g
    x = X[0]
    found = ed.evaluate(g, {"X": x})
    assert found["Z"].tolist() == np.diagonal(x).tolist()
    wanted = (x * np.arange(3)[:, None] + np.arange(4)).sum(1)
    assert found["W"].tolist() == wanted.tolist()
    assert ed.einsum("ij->i", x, join="j", devices=3).tolist() == [6, 6, 6]
    with pytest.raises(ed.GraphError, match="label 'k' is in no input and has no size"):
        g.einsum("ij->ijk", "X", join="x * k")


def test_macros_count_on_labels_too() -> None:
    text = """
    macro lower[i, j](X[*b, i, j], least = 0) -> Y[*b, i, j] {
        Y[*b, i, j] <- where(i - j >= least, X[*b, i, j], 0)
    }
    scalar c
    """
    graph = ed.parse(f"{text}{HEAD}Z[a,b,c] <- lower[c, b](X[a,b,c], least = 1)\noutput Z")
    wanted = np.where(np.arange(4) - np.arange(3)[:, None] >= 1, X, 0)
    np.testing.assert_array_equal(ed.evaluate(graph, {"X": X, "c": 7.0})["Z"], wanted)


@FEW
@given(devices=st.integers(1, 8), at=st.integers(-3, 2), low=st.integers(0, 3))
def test_gradients(devices: int, at: int, low: int) -> None:
    graph = ed.parse(f"{HEAD}loss[] <- sum X[a, {at}, c in {low}:4] ** 2 * (a + 1)\noutput loss")
    graph = ed.grad(graph, "loss", wrt=["X"])
    wanted = np.zeros_like(X)
    wanted[:, at, low:] = 2 * X[:, at, low:] * np.array([[1], [2]])
    found = ed.run(ed.plan(graph, devices), {"X": X})
    np.testing.assert_allclose(found["grad_X"], wanted)


COMPUTED: dict[str, Callable[[Any, Any], Any]] = {
    "w + r": lambda w, r: w + r,
    "2 * w + r": lambda w, r: 2 * w + r,
    "w * 2 + 1": lambda w, _: w * 2 + 1,
    "size(n) - 1 - w": lambda w, _: 7 - w,
    "w + r + 1": lambda w, r: w + r + 1,
    "-w + size(n) - r - 1": lambda w, r: 7 - w - r,
}


@pytest.mark.parametrize("index", COMPUTED)
def test_a_sum_of_labels_is_an_index(index: str) -> None:
    r = 3 if re.search(r"\br\b", index) else 1
    output = "b,w,r" if r == 3 else "b,w"
    head = "input X[b: 2, n: 8], K[r: 3]\n"
    value = f"X[b, {index}] + 0 * K[r]" if r == 3 else f"X[b, {index}]"
    graph = ed.parse(f"{head}Z[{output}] <- {value}\noutput Z")
    assert ed.parse(str(graph)) == graph
    x = np.arange(16.0).reshape(2, 8)
    w = graph["Z"].shape[1]
    wanted = x[:, COMPUTED[index](np.arange(w)[:, None], np.arange(r))]
    found = ed.evaluate(graph, {"X": x, "K": np.ones(3)})["Z"]
    np.testing.assert_array_equal(found, wanted.reshape(graph["Z"].shape))
    for longer in (f"w: {w + 1}", f"w: {w + 7}"):
        text = f"{head}Z[{output.replace('w', longer)}] <- {value}\noutput Z"
        with pytest.raises(ed.TextError, match="outside 0 to 7: say what lies there"):
            ed.parse(text)


GATHERED: dict[str, Callable[[Any], Any]] = {
    "w % 3": lambda w: w % 3,
    "w // 2 + 1": lambda w: w // 2 + 1,
    "abs(w)": lambda w: w,
}


@pytest.mark.parametrize("index", GATHERED)
def test_other_indices_are_refused_with_the_gather_that_does_it(index: str) -> None:
    head = "input X[b: 2, n: 8]\n"
    with pytest.raises(ed.TextError, match="gather it, such as") as caught:
        ed.parse(f"{head}Z[b,w] <- X[b, {index}]\noutput Z")
    fill, use = str(caught.value).replace("SIZE", "3").splitlines()[1:3]
    ref = use.replace("…", "").strip()
    graph = ed.parse(f"{head}{fill}\nZ[b,w] <- {ref}\noutput Z")
    x = np.arange(16.0).reshape(2, 8)
    wanted = x[:, GATHERED[index](np.arange(3))]
    np.testing.assert_array_equal(ed.evaluate(graph, {"X": x})["Z"], wanted)


def test_a_split_beside_a_lookup() -> None:
    text = "input T[v: 7, a: 20], ids[b: 3] int32\nS[b,x,y] <- T[ids[b], (x: 10, y)]\noutput S"
    graph = ed.parse(text)
    assert ed.parse(str(graph)) == graph
    table, ids = np.arange(140.0).reshape(7, 20), np.array([1, 5, 0])
    found = ed.evaluate(graph, {"T": table, "ids": ids})["S"]
    np.testing.assert_array_equal(found, table[ids].reshape(3, 10, 2))


@pytest.mark.parametrize(("index", "at"), [("size(b) - 1", 2), ("2 - size(a)", 0)])
def test_an_index_of_sizes_is_a_number(index: str, at: int) -> None:
    graph = ed.parse(f"{HEAD}Z[a,c] <- X[a, {index}, c]\noutput Z")
    assert graph == ed.parse(f"{HEAD}Z[a,c] <- X[a, {at}, c]\noutput Z")
    np.testing.assert_array_equal(ed.evaluate(graph, {"X": X})["Z"], X[:, at])
