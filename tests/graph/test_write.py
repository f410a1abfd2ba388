"""Printing: parse(str(g)) == g."""

import pytest
from hypothesis import given, settings

import eindecomp as ed
from eindecomp.lang.monoid import MAX
from eindecomp.lang.scalar import Expr, to_text
from eindecomp.lang.text.resolve import parse_join
from strategies import exprs, graphs


@given(graphs())
@settings(max_examples=settings.default.max_examples * 4)
def test_graphs_round_trip(graph: ed.Graph) -> None:
    again = ed.parse(str(graph))
    assert again == graph
    assert hash(again) == hash(graph)
    assert str(again) == str(graph)


@given(exprs(3, scalars=("lr",)))
@settings(max_examples=settings.default.max_examples * 10)
def test_expressions_round_trip(expr: Expr) -> None:
    assert parse_join(to_text(expr), 3, {"lr"}) == expr


STATEMENTS = [
    "input X[i: 3, j: 4] bfloat16",
    "input X[]",
    "input X[i: 3], Y[i: 4]",
    "scalar lr\nscalar step int64\ninput X[i: 3]\nZ[i] <- X[i] * lr + float32(step)",
    "input X[i: 3]\nZ[i] <- (-X[i])**2 - -X[i]**-2 / (X[i] / 3)",
    "input X[i: 3]\nZ[i] <- X[i] - (X[i] - 1) - (2 - 1)",
    "input X[i: 3]\nZ[i] <- (-1)**X[i] + neg(1) + 2.0**-1",
    "input X[i: 3]\nZ[i] <- not (X[i] > 1 and X[i] < 2 or X[i] == 3)",
    "input X[i: 3] complex64\nZ[i] <- X[i] * complex(0.0, -1.0) + -inf",
    "input X[i: 3, j: 2]\nZ[i] <- max (-X[i,j])",
    "input X[i: 3, j: 2]\nZ[i] <- sum (X[i,j] - 1) * 2",
    "input X[i: 3, j: 2]\nZ[i] <- max max(X[i,j], 0)",
    "input X[i: 3, j: 2], Y[k: 2]\nZ[i] <- sum X[i,j] with Y[k]",
    "input X[i: 3, j: 2]\nZ[] <- any X[i,j] > 1",
    "input X[i: 3, j: 3]\nZ[i, wide: 5] <- X[i,i]",
    "input input_[in_: 3]\nfill_[in_] <- input_[in_]",
    "input naïve[größe: 3]\nZ[größe] <- exp(naïve[größe])",
    "input W[i: 3]\nV[i] <- 2 * W[i]\noutput V\ntie W <- V",
    "input A[i: 3], B[j: 3], tie[tie: 3]\nC[i] <- A[i] + tie[i]\nD[i] <- A[i] - B[i]\n"
    "output C, D\ntie B <- C, A <- D",
    "monoid m(x; y) = max(x, y) identity -inf\ninput X[i: 3]\nZ[] <- m X[i]",
    "monoid p(a, b; c, d) = (a + c, b * d) identity (0, 1)\ninput X[i: 3]\nZ[] <- p.1 (X[i], X[i])",
    "monoid p(a, b; c, d) = (a + c, b * d) identity (0, 1) finish a / b grad (1 / d, result / b)\n"
    "input X[i: 3]\nZ[] <- p (X[i], 2.0)\nY[] <- p.0 (X[i], 2.0)",
]


@pytest.mark.parametrize("text", STATEMENTS)
def test_statements_round_trip(text: str) -> None:
    graph = ed.parse(text)
    assert ed.parse(str(graph)) == graph


def test_inputs_in_any_order_and_number_print_as_the_join_reads_them() -> None:
    g = ed.Graph()
    x, y = g.input("X", {"i": 2}), g.input("Y", {"i": 2})
    g.einsum("i,i,i->i", x, y, x, join="y - z * x", name="Z")
    assert str(g).splitlines()[-1] == "Z[i] <- Y[i] - X[i] * X[i]"
    assert ed.parse(str(g)) == g


def test_a_monoid_object_prints_with_its_declaration() -> None:
    g = ed.Graph()
    x = g.input("X", {"i": 2})
    hypot = ed.monoid("hypot", "sqrt(x**2 + y**2)", identity=0)
    g.einsum("i->", x, join="x", agg=hypot, name="Z")
    g.einsum("i->", x, join="x", agg=MAX, name="M")
    assert str(g).splitlines()[0] == "monoid hypot(x; y) = sqrt(x**2 + y**2) identity 0"
    assert ed.parse(str(g)) == g


def test_tensors_with_dots_in_their_names_read_back() -> None:
    text = (
        "input layers.0.w[i: 4, j: 6]\n"
        "input x.0[i: 4]\n"
        "y.1[j] <- sum layers.0.w[i,j] * x.0[i]\n"
        "y.1.i_j[j: 6] <- fill j\n"
        "best[] <- first_max.0 (y.1[j], y.1.i_j[j])\n"
        "output best"
    )
    graph = ed.parse(text)
    assert str(graph).splitlines()[-6:] == text.splitlines()
    assert ed.parse(str(graph)) == graph


@pytest.mark.parametrize("text", ["input a.[i: 3]", "input a..b[i: 3]", "scalar a.b", "input .a[]"])
def test_dots_stand_between_words_of_tensors_only(text: str) -> None:
    with pytest.raises(ed.TextError):
        ed.parse(text)
