"""Any EinSum, rewritten under any partition vector, is what direct evaluation gives."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from math import prod
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

import eindecomp as ed
from eindecomp import tra
from eindecomp.graph.evaluate import EinSumSteps
from eindecomp.lang.dtypes import dtype
from eindecomp.lang.monoid import BUILTIN
from eindecomp.lang.scalar import Arg, Const, Expr, from_values
from eindecomp.planner.space.viable import viable
from strategies import arrays, exprs

SIZES = (1, 2, 3, 4, 5, 7)
MOST_POINTS, MOST_CALLS = 2000, 48
REAL = ("bool", "int8", "int32", "int64", "uint8", "float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128", "float32", "int16")
# None of these makes values so large that the order of a sum decides whether it overflows.
REAL_JOINS = ("add", "sub", "mul", "neg", "abs", "max", "min", "where", "gt", "and", "relu", "sin")
COMPLEX_JOINS = ("add", "sub", "mul", "neg", "abs", "conj", "real")
TOLERANCE = {"float16": 2e-2, "bfloat16": 5e-2, "float32": 1e-3, "complex64": 1e-3}

AVERAGE = ed.monoid("average", "(x0 + y0, x1 + y1)", identity=(0, 0), finish="x0 / x1")
LENGTH = ed.monoid("length", "x + y", identity=0, finish="sqrt(x)")
VARIANCE = ed.monoid(
    "variance", "(x0 + y0, x1 + y1, x2 + y2)", (0, 0, 0), finish="x2 / x0 - (x1 / x0)**2"
)
ATTEND = ed.load("examples/one_pass_attention.ein").monoids["attend"]
ONE = Const(1)


@st.composite
def aggregations(draw: st.DrawFn, arity: int, functions: tuple[str, ...]) -> tuple[Expr, Any]:
    """A join with an aggregation that takes its values."""
    value, score = (draw(exprs(arity, functions, ("lr",))) for _ in range(2))
    square = from_values([ONE, value, draw(exprs(arity, functions))])
    choices: list[tuple[Expr, Any]] = [
        *((value, BUILTIN[name]) for name in ("sum", "sum", "max", "min", "any", "all")),
        (draw(st.sampled_from([Arg(0), Const(0.5)])) if arity else ONE, BUILTIN["prod"]),
        (from_values([value, ONE]), AVERAGE),
        (value, LENGTH),
        (square, VARIANCE),
        (square, VARIANCE.select(2)),
        (from_values([score, ONE, value]), ATTEND),
        (from_values([score, ONE, value]), ATTEND.select(1)),
    ]
    return draw(st.sampled_from(choices))


@st.composite
def einsums(draw: st.DrawFn) -> ed.Graph:
    """A graph of one EinSum, Z, that has at least one label."""
    sizes = {label: draw(st.sampled_from(SIZES)) for label in ("a", "b", "c", "long_label", "d")}
    names = st.sampled_from(sorted(sizes))
    types, functions = draw(st.sampled_from([(REAL, REAL_JOINS), (COMPLEX, COMPLEX_JOINS)]))
    g = ed.Graph()
    g.scalar("lr")
    operands: list[tuple[str, tuple[str, ...]]] = []
    for k in range(draw(st.integers(1, 3))):
        own = tuple(draw(st.lists(names, max_size=3)))
        operands.append((f"X{k}", own))
        shape = {f"n{axis}": sizes[label] for axis, label in enumerate(own)}
        g.input(f"X{k}", shape, draw(st.sampled_from(types)))
    # Labels of the output that no operand has are broadcast.
    output = tuple(draw(st.lists(names, max_size=3, unique=True)))
    known = {label for _, own in operands for label in own}
    if prod(sizes[label] for label in known.union(output)) > MOST_POINTS:
        reject()
    join, agg = draw(aggregations(len(operands), functions))
    try:
        g.output(g.add_einsum(output, operands, join, agg, "Z", sizes))
    except ed.EinDecompError:  # such as the greater of two complex numbers
        reject()
    return g


def sizes_of(graph: ed.Graph) -> dict[str, int]:
    vertex = graph["Z"]
    found = dict(vertex.sizes)
    for name, labels in zip(vertex.inputs, vertex.op.inputs, strict=True):  # type: ignore[union-attr]
        found |= graph[name].sizes_by(labels)
    return found


@st.composite
def partitions(draw: st.DrawFn, sizes: Mapping[str, int]) -> dict[str, int]:
    """Viable vectors for a few devices, and any other that makes few enough calls."""
    if draw(st.booleans()):
        return draw(st.sampled_from(viable(sizes, draw(st.sampled_from([2, 3, 4, 6, 8, 12])))))
    room, found = MOST_CALLS, dict[str, int]()
    for label in draw(st.permutations(sorted(sizes))):
        found[label] = draw(st.integers(1, min(sizes[label], room)))
        room //= found[label]
    return found


def given_parts(shape: tuple[int, ...]) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*(st.integers(1, min(size, 3)) for size in shape))


def values(graph: ed.Graph, seed: int) -> dict[str, Any]:
    """Numbers of at most 1, as fractions of 4 where the type has them."""
    found = arrays(graph, seed)
    for vertex in graph.inputs:
        if dtype(vertex.dtype).kind in "fcV":
            x = np.asarray(found[vertex.name]).astype("complex128")
            parts = [np.clip(np.round(part * 2) / 4, -1, 1) for part in (x.real, x.imag)]
            whole = parts[0] + (0.5j * parts[1] if vertex.dtype.kind == "c" else 0)
            found[vertex.name] = whole.astype(vertex.dtype)
    return found


def assert_equal(found: Any, expected: Any) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
        return
    tolerance = TOLERANCE.get(found.dtype.name, 1e-9)
    wide = np.result_type(np.complex128 if found.dtype.kind == "c" else np.float64)
    expected, found = expected.astype(wide), found.astype(wide)
    finite = np.abs(expected[np.isfinite(expected)])
    scale = 1 + (finite.max() if finite.size else 0)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * scale)


def rewritten(
    graph: ed.Graph, d: Mapping[str, int], inputs: list[tra.TensorRelation[Any]], lr: float
) -> tra.TensorRelation[Any]:
    vertex = graph["Z"]
    assert isinstance(vertex.op, ed.EinSum)
    return tra.rewrite_einsum(
        vertex.op, d, inputs, sizes=vertex.sizes, scalars={"lr": lr}, scalar_types=graph.scalars
    )


@given(einsums(), st.data())
def test_any_einsum_under_any_vector_is_what_it_evaluates_to(
    graph: ed.Graph, data: st.DataObject
) -> None:
    sizes = sizes_of(graph)
    d = data.draw(partitions(sizes))
    arrays_ = values(graph, data.draw(st.integers(0, 99)))
    expected = ed.evaluate(graph, arrays_)["Z"]
    inputs = [
        tra.from_tensor(arrays_[name], data.draw(given_parts(graph[name].shape)))
        for name in graph["Z"].inputs
    ]
    kernel = EinSumSteps.partial
    with mock.patch.object(EinSumSteps, "partial", autospec=True, side_effect=kernel) as calls:
        found = rewritten(graph, d, inputs, arrays_["lr"])
    assert calls.call_count == prod(d.values()), "N(d) kernel calls"
    assert found.parts == tuple(d[label] for label in graph["Z"].labels)
    assert_equal(tra.to_tensor(found), expected)


CASES = [
    "Z[i,k] <- sum X[i,j] * Y[j,k]",
    "Z[k,i] <- max abs(X[i,j] - Y[j,k])",
    "Z[i,j] <- X[i,j]",
    "Z[] <- sum Y[j,j]",
    "Z[j] <- Y[j,j] * 2",
    "Z[j,i] <- sum Y[j,j] * X[i,k]",
    "Z[i, w: 5] <- sum X[i,j]",
    "Z[w: 3, v: 2] <- max Y[j,k]",
    "Z[i] <- sum X[i,j] with Y[k,l]",
    "Z[i,k] <- 1 with X[i,k]",
    "Z[i] <- all X[i,j] > -1",
    "Z[i,k] <- sum X[i,j] * Y[j,k] * Y[k,j]",
    "Z[i] <- average (X[i,j], 1)",
    "Z[i,k] <- attend (X[i,j], 1, Y[j,k])",
]
ATTEND_TEXT = """
monoid average(s, n; t, m) = (s + t, n + m) identity (0, 0) finish s / n
monoid attend(m, s, v; n, t, w) = (
    max(m, n),
    s * where(m >= n, 1, exp(m - n)) + t * where(n >= m, 1, exp(n - m)),
    v * where(m >= n, 1, exp(m - n)) + w * where(n >= m, 1, exp(n - m))
  ) identity (-inf, 0, 0) finish v / s
