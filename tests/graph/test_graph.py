"""Graphs: building, equality, verification, size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import eindecomp as ed


def small() -> ed.Graph:
    g = ed.Graph()
    x, y = g.input("X", {"i": 3, "j": 4}), g.input("Y", {"j": 4, "k": 5})
    g.output(g.einsum("ij,jk->ik", x, y, name="Z"))
    return g


def test_vertices_say_what_they_are() -> None:
    g = small()
    assert [v.name for v in g.inputs] == ["X", "Y"]
    [z] = g.outputs
    assert (z.name, z.shape, z.dtype, z.labels) == ("Z", (3, 5), "float32", ("i", "k"))
    assert (z.sizes, z.elements, str(z)) == ({"i": 3, "k": 5}, 15, "Z[i,k]")
    assert g["Z"].inputs == ("X", "Y")
    assert g.users() == {"X": ["Z"], "Y": ["Z"], "Z": []}
    assert "Z" in g
    assert len(g) == 3
    assert repr(g) == "<Graph of 3 vertices, outputs: Z>"


def test_equality_is_structural() -> None:
    g, h = small(), small()
    assert g == h
    assert hash(g) == hash(h)
    assert g != "graph"
    h.input("W", {"i": 3})
    assert g != h
    other = ed.Graph()
    other.input("Y", {"j": 4, "k": 5})
    other.input("X", {"i": 3, "j": 4})
    other.output(other.einsum("ij,jk->ik", "X", "Y", name="Z"))
    assert other == g


def test_ties_are_part_of_a_graph() -> None:
    g, h = (ed.parse("input W[i: 3], X[i]\nV[i] <- W[i] * X[i]\noutput V") for _ in range(2))
    g.tie(g["W"], "V")
    assert g.ties == {"W": "V"}
    assert g != h
    h.tie("W", "V")
    assert (g, hash(g)) == (h, hash(h))
    g._ties["X"] = "V"  # as a broken pass might leave it
    with pytest.raises(ed.GraphError, match="'V' is tied to two inputs"):
        g.verify()


WRONG: list[tuple[Callable[[ed.Graph], object], str]] = [
    (lambda g: g.input("X", {"i": 3}), "the name 'X' is taken"),
    (lambda g: g.input("a b", {"i": 3}), "cannot name a tensor"),
    (lambda g: g.input("fill", {"i": 3}), "a word of the language"),
    (lambda g: g.input("W", {"i": -1}), "whole number, 0 or more"),
    (lambda g: g.input("W", {"i": 2.0}), "the size of 'i' must be a whole number, got 2.0"),
    (lambda g: g.input("W", {"1": 2}), "'1' is not a label"),
    (lambda g: g.input("W", {"i": 2}, "float8"), "unknown dtype 'float8'"),
    (lambda g: g.input("W", {"i": 2}, "datetime64"), "unknown dtype"),
    (lambda g: g.input("W", {"i": 2}, object()), "is not a dtype"),
    (lambda g: g.scalar("Z"), "the name 'Z' is taken"),
    (lambda g: g.einsum("ij->i", "W"), "no tensor 'W'"),
    (lambda g: g.einsum("ij->i", small().input("W", {"i": 1, "j": 1})), "belongs to another graph"),
    (lambda g: g.einsum("ijk->i", "X"), "'ijk' has 3 labels, but input 0 has rank 2"),
    (lambda g: g.einsum("ij,kj->i", "X", "Y", name="W"), "W: label 'j' has size 4"),
    (lambda g: g.einsum("ij->iq", "X"), "label 'q' is in no input and has no size"),
    (lambda g: g.einsum("ij->ii", "X"), "appears twice"),
    (lambda g: g.einsum("ij->i", "X", join="x +"), "the end of the line comes too early"),
    (lambda g: g.einsum("ij->i", "X", join="x + y"), "unknown name 'y'"),
    (lambda g: g.einsum("ij->i", "X", join="X[i,j]"), "a tensor cannot be used here"),
    (lambda g: g.einsum("ij->i", "X", join="(x, x)"), "yields 2 values"),
    (lambda g: g.einsum("ij->i", "X", agg="mode"), "'mode' is not a known commutative monoid"),
    (lambda g: g.einsum("ij->i", "X", join="x < complex(1, 2)"), "not defined on complex"),
    (lambda g: g.fill({"i": 3}, "j + 1"), "unknown name 'j'"),
    (lambda g: g.gather("v a, b -> v b a", "X", "Y"), "'b' has 1 labels"),
    (lambda g: g.gather("v a, b c -> b c a", "X", "Y"), "indices are integers"),
    (lambda g: g.gather("v a, b c -> v b c a", "X", "Y"), "one label of the table must be missing"),
    (
        lambda g: g.scatter_add("i j, j k -> i j", "X", "Y", 3),
        "one label .* must be new",
    ),
    (lambda g: g.concat("ij", "X", "Y", along="j"), "label 'i' has size 3"),
    (lambda g: g.concat("ij", along="j"), "at least one input"),
    (lambda g: g.slice("ij", "X", {"k": (0, 1)}), "has no label 'k'"),
    (lambda g: g.slice("ij", "X", {"j": (2, 9)}), "is not a range"),
    (lambda g: g.reshape("i j -> (i k)", "X"), "keeps its labels"),
    (lambda g: g.reshape("i (p q) -> i p q", "X"), "give sizes to all but one"),
    (lambda g: g.reshape("i (p q) -> i p q", "X", {"p": 3}), "does not divide"),
    (lambda g: g.reshape("i j -> i", "X"), "keeps its labels"),
    (lambda g: g.reshape("i j -> (i j)", "X", {"q": 4}), "no dimension has the label 'q'"),
    (lambda g: g.einsum("ij->i", "X", sizes={"i": 4}), "size 4 of label 'i' does not fit"),
    (lambda g: g.einsum("ij->i", "X", sizes={"q": 4}), "size 4 of label 'q' does not fit"),
    (lambda g: g.output("Z"), "an output already"),
    (lambda g: g.tie("W", "Z"), "no input 'W'"),
    (lambda g: g.tie("X", "Z"), r"X\[i,j\] is float32 \[3, 4\], but Z"),
    (lambda g: g.tie(small()["Z"], g["X"]), "no input 'Z'"),
    (lambda g: g.tie(ed.Graph().input("X", {"i": 9}), "Z"), "belongs to another graph"),
    (lambda g: g.tie("X", 5), "expected a tensor or its name, got 5"),
    # What is no tensor, name, size, … at all.
    (lambda g: g.einsum(5, "X"), "expected a spec string, got 5"),
    (lambda g: g.einsum("ij->i", 5), "expected a tensor or its name, got 5"),
    (lambda g: g.einsum("ij->i", "X", join=5), "expected a join, got 5"),
    (lambda g: g.einsum("ij->i", "X", agg=5), "expected an aggregation or its name, got 5"),
    (lambda g: g.einsum("ij->iq", "X", sizes={"q": "2"}), "the size of 'q' must be a whole number"),
    (lambda g: g.input(5, {"i": 3}), "a name is a string"),
    (lambda g: g.input("W", ["i"]), "sizes must map labels to whole numbers"),
    (lambda g: g.input("W", {"i": 3}, None), "None is not a dtype"),
    (lambda g: g.output(5), "expected a tensor or its name"),
    (lambda g: g.fill({"i": 3}, None), "expected the value of a fill"),
    (lambda g: g.fill({"pi": 3}, "pi"), "the name of a constant"),
    (lambda g: g.slice("ij", "X", {"j": "2"}), "a range must be a start and a stop, or one index"),
    (lambda g: g.slice("ij", "X", {"j": 4}), "index 4 of X is outside 0 to 3"),
    (lambda g: g.slice("ij", "X", {"j": (0.5, 2)}), "must be a whole number, got 0.5"),
    (lambda g: g.scatter_add("ij,ij->vj", "X", "X", 3.5), "must be a whole number, got 3.5"),
    (lambda g: ed.grad(g, "Z", [5]), "expected a tensor or its name, got 5"),
    (lambda _: ed.parse(b"input X[i: 3]"), "expected a text"),
    (lambda g: ed.evaluate(g, None), "inputs must be given by name"),
    (lambda _: ed.monoid("m", "x + y", "0"), "an identity must consist of numbers"),
    (lambda g: g.input("W", {f"l{k}": 1 for k in range(60)}), "at most 50 dimensions"),
    (lambda g: g["W"], "no tensor 'W'"),
]


@pytest.mark.parametrize(("misuse", "message"), WRONG)
def test_misuse_is_refused_and_leaves_the_graph_as_it_was(
    misuse: Callable[[ed.Graph], object], message: str
) -> None:
    g = small()
    with pytest.raises(ed.EinDecompError, match=message):
        misuse(g)
    assert g == small()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": (3, 6)}, r"has shape \(3, 6\) .* its inputs make it \(3, 5\)"),
        ({"dtype": "float64"}, "dtype float64"),
        ({"inputs": ("Y", "X")}, "label"),
        ({"inputs": ("X", "W")}, "reads 'W', which does not come before it"),
    ],
)
def test_verify_finds_what_does_not_fit(change: dict[str, object], message: str) -> None:
    g = small()
    wrong = replace(g["Z"], **change)
    with pytest.raises(ed.GraphError, match=message):
        ed.Graph.of([g["X"], g["Y"], wrong], ["Z"], {})
    g._vertices["Z"] = wrong  # as a broken pass might leave it
    with pytest.raises(ed.GraphError, match=message):
        g.verify()


@pytest.mark.long
def test_depth_costs_no_recursion() -> None:
    g = ed.Graph()
    x = g.input("X", {"i": 2})
    for _ in range(2000):
        x = g.einsum("i->i", x, join="x * 0.5 + 1")
    g.output(x)
    loss = g.einsum("i->", x, name="loss")
    g.output(loss)
    g.verify()
    assert ed.parse(str(g)) == g
    gradient = ed.rewrite(ed.grad(g, "loss", ["X"]))
    found = ed.evaluate(gradient, {"X": [1, 1]})
    assert found["loss"] == pytest.approx(4.0)


def test_a_graph_is_a_mapping_of_its_tensors() -> None:
    graph = ed.parse("input X[i: 3]\nY[i] <- exp(X[i])\nZ[] <- sum Y[i]\noutput Z")
    assert list(graph) == ["X", "Y", "Z"]
    assert len(graph) == 3
    assert [graph[name] for name in graph] == list(graph.vertices.values())
    assert "Y" in graph
    assert graph["Y"] in graph
    assert "U" not in graph
    assert 5 not in graph
    other = ed.parse("input X[i: 4]\noutput X")
    assert other["X"] not in graph
