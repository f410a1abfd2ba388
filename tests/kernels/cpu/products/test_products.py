"""Products by every way there is: as exact as any, wherever the matrices lie."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eindecomp.kernels.cpu.einsum import EinSumKernel, einsum_kernel
from eindecomp.kernels.cpu.loops.launch import Launch
from eindecomp.kernels.cpu.products.blas import turned_blas_call
from eindecomp.kernels.cpu.products.blas_libraries import libraries
from eindecomp.kernels.cpu.products.gemm import product_ways
from eindecomp.kernels.cpu.products.panels import panels_call
from eindecomp.kernels.cpu.products.product import MatrixSteps, Product
from eindecomp.kernels.cpu.products.row_blocks import row_blocks_call
from eindecomp.kernels.cpu.products.tiles import has_tiles
from eindecomp.kernels.cpu.products.turned_panels import turned_panels_call
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


def all_ways(product: Product) -> dict[str, Launch]:
    """Also those that are worth compiling for large products only."""
    with patch("eindecomp.kernels.cpu.products.gemm.WORTH", 0):
        return product_ways(product)


@given(st.data())
def test_any_shape_and_place(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["float32", "float64"]))
    stack, rows = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 9))
    columns, depth = data.draw(st.integers(20, 60)), data.draw(st.integers(400, 900))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = random(rng, name, stack, rows + 1, depth + 3)[:, 1:, 3:]
    y = random(rng, name, columns, stack, 2 * depth)[:, :, depth:]
    out = random(rng, name, rows, 2 * columns, stack)[:, ::2]
    before = out.copy()
    wanted = np.einsum("brk,cbk->rcb", x.astype(np.float64), y.astype(np.float64))
    if data.draw(st.booleans()):
        kernel((("b", "r", "k"), ("c", "b", "k")), ("r", "c", "b"), name).add([x, y], out)
        wanted += before
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
    """Blocks of all sizes, with what is left over of rows, columns and terms, in either order."""
    name = data.draw(st.sampled_from(["float32", "float64", "float16", "bfloat16"]))
    stack, rows = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 35))
    columns, depth = data.draw(st.integers(1, 90)), data.draw(st.integers(2, 600))
    add = name.startswith("float") and name != "float16" and data.draw(st.booleans())
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x, y, z = (
        place(data, random(rng, name, stack, *shape))
        for shape in ((rows, depth), (depth, columns), (rows, columns))
    )
    before = z.copy()
    product = Product(
        (x.dtype, y.dtype, z.dtype),
        (rows, columns, depth),
        (MatrixSteps(*x.strides[1:]), MatrixSteps(*y.strides[1:]), MatrixSteps(*z.strides[1:])),
        ((stack, x.strides[0], y.strides[0], z.strides[0]),),
        add=add,
    )
    wanted = x.astype(np.float64) @ y.astype(np.float64) + (before if add else 0)
    for way in all_ways(product).values():
        z[...] = before
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


@pytest.mark.parametrize(("rows", "way"), [(1, "few rows"), (8, "few rows"), (9, "panels")])
@pytest.mark.parametrize("second", [("k", "c"), ("c", "k")])
def test_every_shape_has_a_way_without_blas(rows: int, way: str, second: Labels) -> None:
    f4 = dtype("float32")
    x, y, out = (np.ones(shape, f4) for shape in ((rows, 512), (512, 512), (rows, 512)))
    steps = MatrixSteps(*(y.strides if second == ("k", "c") else y.T.strides))
    sides = (MatrixSteps(*x.strides), steps, MatrixSteps(*out.strides))
    ways = all_ways(Product((f4, f4, f4), (rows, 512, 512), sides))
    assert way in ways
    # Others than our own compiler take seconds, and what they compile is called by Python only.
    assert all(getattr(each.function, "address", 0) for each in ways.values())  # type: ignore[attr-defined]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("depth", [256, 257, 271, 272, 511, 513, 1024, 1025, 1039, 1040])
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
@pytest.mark.parametrize("turned", [False, True])
def test_panels_end_where_terms_do(depth: int, name: str, turned: bool) -> None:
    rng = np.random.default_rng(depth)
    x, y = random(rng, name, 12, depth), random(rng, name, depth, 35)
    y = np.asfortranarray(y) if turned else y
    out = np.zeros((12, 35), dtype(name))
    sides = (MatrixSteps(*x.strides), MatrixSteps(*y.strides), MatrixSteps(*out.strides))
    wanted = x.astype(np.float32) @ y.astype(np.float32)
    panels_call(Product((x.dtype,) * 3, (12, 35, depth), sides)).launch([x, y], [out], ())
    np.testing.assert_array_equal(out, wanted.astype(out.dtype))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("rows", [32, 48, 64, 96, 160, 1024])
@pytest.mark.parametrize(("columns", "depth"), [(16, 16), (31, 40), (390, 1100), (1000, 515)])
@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("turned", [False, True])
def test_turned_panels(rows: int, columns: int, depth: int, name: str, turned: bool) -> None:
    """More rows than one panel has, more columns and terms than are computed at a time."""
    rng = np.random.default_rng(rows)
    x, y = random(rng, name, rows, depth), random(rng, name, columns, depth).T
    x = np.asfortranarray(x) if turned else x
    around = np.full((rows, columns + 5), 7, dtype(name))
    out = around[:, :columns]
    sides = (MatrixSteps(*x.strides), MatrixSteps(*y.strides), MatrixSteps(*out.strides))
    call = turned_panels_call(Product((x.dtype,) * 3, (rows, columns, depth), sides))
    assert call is not None
    call.launch([x, y], [out], ())
    np.testing.assert_array_equal(out, x @ y)
    assert (around[:, columns:] == 7).all()


@pytest.mark.long
@given(st.data())
def test_blocks_of_rows_of_any_shape(data: st.DataObject) -> None:
    """With what is left over of rows, columns and terms, and more of them than caches hold."""
    name = data.draw(st.sampled_from(["float32", "float64"]))
    rows, columns = data.draw(st.integers(16, 60)), data.draw(st.integers(16, 200))
    depth, add = data.draw(st.integers(16, 1100)), data.draw(st.booleans())
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x, y = place(data, random(rng, name, 1, rows, depth)), random(rng, name, 1, depth, columns)
    y, z = place(data, y), place(data, random(rng, name, 1, rows, columns))
    wanted = x[0] @ y[0] + (z[0] if add else 0)
    sides = (MatrixSteps(*x.strides[1:]), MatrixSteps(*y.strides[1:]), MatrixSteps(*z.strides[1:]))
    product = Product((x.dtype,) * 3, (rows, columns, depth), sides, add=add)
    with patch("eindecomp.kernels.cpu.products.row_blocks._WORTH", 0):
        call = row_blocks_call(product)
    assert call is not None
    call.launch([x, y], [z], ())
    np.testing.assert_array_equal(z[0], wanted)


@given(st.data())
def test_thin_products_by_blas(data: st.DataObject) -> None:
    """Turned where the short side lies beside itself, in stacks, set or added, in any order."""
    name, add = data.draw(st.sampled_from(["float32", "float64"])), data.draw(st.booleans())
    shape = data.draw(st.integers(2, 40)), data.draw(st.integers(41, 90))
    m, n = reversed(shape) if data.draw(st.booleans()) else shape
    k, stack = data.draw(st.integers(64, 150)), data.draw(st.integers(1, 3))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    shapes = ((m, k), (k, n), (m, n))
    x, y, z = (place(data, random(rng, name, stack, *own)) for own in shapes)
    wanted = x @ y + (z if add else 0)
    sides = tuple(MatrixSteps(*own.strides[1:]) for own in (x, y, z))
    loops = ((stack, *(own.strides[0] for own in (x, y, z))),)
    product = Product((x.dtype,) * 3, (m, n, k), sides, loops, (), add)
    with patch("eindecomp.kernels.cpu.products.blas.WORTH", 0):
        call = turned_blas_call(product, libraries()[0])
    is_by_short = (n if z.strides[2] == z.itemsize else m) < 41
    assert (call is not None) == is_by_short
    if call is not None:
        call.launch([x, y], [z], ())
        np.testing.assert_array_equal(z, wanted)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("columns", [16, 32, 48, 64, 70, 200])
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_more_rows_than_a_cache_holds(columns: int, name: str) -> None:
    """Chunks of rows, several panels at a time, and blocks for results that are narrow."""
    rng = np.random.default_rng(columns)
    x, y = random(rng, name, 1043, 40), random(rng, name, 40, columns)
    sides = (
        MatrixSteps(*x.strides),
        MatrixSteps(*y.strides),
        MatrixSteps(columns * y.itemsize, y.itemsize),
    )
    product = Product((x.dtype,) * 3, (1043, columns, 40), sides)
    with patch("eindecomp.kernels.cpu.products.row_blocks._WORTH", 0):
        ways = all_ways(product)
    assert "row blocks" in ways
    for way in ways.values():
        out = np.zeros((1043, columns), dtype(name))
        way.launch([x, y], [out], ())
        np.testing.assert_array_equal(out, x @ y)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("shape", [(33, 50, 64), (5, 17, 96), (64, 64, 32), (300, 70, 64)])
def test_matrix_units_fill_up_what_is_left_of_blocks(
    shape: tuple[int, int, int], turned: bool
) -> None:
    """Where the processor has one; the others are the same elsewhere."""
    m, n, k = shape
    rng = np.random.default_rng(m)
    x = random(rng, "bfloat16", m, k)
    y = random(rng, "bfloat16", n, k).T if turned else random(rng, "bfloat16", k, n)
    wanted = x.astype(np.float32) @ y.astype(np.float32)
    for result in ("bfloat16", "float32"):
        out = np.zeros((m, n), dtype(result))
        sides = (MatrixSteps(*x.strides), MatrixSteps(*y.strides), MatrixSteps(*out.strides))
        ways = all_ways(Product((x.dtype, y.dtype, out.dtype), (m, n, k), sides))
        assert ("tiles" in ways) == has_tiles()
        for way in ways.values():
            out[...] = 7
            way.launch([x, y], [out], ())
            np.testing.assert_array_equal(out, wanted.astype(out.dtype))