input X[i: 4, j: 7], Y[j, k: 7]
"""


@pytest.mark.parametrize("text", CASES)
def test_every_form_under_every_small_vector(text: str) -> None:
    graph = ed.parse(f"{ATTEND_TEXT}\n{text}\noutput Z")
    arrays_ = arrays(graph)
    expected = ed.evaluate(graph, arrays_)["Z"]
    inputs = [tra.from_tensor(arrays_[name], (2, 3)) for name in graph["Z"].inputs]
    sizes = sizes_of(graph)
    for vector in itertools.product(*({1, min(3, n)} for n in sizes.values())):
        found = rewritten(graph, dict(zip(sizes, vector, strict=True)), inputs, 0.0)
        assert_equal(tra.to_tensor(found), expected)


def test_the_papers_product_in_halves() -> None:
    """100 × 200 times 200 × 50, each label in two: tiles of 50 × 100, 100 × 25 and 50 × 25."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((100, 200)), rng.standard_normal((200, 50))
    seen: set[Any] = set()
    kernel = EinSumSteps.partial

    def watched(self: EinSumSteps, tiles: Any) -> Any:
        found = kernel(self, tiles)
        seen.add((*(tile.shape for tile in tiles), found[0].shape))
        return found

    graph = ed.parse("input X[i: 100, j: 200], Y[j, k: 50] float64\nZ[i,k] <- sum X[i,j] * Y[j,k]")
    inputs = [tra.from_tensor(x, (1, 1)), tra.from_tensor(y, (1, 1))]
    with mock.patch.object(EinSumSteps, "partial", watched):
        found = rewritten(graph, {"i": 2, "j": 2, "k": 2}, inputs, 0.0)
    assert seen == {((50, 100), (100, 25), (50, 25))}
    np.testing.assert_allclose(tra.to_tensor(found), x @ y)


