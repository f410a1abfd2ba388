"""Monoids: laws are checked at birth, identities fit every type."""

import math

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.lang.dtypes import dtype
from eindecomp.lang.monoid import BUILTIN, MAX, MIN, SUM

CHOICE = "where(x0 > y0, x1, where(x0 < y0, y1, max(x1, y1)))"
LAWFUL = [
    ("lse", "max(x, y) + log(1 + exp(-abs(x - y)))", -math.inf),
    ("hypot", "sqrt(x**2 + y**2)", 0),
    ("times", "x * y", 1.0),
    ("both", "x * y + x + y", 0),
    ("xor", "x != y", False),
    ("moments", "(x0 + y0, (x0 * x1 + y0 * y1) / (x0 + y0))", (0, 0)),
    ("argmax", f"(max(x0, y0), {CHOICE})", (-1e30, -1e30)),
]
LAWLESS = [
    ("minus", "x - y", 0, "x ⊕ y ≠ y ⊕ x"),
    ("average", "(x + y) / 2", 0, "≠ x ⊕"),
    ("shifted", "x + y", 1, "identity ⊕ x ≠ x"),
    ("left", "x", 0, "x ⊕ y ≠ y ⊕ x"),
    ("argmax", "(max(x0, y0), where(x0 >= y0, x1, y1))", (-1e30, -1e30), "x ⊕ y ≠ y ⊕ x"),
]


@pytest.mark.parametrize(("name", "combine", "identity"), LAWFUL)
def test_lawful_definitions_are_accepted(name: str, combine: str, identity: float) -> None:
    assert ed.monoid(name, combine, identity).name == name


@pytest.mark.parametrize(("name", "combine", "identity", "law"), LAWLESS)
def test_lawless_ones_are_refused_with_an_example(
    name: str, combine: str, identity: float, law: str
) -> None:
    with pytest.raises(ed.ExpressionError, match=f"'{name}' is not a commutative monoid: .*{law}"):
        ed.monoid(name, combine, identity)


MALFORMED = [
    ({"name": "exp", "combine": "x + y", "identity": 0}, "it is a function"),
    ({"name": "input", "combine": "x + y", "identity": 0}, "a word of the language"),
    ({"name": "m", "combine": "(x0 + y0, x1 + y1)", "identity": 0}, "unknown name 'x0'"),
    ({"name": "m", "combine": "x0 + y0", "identity": (0, 0)}, "yields 1 values, not 2"),
    ({"name": "m", "combine": "x + q", "identity": 0}, "unknown name 'q'"),
    ({"name": "m", "combine": "x + y", "identity": 0, "finish": "y"}, "reads more than 1"),
    ({"name": "m", "combine": "x + y", "identity": (0,) * 20}, "."),
]


@pytest.mark.parametrize(("parts", "message"), MALFORMED)
def test_malformed_definitions_are_refused(parts: dict[str, object], message: str) -> None:
    with pytest.raises(ed.EinDecompError, match=message):
        ed.monoid(**parts)  # type: ignore[arg-type]


def test_identities_fit_the_type() -> None:
    assert MAX.identity_for([dtype("int8")]) == (-128,)
    assert MIN.identity_for([dtype("uint16")]) == (65535,)
    assert MAX.identity_for([dtype("bool")]) == (False,)
    assert SUM.identity_for([dtype("bfloat16")]) == (0,)


def test_identities_fit_the_type_that_accumulates() -> None:
    lse = ed.monoid("lse", "max(x, y) + log(1 + exp(-abs(x - y)))", -1e30)
    assert lse.result_type([dtype("float16")], {}) == dtype("float16")


@pytest.mark.parametrize("name", sorted(BUILTIN))
@pytest.mark.parametrize("of", ["bool", "int8", "float16", "float64"])
def test_built_in_ones_combine_with_their_identity(name: str, of: str) -> None:
    graph = ed.parse(f"input X[i: 1] {of}\nZ[] <- {name} X[i]\noutput Z")
    found = ed.evaluate(graph, {"X": np.array([1]).astype(of)})["Z"]
    assert found == 1


def test_a_monoid_of_one_name_is_one_monoid_in_a_graph() -> None:
    g = ed.Graph()
    x = g.input("X", {"i": 3})
    g.einsum("i->", x, agg=ed.monoid("m", "max(x, y)", -math.inf))
    with pytest.raises(ed.GraphError, match="'m' is defined in two ways"):
        g.einsum("i->", x, agg=ed.monoid("m", "min(x, y)", math.inf))


@pytest.mark.parametrize("name", ["mean", "softmax"])
def test_a_monoid_may_have_the_name_of_a_macro(name: str) -> None:
    g = ed.Graph()
    x = g.input("X", {"i": 3, "j": 2})
    g.output(g.einsum("i j -> i", x, join="-x", agg=ed.monoid(name, "x + y", 0), name="Z"))
    assert f"{name} (-X[i,j])" in str(g)
    assert ed.parse(str(g)) == g
    both = ed.parse(str(g).replace("output", "M[i] <- mean[j] X[i,j]\noutput"))
    assert str(both["M"].op.agg.name) == "sum"
