"""Scalar functions of tensors where arithmetic has edges: casts, quotients, powers, wrapping."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from cast_rules import expected, same, values
from dividends import numbers
from random_tiles import reference, values_of

pytest.importorskip("torch.nn", reason="torch is not installed")

from eindecomp.kernels.torch.einsum import einsum_kernel
from eindecomp.kernels.torch.library import TorchLibrary
from eindecomp.lang.dtypes import DType, concrete, dtype, type_names
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import BUILTIN
from eindecomp.lang.scalar import FUNCTIONS, Arg, Call, Expr, Scalar, call, replace_args, used_args
from eindecomp.lang.scalar_types import type_of

Array = np.ndarray[Any, Any]
LIBRARY = TorchLibrary()
x, y = Arg(0), Arg(1)
ERF = 5e-7  # how far off torch's error function is in float32 on some CPUs
UNSIGNED = ("uint16", "uint32", "uint64")


def both(join: Expr, arrays: list[Array], agg: str | None = None) -> tuple[Array, Array]:
    """What torch makes of a join of vectors, and what the reference does."""
    types = tuple(a.dtype for a in arrays)
    op = EinSum((("i",),) * len(arrays), () if agg else ("i",), join, BUILTIN[agg] if agg else None)
    out = concrete(type_of(join, types, {}))
    wanted = reference(op, arrays, out, {"i": len(arrays[0])})
    operands = [LIBRARY.from_numpy(a) for a in arrays]
    found = einsum_kernel(op, types, out).result(operands, (), wanted.shape)
    return LIBRARY.to_numpy(found), wanted


@pytest.mark.parametrize("of", type_names)
def test_casts_of_elements(of: str) -> None:
    given = values(of)
    for to in type_names:
        found, wanted = both(call(to, x), [given])
        same(found, wanted)
        same(found, np.array([expected(number, to) for number in given.tolist()], dtype(to)))


@pytest.mark.parametrize("of", ["bool", "int64", "uint64", "float64", "complex128"])
def test_casts_of_run_time_scalars(of: str) -> None:
    read = [LIBRARY.from_numpy(np.zeros(1))]
    for to in type_names:
        op = EinSum((("i",),), ("i",), call(to, Scalar("a")))
        kernel = einsum_kernel(op, (dtype("float64"),), dtype(to), (("a", dtype(of)),))
        for number in values(of)[:: 1 if len(values(of)) < 50 else 7]:
            wanted = np.array([expected(number.item(), to)], dtype(to))
            for given in (number, LIBRARY.from_numpy(np.asarray(number))):
                same(LIBRARY.to_numpy(kernel.result(read, [given], (1,))), wanted)


@pytest.mark.parametrize("to", type_names)
def test_casts_of_literals(to: str) -> None:
    for number in (n for of in ("int64", "uint64", "float64") for n in values(of).tolist()):
        op = EinSum((("i",),), ("i",), call(to, number))
        found = einsum_kernel(op, (dtype("float64"),), dtype(to)).result([None], (), (1,))
        same(LIBRARY.to_numpy(found), np.array([expected(number, to)], dtype(to)))


@pytest.mark.parametrize("of", ["int8", "int32", "int64", "uint8", *UNSIGNED, "float32", "float64",
                                "float16", "bfloat16"])  # fmt: skip
@pytest.mark.parametrize("op", ["floordiv", "mod"])
def test_quotients_of_all_pairs(op: str, of: str) -> None:
    one = numbers(of)
    first, second = (part.ravel() for part in np.meshgrid(one, one))
    found, wanted = both(call(op, x, y), [first, second])
    if "float" not in of:
        np.testing.assert_array_equal(found, wanted)
        return
    wide = found.astype(float), wanted.astype(float)
    np.testing.assert_array_equal(*wide)
    left, right = (np.where(np.isnan(part), 0, np.signbit(part)) for part in wide)
    np.testing.assert_array_equal(left, right)


def calls_for(of: DType) -> list[Expr]:
    """Every function that takes the type, of elements and of literals."""
    known = [f for f in FUNCTIONS.values() if f.complex or of.kind != "c"]
    made: list[Expr] = [Call(f.name, (x, y)[: f.arity]) for f in known if f.arity < 3]
    if of.kind in "iub":
        made.remove(call("pow", x, y))
        made.append(call("pow", x, call("abs", call("mod", y, 5))))
    made.append(call("where", call("gt", call("real", x), 0), y, x))
    for name in ("add", "sub", "mul", "div", "eq", "where"):
        number = 2 if of.kind in "iu" else 2.5
        test = (call("eq", x, y),) if name == "where" else ()
        made += [call(name, *test, x, number), call(name, *test, number, x)]
    return [*made, *(call("pow", x, n) for n in (1, 2, 3, 4, 5, 2.0, 0.5))]


@pytest.mark.parametrize("of", type_names)
def test_every_function_is_numpys(of: str) -> None:
    t = dtype(of)
    arrays = list(values_of((2, 60), t, 3))
    if of in UNSIGNED:
        arrays[0][:4] = np.array([-1, -2, -(2**63), 2**62]).astype(t)
    if of in ("float32", "float64"):
        special = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-30, -100.0, 100.0, 88.5, -88.5]
        arrays[0][: len(special)] = special
    for expr in calls_for(t):
        used = used_args(expr)
        ordered = replace_args(expr, [y, x]) if used == (1, 0) else expr
        found, wanted = both(ordered, [arrays[k] for k in used])
        assert found.dtype == wanted.dtype
        wide = np.complex128 if found.dtype.kind == "c" else np.float64
        rough = {"float16": 1e-3, "bfloat16": 1e-2, "float64": 1e-13, "complex128": 1e-13}
        near = 1e-37 if found.dtype.kind != "c" else 1e-6
        np.testing.assert_allclose(
            found.astype(wide),
            wanted.astype(wide),
            rtol=rough.get(wanted.dtype.name, 2e-6),
            atol=ERF if expr == call("erf", x) and wanted.dtype == "float32" else near,
            err_msg=str(expr),
        )


@pytest.mark.parametrize("of", UNSIGNED)
@pytest.mark.parametrize("agg", ["sum", "prod", "max", "min", "any", "all"])
def test_unsigned_numbers_are_aggregated_in_their_own_order(agg: str, of: str) -> None:
    end = int(np.iinfo(of).max)
    given = np.array([1, 5, end, end - 7, end // 2 + 3], of)
    for part in (given, given[:2], given[2:4], given[:0]):
        np.testing.assert_array_equal(*both(x, [part], agg))


@pytest.mark.parametrize("of", ["float32", "float64"])
@pytest.mark.parametrize("name", ["erf", "gelu", "silu", "sigmoid", "tanh", "rsqrt", "log", "exp"])
def test_functions_are_right_everywhere(name: str, of: str) -> None:
    sizes = np.concatenate([2.0 ** np.linspace(-100, 100, 4001), np.linspace(0, 14, 4001)])
    given = np.concatenate([sizes, -sizes, [math.nan, math.inf, -math.inf, -0.0]]).astype(of)
    found, wanted = both(call(name, x), [given])
    rough = 1e-5 if of == "float32" else 1e-12
    near = ERF if (name, of) == ("erf", "float32") else 1e-30
    np.testing.assert_allclose(found, wanted, rtol=rough, atol=near)


def test_complex_powers_and_quotients_are_numpys() -> None:
    powers = np.array([0, 1, 2, -1, 0.5, 1j, 1 + 1j, -1 + 1j, complex(math.nan, 0)])
    for base in (0, -0.0, 2j, 1e30, complex(math.inf, 0)):
        given = np.full(len(powers), base, complex)
        if base in (0, 2j):
            np.testing.assert_allclose(*both(call("pow", x, y), [given, powers]), rtol=1e-13)
        np.testing.assert_allclose(*both(call("div", x, y), [powers, given]), rtol=1e-13)