def test_a_planned_graph_is_computed_as_relations() -> None:
    """What one vertex leaves in its parts, the next takes and repartitions."""
    graph = ed.load("examples/multihead_attention.ein")
    plan = ed.plan(graph, devices=8, objective="bound")
    arrays_ = arrays(plan.graph)
    known = {n: tra.from_tensor(arrays_[n], [1] * np.ndim(arrays_[n])) for n in arrays_}
    for name, parts in plan.parts.items():
        vertex = plan.graph[name]
        assert isinstance(vertex.op, ed.EinSum)
        inputs = [known[n] for n in vertex.inputs]
        known[name] = tra.rewrite_einsum(vertex.op, parts, inputs, sizes=vertex.sizes)
    assert_equal(tra.to_tensor(known["Y"]), ed.evaluate(graph, arrays_)["Y"])


def test_an_einsum_may_have_no_inputs() -> None:
    found = tra.rewrite_einsum(ed.EinSum((), ("i",), Const(2)), {"i": 2}, [], sizes={"i": 3})
    assert [tile.tolist() for tile in found.tiles.values()] == [[2], [2, 2]]
    found = tra.rewrite_einsum(ed.EinSum((), (), Const(2)), {}, [])
    assert tra.to_tensor(found) == 2


def test_low_precision_is_rounded_once() -> None:
    """Partial sums stay in float32: 4096 ones in bfloat16 do not get stuck at 256."""
    graph = ed.parse("input X[i: 4096] bfloat16\nZ[] <- sum X[i]\noutput Z")
    found = rewritten(
        graph, {"i": 64}, [tra.from_tensor(np.ones(4096, dtype("bfloat16")), (1,))], 0
    )
    assert tra.to_tensor(found) == 4096
    assert tra.to_tensor(found).dtype == dtype("bfloat16")


