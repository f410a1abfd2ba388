"""Random EinSums, operands laid out in every way, and the reference's answer."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from eindecomp.graph.evaluate import compute
from eindecomp.graph.infer import BareOperand, infer
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.dtypes import DType
from eindecomp.lang.einsum import EinSum, canonical_inputs, product
from eindecomp.lang.monoid import BUILTIN, Monoid
from eindecomp.lang.scalar import Arg, Const, Expr, Tuple, call, used_args

Array = np.ndarray[Any, Any]
x, y, z, w = (Arg(k) for k in range(4))
LOGSUMEXP = Monoid(
    "logsumexp",
    Tuple((
        call("max", x, z),
        call(
            "add",
            call("mul", y, call("exp", call("sub", x, call("max", x, z)))),
            call("mul", w, call("exp", call("sub", z, call("max", x, z)))),
        ),
    )),
    (Const(-1e30), Const(0.0)),
    finish=call("add", x, call("log", y)),
)  # fmt: skip
SIZES = {"a": 2, "b": 3, "c": 5, "d": 1, "e": 40}
JOINS: dict[int, list[Expr]] = {
    1: [
        x,
        call("exp", call("neg", call("abs", x))),
        call("pow", x, 2),
        call("where", call("gt", x, 0), x, call("mul", x, 0.5)),
        call("tanh", x),
    ],
    2: [
        product(2),
        call("abs", call("sub", x, y)),
        call("pow", call("sub", x, y), 2),
        call("max", x, call("add", y, 1)),
        call("float32", call("lt", x, y)),
    ],
    3: [product(3), call("where", call("ge", x, y), z, call("neg", x))],
}
TYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int8", "uint8", "bool")


def layouts(array: Array, how: int) -> Array:
    """The same values, laid out otherwise: sliced, transposed, reversed, read-only."""
    if array.ndim == 0:
        return array
    if how == 1:
        wide = np.zeros([2 * n + 1 for n in array.shape], array.dtype)
        view = wide[tuple(slice(1, 2 * n + 1, 2) for n in array.shape)]
        view[...] = array
        return view
    if how == 2:
        return array.T.copy().T
    if how == 3:
        back = tuple(slice(None, None, -1) for _ in array.shape)
        return array[back].copy()[back]
    if how == 4:
        array = array.copy()
        array.flags.writeable = False
    return array


def values_of(shape: tuple[int, ...], of: DType, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if of.kind == "b":
        return np.asarray(rng.random(shape) > 0.5)
    if of.kind in "iu":
        return np.asarray(rng.integers(0 if of.kind == "u" else -4, 5, shape)).astype(of)
    found = rng.standard_normal(shape)
    if of.kind == "c":
        found = found + 1j * rng.standard_normal(shape)
    return np.asarray(found).astype(of)


@st.composite
def specs(draw: st.DrawFn, count: int) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    own = st.lists(st.sampled_from(sorted(SIZES)), max_size=3).map(tuple)
    inputs = [draw(own) for _ in range(count)]
    known = sorted({*(label for part in inputs for label in part), "d", "b"})
    return inputs, tuple(draw(st.lists(st.sampled_from(known), unique=True, max_size=3)))


@st.composite
def einsums(draw: st.DrawFn) -> EinSum:
    count = draw(st.sampled_from([1, 2, 2, 3]))
    inputs, output = draw(specs(count))
    join = draw(st.sampled_from(JOINS[count]))
    named = [(f"X{k}", own) for k, own in enumerate(inputs)]
    join, operands = canonical_inputs(join, named)
    inputs = [own for _, own in operands]
    agg: Monoid | None = draw(st.sampled_from([*BUILTIN.values(), LOGSUMEXP, None]))
    summed = {label for own in inputs for label in own} - set(output)
    if agg is None and summed:
        agg = BUILTIN["sum"]
    if agg == LOGSUMEXP:
        join = Tuple((join, Const(1.0)))
    assert len(used_args(join)) <= count
    return EinSum(tuple(inputs), output, join, agg)


def out_type(op: EinSum, types: tuple[DType, ...]) -> DType:
    parts = [
        BareOperand(f"X{k}", tuple(SIZES[label] for label in own), t)
        for k, (own, t) in enumerate(zip(op.inputs, types, strict=True))
    ]
    return infer(op, parts, SIZES, {})[1]


def reference(op: EinSum, operands: list[Array], out: DType, sizes: dict[str, int]) -> Array:
    shape = tuple(sizes[label] for label in op.output)
    vertex = Vertex("Z", op, tuple(f"X{k}" for k in range(len(operands))), shape, out)
    with np.errstate(all="ignore"):
        return compute(vertex, operands, {}, {})


def assert_close(found: Array, expected: Array, of: DType) -> None:
    if of.kind in "biu":
        np.testing.assert_array_equal(found, expected)
        return
    wide = np.complex128 if of.kind == "c" else np.float64
    rough = {"float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-10, "complex128": 1e-10}
    tolerance = rough.get(of.name, 2e-5)
    np.testing.assert_allclose(
        found.astype(wide), expected.astype(wide), rtol=tolerance, atol=tolerance
    )
