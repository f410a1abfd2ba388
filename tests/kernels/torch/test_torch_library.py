"""The library of tensors: arrays in and out, moves of data, fills, indices, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from random_tiles import layouts, values_of

pytest.importorskip("torch.nn", reason="torch is not installed")

import torch
from torch.fx.experimental.proxy_tensor import make_fx

import eindecomp as ed
from eindecomp.errors import InputError
from eindecomp.graph.ops import Fill, Input
from eindecomp.graph.shown import see, shown_to
from eindecomp.kernels.torch.einsum import einsum_kernel
from eindecomp.kernels.torch.kernel import check_index
from eindecomp.kernels.torch.library import TorchLibrary
from eindecomp.lang.dtypes import dtype, type_names
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import MAX
from eindecomp.lang.scalar import Arg, call
from eindecomp.lang.text.resolve import parse_join
from eindecomp.layout.view import view_of
from strategies import arrays, graphs

LIBRARY = TorchLibrary()


@pytest.mark.parametrize("of", type_names)
@pytest.mark.parametrize("how", range(5))
def test_arrays_come_back_as_they_were(of: str, how: int) -> None:
    array = layouts(values_of((3, 4), dtype(of), 0), how)
    tensor = LIBRARY.from_numpy(array)
    assert tensor.dtype == LIBRARY.empty((1,), dtype(of)).dtype == getattr(torch, of)
    found = LIBRARY.to_numpy(tensor)
    assert found.dtype == array.dtype
    assert found.tobytes() == array.tobytes()
    assert how == 3 or np.shares_memory(found, array)


def run(graph: ed.Graph, inputs: dict[str, Any], scalars: Any) -> dict[str, Any]:
    """Compute a graph's vertices one after another by the functions of their kernels."""
    values: dict[str, Any] = dict(inputs)
    for vertex in graph.vertices.values():
        op = vertex.op
        operands = [values[name] for name in vertex.inputs]
        if isinstance(op, Fill):
            box = [(0, size) for size in vertex.shape]
            values[vertex.name] = LIBRARY.filled(op, box, scalars, graph.scalars)
        elif not isinstance(op, Input):
            dims = view_of(graph, vertex).reads
            reads = [None if own is None else tuple((d.start, d.stop) for d in own) for own in dims]
            operands = [
                x if box is None else x[tuple(slice(*ends) for ends in box)]
                for x, box in zip(operands, reads, strict=True)
            ]
            shown = shown_to(vertex, reads, tuple((0, n) for n in vertex.shape))
            kernel = LIBRARY.kernel(graph, vertex)
            operands = see(LIBRARY, kernel, operands, shown)
            given_ = [scalars[name] for name in graph.scalars]
            values[vertex.name] = kernel.result(operands, given_, vertex.shape)
    return {vertex.name: values[vertex.name] for vertex in graph.outputs}


@given(graphs())
def test_whole_graphs_are_traced(graph: ed.Graph) -> None:
    given_ = arrays(graph)
    inputs = {v.name: LIBRARY.from_numpy(given_[v.name]) for v in graph.inputs}
    scalars = {name: torch.tensor(given_[name], dtype=torch.float64) for name in graph.scalars}

    def compute(inputs: Any, scalars: Any) -> Any:
        return run(graph, inputs, scalars)

    traced = make_fx(compute, tracing_mode="fake")(inputs, scalars)
    found, expected = traced(inputs, scalars), ed.evaluate(graph, given_)
    for vertex in graph.outputs:
        result = LIBRARY.to_numpy(found[vertex.name])
        assert (result.shape, result.dtype) == (vertex.shape, vertex.dtype)
        exact = 1e-9 if result.dtype.itemsize > 4 else 1e-5  # sums of floats may be narrow
        np.testing.assert_allclose(result, expected[vertex.name], rtol=exact, atol=exact / 1000)


MOVES = """
input X[i: 4, j: 6] {t}, at[j] {n}, n[i] {n}
G[p, i] <- X[i, pick[p]]
B[i] <- X[i, n[i]]
S[r: 5 = n[i], j] <- sum X[i,j]
D[j, r: 3 = n[i]] <- sum X[i,j]
A[i, r: 6 = at[j]] <- sum X[i,j]
E[r: 6 = at[j]] <- sum X[i,j]
C[i, j] <- concat[j](X[i,j], X[i,j])
R[(j, i)] <- X[i, j]
W[i, k, l] <- X[i, (k: 2, l)]
L[j] <- X[2, j in 1:5]
output G, B, S, D, A, E, C, R, W, L
"""


