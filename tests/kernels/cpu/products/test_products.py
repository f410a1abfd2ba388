"""Products by every way there is: as exact as any, wherever the matrices lie."""

from __future__ import annotations

from functools import partial
from operator import eq
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eindecomp.kernels.cpu.einsum import EinSumKernel, einsum_kernel
from eindecomp.kernels.cpu.loops.launch import LoopsCall
from eindecomp.kernels.cpu.products import calls
from eindecomp.kernels.cpu.products.blas_libraries import blas_library
from eindecomp.kernels.cpu.products.calls import (
    MatrixSteps,
    StackProduct,
    blas_call,
    few_rows_call,
)
from eindecomp.lang.dtypes import dtype
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.einsum import product as multiply
from eindecomp.lang.monoid import SUM

Array = np.ndarray[Any, Any]


def kernel(inputs: tuple[Labels, Labels], output: Labels, name: str = "float32") -> EinSumKernel:
    op = EinSum(inputs, output, multiply(2), SUM)
    return einsum_kernel(op, (dtype(name), dtype(name)), dtype(name))


def random(rng: np.random.Generator, name: str, *shape: int) -> Array:
    """Of whole numbers, so that products and sums are exact in any order."""
    return rng.integers(-3, 4, shape).astype(dtype(name))


def all_ways(product: StackProduct) -> list[LoopsCall]:
    """Whatever computes a product, also where another way is faster."""
    ways = [few_rows_call(product)]
    if product.types[2].name in ("float32", "float64"):
        ways.append(blas_call(product, blas_library()))
    return [way for way in ways if way is not None]


@given(st.data())
def test_any_shape_and_place(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["float32", "float64"]))
    stack, rows = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 9))
    columns, depth = data.draw(st.integers(20, 60)), data.draw(st.integers(400, 900))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = random(rng, name, stack, rows + 1, depth + 3)[:, 1:, 3:]
    y = random(rng, name, columns, stack, 2 * depth)[:, :, depth:]
    out = random(rng, name, rows, 2 * columns, stack)[:, ::2]
    wanted = np.einsum("brk,cbk->rcb", x.astype(np.float64), y.astype(np.float64))
    if data.draw(st.booleans()):
        kernel((("b", "r", "k"), ("c", "b", "k")), ("r", "c", "b"), name).whole([x, y], out)
    else:
        kernel((("c", "b", "k"), ("b", "r", "k")), ("r", "c", "b"), name).whole([y, x], out)
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_low_precision_is_rounded_once(name: str) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((n, 300)).astype(dtype(name)) for n in (3, 50))
    out = np.empty((3, 50), dtype(name))
    kernel((("r", "k"), ("c", "k")), ("r", "c"), name).whole([x, y], out)
    wanted = x.astype(np.float64) @ y.astype(np.float64).T
    close = wanted.astype(np.float32).astype(dtype(name))
    assert (out == close).mean() > 0.99
    np.testing.assert_allclose(out.astype(np.float64), wanted, rtol=0.01, atol=0.01)


def test_infinities_and_nothing_to_multiply_them_by() -> None:
    x, y = np.ones((2, 64), np.float32), np.ones((40, 64), np.float32)
    x[0, 5], y[3, 7], x[1, 7] = np.inf, np.nan, 0
    out = np.empty((2, 40), np.float32)
    kernel((("r", "k"), ("c", "k")), ("r", "c")).whole([x, y], out)
    assert np.isnan(out[:, 3]).all()
    assert np.isposinf(np.delete(out[0], 3)).all()
    assert (np.delete(out[1], 3) == 63).all()


@pytest.mark.long
@given(st.data())
def test_every_way_computes_every_product(data: st.DataObject) -> None:
    """With what blocks leave over of rows and columns, in either order."""
    name = data.draw(st.sampled_from(["float32", "float64", "float16", "bfloat16"]))
    stack, rows = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 35))
    columns, depth = data.draw(st.integers(1, 90)), data.draw(st.integers(2, 600))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x, y, z = (
        place(data, random(rng, name, stack, *shape))
        for shape in ((rows, depth), (depth, columns), (rows, columns))
    )
    product = StackProduct(
        (x.dtype, y.dtype, z.dtype),
        (rows, columns, depth),
        (MatrixSteps(*x.strides[1:]), MatrixSteps(*y.strides[1:]), MatrixSteps(*z.strides[1:])),
        ((stack, x.strides[0], y.strides[0], z.strides[0]),),
    )
    wanted = x.astype(np.float64) @ y.astype(np.float64)
    has_avx512 = data.draw(st.booleans())  # blocks are larger there
    with patch.object(calls, "_WIDTH", 40), patch.object(calls, "has_avx512", lambda: has_avx512):
        ways = all_ways(product)
    for way in ways:
        z[...] = 1
        way.launch([x, y], [z], ())
        np.testing.assert_array_equal(z, wanted.astype(np.float32).astype(z.dtype))


def place(data: st.DataObject, array: Array) -> Array:
    """The same matrices, with neighbours along rows or columns, and others around them."""
    turned = data.draw(st.booleans())
    wide = data.draw(st.integers(0, 3))
    inner = array.swapaxes(1, 2) if turned else array
    around = np.zeros((*inner.shape[:2], inner.shape[2] + 2 * wide), array.dtype)
    within = around[:, :, wide : wide + inner.shape[2]]
    within[...] = inner
    return within.swapaxes(1, 2) if turned else within


@pytest.mark.parametrize("rows", [1, 2, 5, 8, 9, 17, 33])
@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16"])
def test_few_rows_are_read_where_they_lie(rows: int, name: str) -> None:
    of = dtype(name)
    x, y, z = (np.ones(shape, of) for shape in ((rows, 64), (50, 64), (rows, 50)))
    sides = (MatrixSteps(*x.strides), MatrixSteps(*y.T.strides), MatrixSteps(*z.strides))
    product = StackProduct((of, of, of), (rows, 50, 64), sides)
    is_low = name == "bfloat16"
    assert (few_rows_call(product) is not None) == (rows <= 32 if is_low else 1 < rows <= 16)
    along_columns = (sides[0], MatrixSteps(*np.ones((64, 50), of).strides), sides[2])
    other = StackProduct((of, of, of), (rows, 50, 64), along_columns)
    for most in (8, 16):
        with patch.object(calls, "has_avx512", partial(eq, most, 16)):
            assert (few_rows_call(other) is not None) == (not is_low and 1 < rows <= most)
    turned = (MatrixSteps(*y.strides), MatrixSteps(*x.T.strides), MatrixSteps(*z.T.strides))
    other = StackProduct((of, of, of), (50, rows, 64), turned)
    assert (few_rows_call(other) is None) == (few_rows_call(product) is None)
