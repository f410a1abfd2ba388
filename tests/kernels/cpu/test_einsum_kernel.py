"""Kernels against the reference: whole tiles, and parts that are combined and finished."""

from __future__ import annotations

import ctypes
import math
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from random_tiles import (
    LOGSUMEXP,
    SIZES,
    TYPES,
    assert_close,
    einsums,
    layouts,
    out_type,
    reference,
    values_of,
)

from eindecomp.errors import EinDecompError, InputError
from eindecomp.kernels.cpu.compiling import compile as compiling
from eindecomp.kernels.cpu.einsum import EinSumKernel, einsum_kernel
from eindecomp.kernels.tile_arrays import sizes_of
from eindecomp.lang.dtypes import DType, concrete, dtype
from eindecomp.lang.einsum import EinSum, product
from eindecomp.lang.monoid import MAX, MIN, PROD, SUM, Monoid
from eindecomp.lang.scalar import (
    FUNCTIONS,
    Arg,
    Call,
    Const,
    Expr,
    Scalar,
    Tuple,
    call,
    replace_args,
    used_args,
    values,
)
from eindecomp.lang.scalar_types import type_of

Array = np.ndarray[Any, Any]
F4 = dtype("float32")
x, y = Arg(0), Arg(1)
# Each case compiles: a third as many as elsewhere, and no search for smaller ones that fail too.
compiles = settings(
    max_examples=settings().max_examples // 3, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)


def made(draw: st.DrawFn, op: EinSum) -> tuple[tuple[DType, ...], DType, list[Array]]:
    types = tuple(dtype(draw(st.sampled_from(TYPES))) for _ in op.inputs)
    try:
        out = out_type(op, types)
    except EinDecompError:
        assume(False)
        raise
    # A long product overflows on the way or not, by the order it is taken in.
    many = math.prod(SIZES[label] for label in op.aggregated) > 20
    assume(op.agg != PROD or out.kind in "biu" or not many)
    arrays = [
        values_of(tuple(SIZES[label] for label in own), t, k)
        for k, (own, t) in enumerate(zip(op.inputs, types, strict=True))
    ]
    return types, out, arrays


@compiles
@given(einsums(), st.data())
def test_a_whole_tile_is_the_references(op: EinSum, data: st.DataObject) -> None:
    types, out, arrays = made(data.draw, op)
    expected = reference(op, arrays, out, SIZES)
    given_ = [layouts(a, data.draw(st.integers(0, 4))) for a in arrays]
    found = layouts(np.zeros(expected.shape, out), data.draw(st.integers(0, 3)))
    einsum_kernel(op, types, out).whole(given_, found)
    assert_close(found, expected, out)


def in_parts(kernel: EinSumKernel, op: EinSum, arrays: list[Array], cuts: dict[str, int]) -> Array:
    """Compute each corner of a cut label space apart, and put the corners together."""
    shape = tuple(SIZES[label] for label in op.output)
    total = [np.zeros(shape, t) for t in kernel.state]
    for number in range(2 ** len(op.labels)):
        sides = {k: (number >> bit) & 1 for bit, k in enumerate(op.labels)}
        box = {k: slice(cuts[k], None) if s else slice(cuts[k]) for k, s in sides.items()}
        place = tuple(box[k] for k in op.output)
        tiles = [a[*(box[k] for k in own), ...] for own, a in zip(op.inputs, arrays, strict=True)]
        into = [t[*place, ...] for t in total]
        part = [np.empty(t.shape, t.dtype) for t in into]
        kernel.partial(tiles, part)
        if any(sides[k] for k in op.aggregated):
            kernel.combine(into, part)
        else:
            for old, new in zip(into, part, strict=True):
                old[...] = new
    found = np.empty(shape, kernel.out)
    kernel.finish(total, found)
    return found


@compiles
@given(einsums(), st.data())
def test_parts_make_the_whole(op: EinSum, data: st.DataObject) -> None:
    types, out, arrays = made(data.draw, op)
    cuts = {k: data.draw(st.integers(0, SIZES[k])) for k in op.labels}
    kernel = einsum_kernel(op, types, out)
    assert_close(in_parts(kernel, op, arrays, cuts), reference(op, arrays, out, SIZES), out)


def whole(op: EinSum, arrays: list[Array], out: str | None = None) -> Array:
    types = tuple(a.dtype for a in arrays)
    sizes = sizes_of(op.inputs, arrays)
    of = dtype(out) if out else F4
    found = np.empty([sizes[k] for k in op.output], of)
    einsum_kernel(op, types, of).whole(arrays, found)
    return found


WIDTH = 16
MANY = Monoid(
    "many",
    Tuple(tuple(call("add", Arg(k), Arg(WIDTH + k)) for k in range(WIDTH))),
    (Const(0),) * WIDTH,
    finish=x,
)
"""Holds as many values as an aggregation can, so that one compilation tries many functions."""


def calls_for(of: DType) -> list[Expr]:
    """Every function that takes the type, on inputs x and y that are read in this order."""
    known = [f for f in FUNCTIONS.values() if (f.complex or of.kind != "c") and f.name != "pow"]
    made: list[Expr] = [Call(f.name, (x, y)[: f.arity]) for f in known if f.arity < 3]
    made.append(call("where", call("gt", call("real", x), 0), y, x))
    if of.kind != "i":
        made += [call("pow", call("abs", x), y), call("pow", x, 3), call("pow", x, 2.0)]
    return made


@pytest.mark.one_in(4)
@pytest.mark.parametrize("of", ["float32", "float64", "complex64", "int16"])
def test_every_function_is_numpys(of: str) -> None:
    t = dtype(of)
    arrays = list(values_of((2, 60), t, 3))
    if of.startswith("float"):
        special = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-30, -100.0, 100.0, 88.5, -88.5]
        arrays[0][: len(special)] = special
    made = calls_for(t)
    for start in range(0, len(made), WIDTH - 1):
        # The first value reads both inputs, so that all functions may read either.
        some = (call("add", x, y), *made[start : start + WIDTH - 1])
        join = Tuple((*some, *(Const(0),) * (WIDTH - len(some))))
        check_functions(EinSum((("i",), ("i",)), ("i",), join, MANY), arrays)