@pytest.mark.parametrize("of", [name for name in type_names if name != "bool"])
@pytest.mark.parametrize("index", ["int32", "int64", "uint8", "int8", "uint32"])
def test_moves_of_every_type(of: str, index: str) -> None:
    text = MOVES.format(t=of, n=index).replace("input X", f"input pick[p: 3] {index}, X")
    graph = ed.parse(text)
    given_ = {
        "X": values_of((4, 6), dtype(of), 1),
        "at": np.array([0, 5, 5, 2, 0, 5]),
        "n": np.array([1, 0, 1, 2]),
        "pick": np.array([5, 0, 5]),
    }
    given_ = {v.name: given_[v.name].astype(v.dtype) for v in graph.inputs}
    expected = ed.evaluate(graph, given_)
    found = run(graph, {name: LIBRARY.from_numpy(x) for name, x in given_.items()}, {})
    for name, wanted in expected.items():
        result = LIBRARY.to_numpy(found[name])
        assert result.dtype == wanted.dtype
        if of in ("float16", "bfloat16", "float32", "complex64"):
            np.testing.assert_allclose(
                result.astype(complex), wanted.astype(complex), rtol=1e-6, err_msg=name
            )
        else:
            np.testing.assert_allclose(result, wanted, rtol=1e-14, err_msg=name)


def test_low_precision_rows_are_summed_in_float32() -> None:
    graph = ed.parse("input X[i: 512] bfloat16, n[i] int32\nS[r: 2 = n[i]] <- sum X[i]\noutput S")
    x, n = torch.ones(512, dtype=torch.bfloat16), torch.zeros(512, dtype=torch.int32)
    assert LIBRARY.kernel(graph, graph["S"]).result([x, n], (), (2,)).tolist() == [512, 0]


@pytest.mark.parametrize(("bad", "shown"), [([0, -1], -1), ([3, 4, 1], 4)])
def test_indices_out_of_range_are_refused_before_they_are_used(bad: list[int], shown: int) -> None:
    with pytest.raises(InputError, match=f"index {shown} is outside 0 to 3"):
        check_index(torch.tensor(bad), 4)
    graph = ed.parse(f"input X[i: 4], n[j: {len(bad)}] int64\nG[j] <- X[n[j]]\noutput G")
    out = torch.empty(len(bad))
    with pytest.raises(InputError, match=f"index {shown}"):
        LIBRARY.kernel(graph, graph["G"]).whole([torch.ones(4), torch.tensor(bad)], out)
    check_index(torch.tensor([], dtype=torch.int64), 4)


def test_wrong_tiles_are_refused() -> None:
    f4 = dtype("float32")
    op = EinSum((("i", "k"), ("j", "k")), ("i", "j"), call("sub", Arg(0), Arg(1)), MAX)
    kernel = einsum_kernel(op, (f4, f4), f4)
    a = torch.ones(3, 4)
    with pytest.raises(InputError, match="float64"):
        kernel.result([a, a.double()], (), (3, 3))
    with pytest.raises(InputError, match="not nothing"):
        kernel.result([a, None], (), (3, 3))
    with pytest.raises(InputError, match="sizes 4 and 3"):
        kernel.result([a, a[:, :3]], (), (3, 3))
    with pytest.raises(InputError, match="shape"):
        kernel.result([a, a[0]], (), (3, 3))
    with pytest.raises(InputError, match=r"'j' .* has sizes 3 and 5"):
        kernel.result([a, a], (), (3, 5))
    wide = EinSum((("i",),), ("w", "i"), Arg(0))
    with pytest.raises(InputError, match="aggregates nothing"):
        einsum_kernel(wide, (f4,), f4).combined([a], [a])


SOFT = ed.monoid(
    "soft",
    "(max(x0, y0), x1 * exp(x0 - max(x0, y0)) + y1 * exp(y0 - max(x0, y0)))",
    (-math.inf, 0),
    finish="x0 + log(x1)",
)
HYPOT = ed.monoid("hypot", "sqrt(x**2 + y**2)", identity=0)


def test_neutral_parts_are_passed_over() -> None:
    f8, inf = dtype("float64"), math.inf
    op = EinSum((("i", "j"),), ("i",), parse_join("(x, 1)", 1), SOFT)
    kernel = einsum_kernel(op, (f8,), f8)
    x = np.array([[-inf, -inf, 2.0], [-inf, -inf, -inf], [-inf, 1.0, 1.0]])
    first, *rest = (
        kernel.states([torch.from_numpy(x[:, columns])], (), (3,))
        for columns in (slice(0, 0), slice(0, 1), slice(1, 1), slice(1, 3), slice(0, 0))
    )
    for part in rest:
        first = kernel.combined(first, part)
    with np.errstate(all="ignore"):
        expected = np.logaddexp.reduce(x, axis=1)
    np.testing.assert_allclose(kernel.finished(first), expected)
    np.testing.assert_allclose(kernel.result([torch.from_numpy(x)], (), (3,)), expected)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_the_neutral_state_is_aggregated_with_one_value_as_with_more(size: int) -> None:
    f8 = dtype("float64")
    kernel = einsum_kernel(EinSum((("i", "j"),), ("i",), Arg(0), HYPOT), (f8,), f8)
    found = kernel.result([torch.full((2, size), -0.25, dtype=torch.float64)], (), (2,))
    np.testing.assert_allclose(found, np.full(2, 0.25 * math.sqrt(size)))
