"""Rows are summed into a table in the order in which they come, whichever way they lie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eindecomp.graph.ops import ScatterAdd
from eindecomp.kernels.cpu.library import move_kernel
from eindecomp.lang.dtypes import dtype


@given(
    source=st.permutations("bsac"),
    table=st.permutations("ac"),
    axis=st.integers(0, 2),
    sizes=st.tuples(*[st.integers(0, 4)] * 4),
    of=st.sampled_from(["float32", "float64", "int32", "complex64"]),
)
def test_a_scatter_adds_as_numpy_does(source, table, axis, sizes, of):
    size = dict(zip("bsac", sizes, strict=True))
    rng = np.random.default_rng(0)
    rows = rng.normal(0, 100, [size[label] for label in source]).astype(of)
    index = rng.integers(0, 3, (size["b"], size["s"]), np.int32)

    expected = np.zeros((3, size["a"], size["c"]), of)
    np.add.at(expected, index, rows.transpose([source.index(label) for label in "bsac"]))
    expected = np.moveaxis(expected.transpose(0, *(1 + "ac".index(t) for t in table)), 0, axis)

    out = np.empty(expected.shape, of)
    op = ScatterAdd(tuple(source), ("b", "s"), tuple(table), axis, "v")
    move_kernel(op, dtype(of)).whole([rows, index], out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("batched", ["e", "eh"])
def test_infinities_stay_in_their_rows(batched):
    index = np.array([2, 0, 2], np.int64)
    rows = np.array([[np.inf, 1], [np.nan, 2], [3, -np.inf]], np.float32)
    labels = tuple(batched)
    if len(labels) > 1:
        index = np.broadcast_to(index[:, None], (3, 2))
    out = np.empty((3, 2), np.float32)
    op = ScatterAdd(("e", "h"), labels, ("h",), 0, "v")
    move_kernel(op, dtype("float32")).whole([rows, index], out)
    np.testing.assert_array_equal(out, np.array([[np.nan, 2], [0, 0], [np.inf, -np.inf]]))