def check_functions(op: EinSum, arrays: list[Array]) -> None:
    t = arrays[0].dtype
    kernel = einsum_kernel(op, (t, t), _type(call("add", x, y), t))
    states = [np.empty(60, of) for of in kernel.state]
    kernel.partial(arrays, states)
    for expr, found in zip(values(op.join), states, strict=True):
        if isinstance(expr, Const):
            continue
        used = used_args(expr)
        order = [x, y] if used == (1, 0) else [y, x]
        own = replace_args(expr, order) if used and used[0] == 1 else expr
        given_ = [arrays[k] for k in used]
        single = EinSum((("i",),) * len(used), ("i",), own)
        expected = reference(single, given_, _type(expr, t), {"i": 60})
        valid = np.full(60, True)
        if isinstance(expr, Call) and expr.op.startswith(("int", "uint")) and t.kind != "i":
            # Machines disagree about what a float outside the range of integers becomes.
            valid = np.isfinite(arrays[0]) & (np.abs(arrays[0]) < 10) & (arrays[0].real >= 0)
        wide = np.complex128 if found.dtype.kind == "c" else np.float64
        rough = {"float16": 1e-3, "bfloat16": 1e-2, "float64": 1e-14}
        np.testing.assert_allclose(
            found[valid].astype(wide),
            expected[valid].astype(wide),
            rtol=rough.get(_type(expr, t).name, 1e-6),
            atol=1e-38,
            err_msg=str(expr),
        )


def _type(expr: Expr, t: DType) -> DType:
    return concrete(type_of(expr, [t, t], {}))


def test_exp_is_right_everywhere() -> None:
    values = np.concatenate([
        np.linspace(-110, 95, 200_001, dtype=F4),
        np.array([np.inf, -np.inf, np.nan, 0, -0.0, 88.72283, 88.72284, -87.33655], F4),
    ])  # fmt: skip
    found = whole(EinSum((("i",),), ("i",), call("exp", x)), [values])
    with np.errstate(all="ignore"):
        expected = np.exp(values.astype(np.float64))
        np.testing.assert_allclose(found, expected.astype(F4), rtol=2e-7, atol=3e-45)


@pytest.mark.parametrize("name", ["log", "erf", "gelu", "tanh", "sigmoid", "silu"])
def test_float32_functions_are_right_everywhere(name: str) -> None:
    exponents = np.linspace(-148, 127.9, 50_001)
    values = np.concatenate([2.0**exponents, np.linspace(0, 14, 50_001), [np.nan, np.inf]])
    both = np.concatenate([values, -values]).astype(F4)
    op = EinSum((("i",),), ("i",), call(name, x))
    with np.errstate(all="ignore"):
        expected = reference(op, [both.astype(np.float64)], np.dtype("float64"), {"i": len(both)})
        # Results below the normal numbers have fewer digits.
        np.testing.assert_allclose(whole(op, [both]), expected.astype(F4), rtol=1e-6, atol=2e-43)


@pytest.mark.parametrize("power", [3, 4.0, 5, 50, 200])
def test_powers_are_right_however_high(power: float) -> None:
    base = np.linspace(0.7, 1.5, 10_001, dtype=F4)
    found = whole(EinSum((("i",),), ("i",), call("pow", x, power)), [base])
    with np.errstate(over="ignore"):
        expected = (base.astype(np.float64) ** power).astype(F4)
    np.testing.assert_allclose(found, expected, rtol=3e-7)