def test_run_time_scalars_are_float32_unless_said_otherwise() -> None:
    graph = ed.parse("scalar lr int64\ninput X[i: 4] int64\nZ[i] <- X[i] * lr")
    op, inputs = graph["Z"].op, [tra.from_tensor([1, 2, 3, 4], (1,))]
    assert isinstance(op, ed.EinSum)
    found = tra.rewrite_einsum(op, {"i": 2}, inputs, scalars={"lr": 3})
    assert found[1,].dtype == np.float32
    found = tra.rewrite_einsum(
        op, {"i": 2}, inputs, scalars={"lr": 3}, scalar_types={"lr": "int64"}
    )
    assert found[1,].tolist() == [9, 12]
    assert found[1,].dtype == np.int64


MATMUL = ed.parse("input X[i: 4, j: 3], Y[j, k: 5]\nZ[i,k] <- sum X[i,j] * Y[j,k]")["Z"].op
WIDE = ed.parse("input X[i: 4]\nZ[i, w: 2] <- X[i]")["Z"].op
SCALED = ed.parse("scalar lr\ninput X[i: 4]\nZ[i] <- lr * X[i]")["Z"].op
POWER = ed.parse("input X[i: 4] int64\nZ[i] <- X[i] ** (0 - X[i])")["Z"].op
V = tra.from_tensor(np.arange(4), (2,))
X, Y = tra.from_tensor(np.ones((4, 3)), (2, 3)), tra.from_tensor(np.ones((3, 5)), (1, 1))
NAME = r"^i k <- sum \[i j\] \* \[j k\]: "
ERRORS: list[tuple[Any, Any, Any, dict[str, Any], str]] = [
    (MATMUL, {"j": 4}, [X, Y], {}, NAME + "label 'j' of size 3 cannot be cut into 4 pieces"),
    (MATMUL, {"j": 0}, [X, Y], {}, NAME + "label 'j' of size 3 cannot be cut into 0 pieces"),
    (MATMUL, {"j": 1.5}, [X, Y], {}, NAME + "the number of pieces of 'j' must be a whole number"),
    (
        MATMUL,
        (2, 1, 1),
        [X, Y],
        {},
        NAME + "a partition vector must map labels to numbers of pieces, got",
    ),
    (MATMUL, {"m": 2}, [X, Y], {}, NAME + "no label 'm' to cut; known: i, j, k"),
    (MATMUL, {}, [X], {}, NAME + "this EinSum has 2 inputs, got 1"),
    (MATMUL, {}, [X, X], {}, NAME + r"label 'j' has size 3 in x\[i,j\] but 4 in y\[j,k\]"),
    (MATMUL, {}, [X, V], {}, NAME + r"y\[j,k\] has 2 labels, but y has shape \(4,\)"),
    (MATMUL, {}, [X, np.ones((3, 5))], {}, NAME + "input 1 is of type ndarray, not a TensorRel"),
    (MATMUL, {}, [X, Y], {"sizes": {"k": 6}}, NAME + "label 'k' has size 5, not 6"),
    (MATMUL, {}, [X, Y], {"sizes": {"w": 6}}, NAME + "a size for 'w', which is not a label of the"),
    (WIDE, {}, [V], {}, r"^i w <- \[i\]: label 'w' is in no input and has no size: give it one"),
    (WIDE, {"w": 3}, [V], {"sizes": {"w": 2}}, "label 'w' of size 2 cannot be cut into 3 pieces"),
    (SCALED, {}, [V], {}, r"^i <- lr \* \[i\]: missing scalars: lr"),
    (SCALED, {}, [V], {"scalars": {"lr": 1j}}, "scalar 'lr' has dtype float32; complex128 would"),
    (POWER, {"i": 2}, [V], {}, r"\[i\]\*\*.* cannot be computed: Integers to negative integer pow"),
]


@pytest.mark.parametrize(("op", "parts", "inputs", "more", "message"), ERRORS)
def test_what_does_not_fit_is_refused(
    op: Any, parts: Any, inputs: Any, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(ed.EinDecompError, match=message):
        tra.rewrite_einsum(op, parts, inputs, **more)
