"""Reference semantics against numpy.einsum, plain loops and hand-computed values."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import array_api_strict
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import eindecomp as ed
from eindecomp.graph import evaluate as module
from eindecomp.lang.scalar import Arg, Call, Const, Expr, Scalar
from strategies import SIZES, exprs, labels


@st.composite
def specs(draw: st.DrawFn) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    inputs = draw(st.lists(labels(unique=False), min_size=1, max_size=3))
    known = sorted({label for part in inputs for label in part})
    output = draw(st.lists(st.sampled_from(known), unique=True)) if known else []
    return inputs, tuple(output)


@given(specs(), st.sampled_from(["float64", "complex128", "int64"]))
def test_multiply_sum_is_numpys_einsum(
    spec: tuple[list[tuple[str, ...]], tuple[str, ...]], dtype: str
) -> None:
    inputs, output = spec
    rng = np.random.default_rng(0)
    g = ed.Graph()
    given_: dict[str, Any] = {}
    for k, own in enumerate(inputs):
        shape = tuple(SIZES[label] for label in own)
        g.input(f"X{k}", {f"n{d}": size for d, size in enumerate(shape)}, dtype)
        given_[f"X{k}"] = rng.integers(-4, 5, shape).astype(dtype)
    # A leading space makes even one-label operands spaced ones.
    text = ", ".join(" ".join(own) for own in inputs) + " -> " + " ".join(output)
    if any(len(part.split()) > 1 for part in (*text.split(" -> ")[0].split(","), " ".join(output))):
        z = g.einsum(text, *given_, name="Z")
        g.output(z)
        number = {label: k for k, label in enumerate(SIZES)}
        sublists = [[number[label] for label in own] for own in inputs]
        mixed = [x for k, own in enumerate(sublists) for x in (given_[f"X{k}"], own)]
        expected = np.einsum(*mixed, [number[label] for label in output])
        np.testing.assert_allclose(ed.evaluate(g, given_)["Z"], expected)


PYTHON = {
    "add": lambda x, y: float(x) + float(y),
    "sub": lambda x, y: float(x) - float(y),
    "mul": lambda x, y: float(x) * float(y),
    "neg": lambda x: -float(x),
    "abs": lambda x: abs(float(x)),
    "min": min,
    "max": max,
    "sin": math.sin,
    "tanh": math.tanh,
    "erf": math.erf,
    "where": lambda c, x, y: x if c else y,
    "lt": lambda x, y: x < y,
    "ge": lambda x, y: x >= y,
    "relu": lambda x: max(float(x), 0.0),
    "sigmoid": lambda x: 1 / (1 + math.exp(-float(x))),
}
COMBINE = {
    "sum": lambda x, y: x + y, "prod": lambda x, y: x * y, "max": max, "min": min,
    "any": lambda x, y: bool(x) or bool(y), "all": lambda x, y: bool(x) and bool(y),
}  # fmt: skip


def by_hand(expr: Expr, values: list[float], lr: float) -> Any:
    match expr:
        case Arg(index):
            return values[index]
        case Const(value):
            return value
        case Scalar():
            return lr
        case Call(op, args):
            return PYTHON[op](*(by_hand(arg, values, lr) for arg in args))
        case _:
            raise AssertionError(expr)


@given(exprs(2, tuple(PYTHON), ("lr",)), st.sampled_from(sorted(COMBINE)))
def test_any_join_and_aggregation_is_three_loops(join: Expr, agg: str) -> None:
    g = ed.Graph()
    g.scalar("lr")
    g.input("X", {"i": 3, "j": 4}, "float64")
    g.input("Y", {"j": 4, "k": 2}, "float64")
    operands = [("X", ("i", "j")), ("Y", ("j", "k"))]
    g.output(g.add_einsum(("i", "k"), operands, join, agg, "Z", {"i": 3, "k": 2}))
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((3, 4)), rng.standard_normal((4, 2))
    expected = np.zeros((3, 2))
    for i, k in itertools.product(range(3), range(2)):
        # As plain numbers: NumPy's truth values do not add up.
        joined = [float(by_hand(join, [x[i, j], y[j, k]], 0.75)) for j in range(4)]
        total = joined[0] if agg not in ("any", "all") else bool(joined[0])
        for value in joined[1:]:
            total = COMBINE[agg](total, value)
        expected[i, k] = total
    found = ed.evaluate(g, {"X": x, "Y": y, "lr": 0.75})["Z"]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def run(text: str, **inputs: Any) -> Any:
    graph = ed.parse(f"{text}\noutput Z")
    return ed.evaluate(graph, inputs)["Z"]


A = np.arange(6.0).reshape(2, 3)
CASES = [
    ("Z[j,i] <- X[i,j]", A.T),
    ("Z[] <- sum X[i,j]", 15.0),
    ("Z[i, k: 2] <- sum X[i,j]", [[3, 3], [12, 12]]),
    ("Z[i,j] <- X[i, j in 1:3]", A[:, 1:3]),
    ("Z[j,i] <- X[i, j in 1:3]", A[:, 1:3].T),
    ("Z[i,j] <- X[i, j in 1:3] * 0 + 1", np.ones((2, 2))),
    ("Z[(j, i)] <- X[i,j]", A.T.ravel()),
    ("Z[i,j] <- concat[j](X[i,j], X[i,j] * 2)", np.hstack([A, 2 * A])),
    ("Y[j,i] <- X[i,j]\nZ[i,j] <- concat[i](X[i,j], Y[j,i])", np.vstack([A, A])),
    ("K[n: 4] <- fill where(n > 2, 0, n)\nZ[n,i] <- X[i, K[n]]", A[:, [0, 1, 2, 0]].T),
    ("K[n: 2] <- fill 1 - n\nZ[n,j] <- X[K[n], j in 0:2]", A[[1, 0], :2]),
    ("K[j: 3] <- fill min(j, 1)\nZ[i, r: 2 = K[j]] <- sum X[i,j]", [[0, 3], [3, 9]]),
    ("K[i: 2, j: 3] <- fill min(j, 1)\nZ[i, r: 2 = K[i,j]] <- sum X[i,j]", [[0, 3], [3, 9]]),
    ("Z[i,j] <- fill i * 10 + j", [[0, 1, 2], [10, 11, 12]]),
    ("Z[i] <- sum X[i,j] with X[k,l]", [18, 72]),
    ("Z[i] <- all X[i,j] < 3", [True, False]),
    ("Z[i] <- sum X[i,j] > 0", [2, 3]),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_by_hand(text: str, expected: Any) -> None:
    np.testing.assert_array_equal(run(f"input X[i: 2, j: 3]\n{text}", X=A), expected)


def test_a_tuple_monoid_keeps_its_state_and_finishes_it() -> None:
    welford = ed.monoid(
        "variance",
        "(x0 + y0, x1 + y1, x2 + y2)",
        identity=(0, 0, 0),
        finish="x2 / x0 - (x1 / x0)**2",
    )
    g = ed.Graph()
    x = g.input("X", {"i": 5, "j": 7}, "float64")
    g.output(g.einsum("ij->i", x, join="(1.0, x, x * x)", agg=welford, name="Z"))
    g.output(g.einsum("ij->i", x, join="(1.0, x, x * x)", agg="variance.1", name="S"))
    values = np.random.default_rng(0).standard_normal((5, 7))
    found = ed.evaluate(g, {"X": values})
    np.testing.assert_allclose(found["Z"], values.var(axis=1))
    np.testing.assert_allclose(found["S"], values.sum(axis=1))


def test_a_constant_finish_fills_the_tensor() -> None:
    text = "monoid one(x; y) = x + y identity 0 finish 1.0\ninput X[i: 2, j: 3]\nZ[i] <- one X[i,j]"
    np.testing.assert_array_equal(run(text, X=A), [1, 1])


def test_one_pass_attention_is_softmax_times_values() -> None:
    graph = ed.load("examples/one_pass_attention.ein")
    rng = np.random.default_rng(0)
    given_ = {v.name: rng.standard_normal(v.shape) for v in graph.inputs}
    scores = given_["Q"] @ given_["K"].T / 8
    weights = np.exp(scores - scores.max(1, keepdims=True))
    expected = weights / weights.sum(1, keepdims=True) @ given_["V"]
    np.testing.assert_allclose(ed.evaluate(graph, given_)["Y"], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_accumulates_in_float32(dtype: str) -> None:
    z = run(f"input X[i: 4096] {dtype}\nZ[] <- sum X[i]", X=np.ones(4096, np.float32))
    assert z == 4096
    assert z.dtype == (ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16)


TYPES = [
    ("int32", "X[i] + 1", "int32"),
    ("int32", "X[i] + 1.5", "float32"),
    ("int64", "X[i] / 2", "float32"),
    ("bool", "X[i] + X[i]", "int64"),
    ("float16", "X[i] * 2.5", "float16"),
    ("float64", "exp(X[i])", "float64"),
    ("bfloat16", "X[i] * lr", "bfloat16"),
    ("complex64", "abs(X[i])", "float32"),
    ("uint8", "X[i] > 1", "bool"),
    ("float32", "X[i] * complex(0, 1)", "complex64"),
    ("int8", "float64(X[i])", "float64"),
]


@pytest.mark.parametrize(("dtype", "join", "expected"), TYPES)
def test_types(dtype: str, join: str, expected: str) -> None:
    graph = ed.parse(f"scalar lr\ninput X[i: 2] {dtype}\nZ[i] <- {join}\noutput Z")
    assert graph["Z"].dtype.name == expected
    assert ed.evaluate(graph, {"X": np.ones(2, bool), "lr": 0.5})["Z"].dtype.name == expected


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "input X[i: 7, j: 5], Y[j, k: 6]\nZ[k,i] <- max abs(X[i,j] - Y[j,k])"
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((7, 5)), rng.standard_normal((5, 6))
    whole = run(text, X=x, Y=y)
    for block in (1, 3, 11):
        monkeypatch.setattr(module, "BLOCK", block)
        np.testing.assert_array_equal(run(text, X=x, Y=y), whole)


READERS: list[Any] = [
    torch.tensor,
    lambda x: torch.tensor(x, requires_grad=True),
    lambda x: torch.tensor(x, dtype=torch.bfloat16),
    array_api_strict.asarray,
    lambda x: x.astype(">f8"),
    lambda x: x.tolist(),
]


@pytest.mark.parametrize("read", READERS)
def test_any_array_is_accepted(read: Any) -> None:
    z = run("input X[i: 2, j: 3]\nZ[i] <- sum X[i,j]", X=read(A))
    np.testing.assert_array_equal(z, A.sum(1))


def test_inputs_stay_as_they_are_and_nan_passes_through() -> None:
    x = np.asfortranarray(np.array([[1.0, np.nan], [2.0, 3.0]]))
    x.flags.writeable = False
    before = x.copy()
    z = run("input X[i: 2, j: 2] float64\nZ[i] <- max X[i,j]", X=x)
    np.testing.assert_array_equal(z, [np.nan, 3])
    np.testing.assert_array_equal(x, before)


WRONG = [
    ({}, "missing inputs: X, lr"),
    ({"X": np.ones((2, 3)), "lr": 1, "W": 1}, "'W' is not an input"),
    ({"X": np.ones((3, 2)), "lr": 1}, r"X\[i,j\] has shape \(2, 3\), got \(3, 2\)"),
    ({"X": np.ones((2, 3), complex), "lr": 1}, "complex128 would lose information"),
    ({"X": np.ones((2, 3)), "lr": [1, 2]}, "'lr' must be a single number"),
    ({"X": [[1, 2], [3]], "lr": 1}, "'X' cannot be read as an array"),
    ({"X": np.array([["a"] * 3] * 2), "lr": 1}, "has dtype float32, got"),
    ({"X": np.ma.ones((2, 3)), "lr": 1}, "is a masked array"),
]


@pytest.mark.parametrize(("inputs", "message"), WRONG)
def test_wrong_inputs_are_refused(inputs: dict[str, Any], message: str) -> None:
    graph = ed.parse("scalar lr\ninput X[i: 2, j: 3]\nZ[i] <- sum X[i,j] * lr\noutput Z")
    with pytest.raises(ed.InputError, match=message):
        ed.evaluate(graph, inputs)


def test_integers_that_do_not_fit_and_indices_out_of_range_are_refused() -> None:
    with pytest.raises(ed.InputError, match="does not hold all the values"):
        run("input X[i: 1] int8\nZ[i] <- X[i]", X=[1000])
    with pytest.raises(ed.InputError, match="index 3 is outside 0 to 1"):
        run("input X[i: 2], K[n: 1] int32\nZ[n] <- X[K[n]]", X=[1, 2], K=[3])


REFUSED = [
    ("input X[i: 2] int8\nZ[i] <- X[i] + 300", "literal 300 does not fit int8"),
    ("input X[i: 2] uint8\nZ[i] <- where(X[i] > 5, -1, X[i])", "literal -1 does not fit uint8"),
    ("input X[i: 2] int32\nZ[i] <- X[i]**-1", "an integer to a negative power"),
    ("monoid m(x; y) = max(x, y) identity -1e3\ninput X[i: 2] int8\nZ[] <- m X[i]", "does not fit"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_integers_that_cannot_be_are_refused_before_anything_runs(text: str, message: str) -> None:
    with pytest.raises(ed.TextError, match=message):
        ed.parse(text)


def test_what_numpy_refuses_names_the_vertex() -> None:
    with pytest.raises(ed.InputError, match=r"Z\[i\] cannot be computed: .*negative"):
        run("input X[i: 2] int32, Y[i] int32\nZ[i] <- X[i]**Y[i]", X=[1, 2], Y=[-1, 1])


def test_truth_values_count_even_where_nothing_is_aggregated() -> None:
    for text, expected in (
        ("Z[i] <- sum X[i] > 1", [0, 1]),
        ("Z[i] <- -true + sign(true) + (X[i] - X[i])", [0, 0]),
        ("K[i: 2] <- fill i - i\nB[i] <- X[i] > 0\nZ[v: 2 = K[i]] <- sum B[i]", [2, 0]),
        ("D[c: 2] <- fill c + 1\nK[b: 2] <- fill b\nZ[v: 3 = K[b]] <- sum D[c]", [3, 3, 0]),
    ):
        found = run(f"input X[i: 2] int64\n{text}", X=[1, 2])
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == np.int64


def test_a_size_written_in_the_target_is_the_size() -> None:
    found = run("input X[i: 3], Y[k: 5]\nZ[k: 4, i] <- X[i] * size(k)", X=np.ones(3), Y=np.ones(5))
    np.testing.assert_array_equal(found, np.full((4, 3), 4))


SCALARS = [
    ("uint8", 200, "a * 2", 400),
    ("uint8", 2, "a - 3", -1),
    ("float16", 100, "X[] * (a * 1000)", 1e5),
    ("bool", True, "a - a + X[]", 1),
]


@pytest.mark.parametrize(("dtype", "value", "join", "expected"), SCALARS)
def test_run_time_scalars_lend_only_their_kind(
    dtype: str, value: float, join: str, expected: float
) -> None:
    assert run(f"scalar a {dtype}\ninput X[]\nZ[] <- {join}", X=1, a=value) == expected


def test_masked_keys_do_not_hurt_one_pass_attention() -> None:
    monoid = Path("examples/one_pass_attention.ein").read_text().split("input")[0]
    text = f"{monoid}input U[k: 4], V[k]\nZ[] <- attend (U[k], 1, V[k])"
    assert run(text, U=[-np.inf, 0, -np.inf, 0], V=[9, 1, 9, 3]) == 2


def test_an_input_that_is_an_output_is_a_copy() -> None:
    graph = ed.parse("input X[i: 2]\noutput X")
    x = np.ones(2, np.float32)
    assert not np.shares_memory(ed.evaluate(graph, {"X": x})["X"], x)


def test_a_tensor_larger_than_memory_is_refused_before_it_is_made() -> None:
    with pytest.raises(ed.InputError, match=r"Z\[i\] .* needs .* GiB"):
        run("input X[]\nZ[i: 1000000000000000] <- X[]", X=1)


def test_a_plan_stands_for_its_graph() -> None:
    graph = ed.parse("input X[i: 3]\nY[i] <- X[i] * 2\nZ[] <- sum Y[i]\noutput Z")
    x = {"X": np.arange(3)}
    assert ed.evaluate(ed.plan(graph, 2), x)["Z"] == ed.evaluate(graph, x)["Z"] == 6


@pytest.mark.parametrize("given", [None, 5, "graph", {"X": 1}])
def test_only_graphs_and_plans_are_evaluated(given: object) -> None:
    with pytest.raises(ed.InputError, match="takes a graph or a plan"):
        ed.evaluate(given, {})  # type: ignore[arg-type]