LINF = EinSum((("i", "k"), ("j", "k")), ("i", "j"), call("abs", call("sub", x, y)), MAX)
L2 = EinSum((("i", "k"), ("j", "k")), ("i", "j"), call("pow", call("sub", x, y), 2), SUM)


@pytest.mark.parametrize("op", [LINF, L2])
@pytest.mark.parametrize("sizes", [(37, 530, 41), (6, 3, 1000), (1, 1, 20_000), (9, 5000, 3)])
def test_blocked_loops_have_no_seams(op: EinSum, sizes: tuple[int, int, int]) -> None:
    i, j, k = sizes
    a, b = values_of((i, k), F4, 0), values_of((k, j), F4, 1).T
    expected = reference(op, [a, b], F4, {"i": i, "j": j})
    assert_close(whole(op, [a, b]), expected, F4)


def test_tuple_monoids_run_blocked() -> None:
    op = EinSum((("i", "k"),), ("i",), Tuple((x, Const(1.0))), LOGSUMEXP)
    a = values_of((70, 999), F4, 0)
    expected = np.log(np.exp(a.astype(np.float64)).sum(1))
    np.testing.assert_allclose(whole(op, [a]), expected, rtol=1e-5)
    np.testing.assert_allclose(whole(op, [a.T.copy().T]), expected, rtol=1e-5)


@pytest.mark.parametrize("agg", [MAX, MIN])
def test_extremes_keep_nan_and_infinity(agg: Any) -> None:
    a = values_of((5, 400), F4, 0)
    a[1, 7], a[2, 399], a[3, 0], a[4] = np.nan, np.inf, -np.inf, -np.inf
    op = EinSum((("i", "k"),), ("i",), x, agg)
    expected = (a.max if agg is MAX else a.min)(axis=1)
    np.testing.assert_array_equal(whole(op, [a]), expected)
    np.testing.assert_array_equal(whole(op, [a.T.copy().T]), expected)


@pytest.mark.parametrize("agg", [SUM, PROD, MAX])
def test_aggregating_nothing_is_the_identity(agg: Any) -> None:
    for a in (np.empty((3, 0), F4), np.empty((0, 3), F4).T):
        op = EinSum((("i", "k"),), ("i",), x, agg)
        expected = {"sum": 0, "prod": 1, "max": -np.inf}[agg.name]
        np.testing.assert_array_equal(whole(op, [a]), np.full(3, expected, F4))
    product_sum = EinSum((("i", "k"), ("k", "j")), ("i", "j"), product(2), SUM)
    assert whole(product_sum, [np.empty((0, 4), F4), np.empty((4, 5), F4)]).shape == (0, 5)
    assert not whole(product_sum, [np.empty((4, 0), F4), np.empty((0, 5), F4)]).any()


CONTRACTIONS = [
    ("bshd", "bthd", "bhst"), ("bhst", "bthd", "bshd"), ("ik", "kj", "ij"), ("ki", "jk", "ji"),
    ("abk", "kcd", "cadb"), ("abk", "bka", "k"), ("iik", "kj", "ij"), ("aik", "kj", "ij"),
    ("bij", "bjk", "bik"), ("abkl", "lkcd", "acbd"), ("ik", "kj", "ijd"), ("i", "j", "ij"),
]  # fmt: skip


@pytest.mark.one_in(6)
@pytest.mark.parametrize("spec", CONTRACTIONS, ids=" ".join)
@pytest.mark.parametrize("of", ["float32", "complex128", "bfloat16"])
@pytest.mark.parametrize("how", range(4))
def test_contractions_of_every_layout(spec: tuple[str, str, str], of: str, how: int) -> None:
    sizes = dict(zip("abcdhijklst", (4, 5, 6, 7, 3, 33, 18, 20, 8, 19, 21), strict=True))
    first, second, output = (tuple(part) for part in spec)
    op = EinSum((first, second), output, product(2), SUM)
    t = dtype(of)
    arrays = [values_of(tuple(sizes[k] for k in own), t, n) for n, own in enumerate(op.inputs)]
    expected = reference(op, arrays, t, sizes)
    out = layouts(np.zeros(expected.shape, t), how)
    einsum_kernel(op, (t, t), t).whole([layouts(a, how) for a in arrays], out)
    rough = 2e-2 if of == "bfloat16" else 1e-4
    np.testing.assert_allclose(
        out.astype(complex), expected.astype(complex), rtol=rough, atol=50 * rough
    )


def test_products_of_a_graph_with_run_time_scalars_take_none() -> None:
    op = EinSum((("i", "j"), ("j", "k")), ("i", "k"), product(2), SUM)
    kernel = einsum_kernel(op, (F4, F4), F4, (("rate", dtype("float64")),))
    x, y, out = np.ones((20, 30), F4), np.ones((30, 40), F4), np.zeros((20, 40), F4)
    kernel.whole([x, y], out, [0.5])
    np.testing.assert_array_equal(out, 30)


def test_inputs_that_are_not_read_lend_their_sizes() -> None:
    op = EinSum((("i",), ("i", "k")), ("i",), x, SUM)
    out = np.empty(3, F4)
    kernel = einsum_kernel(op, (F4, F4), F4)
    kernel.whole([np.ones(3, F4), np.ones((3, 5), F4)], out)
    np.testing.assert_array_equal(out, np.full(3, 5))
    only = EinSum((("i",),), ("i",), Const(2.5))
    einsum_kernel(only, (F4,), F4).whole([None], out)
    np.testing.assert_array_equal(out, np.full(3, 2.5))


def test_run_time_scalars_are_weak() -> None:
    op = EinSum((("i",),), ("i",), call("mul", x, Scalar("rate")))
    out = np.empty(3, F4)
    kernel = einsum_kernel(op, (F4,), F4, (("rate", dtype("float64")),))
    kernel.whole([np.ones(3, F4)], out, [0.1])
    np.testing.assert_array_equal(out, np.full(3, F4.type(0.1)))


def test_unsigned_scalars_keep_all_their_bits() -> None:
    u8, large = dtype("uint64"), 2**63 + 5
    scalars = (("s", u8), ("t", dtype("uint8")))
    out = np.empty(2, u8)
    plus = EinSum((("i",),), ("i",), call("add", x, Scalar("s")))
    einsum_kernel(plus, (u8,), u8, scalars).whole([np.array([1, 2], u8)], out, [large, 1])
    assert out.tolist() == [large + 1, large + 2]
    # Among themselves and with literals they are plain integers, which may be negative.
    apart = call("sub", call("pow", Scalar("t"), 2), call("add", Scalar("s"), 7))
    less = EinSum((("i",),), ("i",), call("mul", x, apart))
    found = np.empty(2, F4)
    einsum_kernel(less, (F4,), F4, scalars).whole([np.ones(2, F4)], found, [40_000, 200])
    assert found.tolist() == [-7, -7]


def test_integers_refuse_negative_powers_as_numpy_does() -> None:
    op = EinSum((("i",), ("i",)), ("i",), call("pow", x, y))
    a, b = np.array([2, 3], np.int32), np.array([5, -1], np.int32)
    assert whole(op, [a, abs(b)], "int32").tolist() == [32, 3]
    with pytest.raises(ValueError, match="negative"):
        whole(op, [a, b], "int32")


def test_wrong_arrays_are_refused() -> None:
    kernel = einsum_kernel(LINF, (F4, F4), F4)
    a, out = np.ones((3, 4), F4), np.empty((3, 3), F4)
    with pytest.raises(InputError, match="float64"):
        kernel.whole([a, a.astype(np.float64)], out)
    with pytest.raises(InputError, match="sizes 4 and 3"):
        kernel.whole([a, a[:, :3]], out)
    with pytest.raises(InputError, match="shape"):
        kernel.whole([a, a[0]], out)


def test_kernels_run_in_threads_without_the_gil() -> None:
    kernel = einsum_kernel(LINF, (F4, F4), F4)
    a = values_of((200, 50), F4, 0)
    out = np.empty((200, 200), F4)
    halves = [slice(0, 100), slice(100, 200)]
    threads = [threading.Thread(target=kernel.whole, args=([a[h], a], out[h])) for h in halves]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(out, np.abs(a[:, None] - a).max(2))
    # Functions of C's let go of the interpreter; so do numba's that were told to.
    assert compiling._compiled
    assert all(
        isinstance(f, ctypes._CFuncPtr) or f.targetoptions["nogil"]  # type: ignore[attr-defined]
        for f in compiling._compiled.values()
    )


def test_no_loop_is_named_as_a_conversion():
    join = call("where", call("ge", Arg(0), Arg(1)), Arg(2), call("neg", Arg(0)))
    op = EinSum(((), ("a", "c", "d"), ("a", "b")), ("c",), join, SUM)
    types = tuple(map(np.dtype, ("int8", "float32", "int32")))
    out = np.zeros(3, np.int32)
    operands = [np.ones((), np.int8), np.ones((2, 3, 4), np.float32), np.ones((2, 5), np.int32)]
    einsum_kernel(op, types, np.dtype("int32")).whole(operands, out)
    assert out.tolist() == [40, 40, 40]
