"""EinSums of tensors against the reference: whole, in parts, in pieces and traced."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from random_tiles import (
    SIZES,
    TYPES,
    assert_close,
    einsums,
    layouts,
    out_type,
    reference,
    values_of,
)

pytest.importorskip("torch.nn", reason="torch is not installed")

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from eindecomp.errors import EinDecompError
from eindecomp.graph.evaluate import EinSumSteps
from eindecomp.kernels.torch import aggregations, einsum
from eindecomp.kernels.torch.einsum import einsum_kernel
from eindecomp.kernels.torch.kernel import TorchKernel
from eindecomp.kernels.torch.library import TorchLibrary
from eindecomp.lang.dtypes import DType, dtype
from eindecomp.lang.einsum import EinSum, product
from eindecomp.lang.monoid import MAX, PROD, SUM
from eindecomp.lang.scalar import Arg, Scalar, call

Array = np.ndarray[Any, Any]
LIBRARY = TorchLibrary()
F4 = dtype("float32")
x, y, z = Arg(0), Arg(1), Arg(2)
ALL_TYPES = (*TYPES, "int16", "int64", "uint16", "uint32", "uint64", "complex64", "complex128")


def made(draw: st.DrawFn, op: EinSum) -> tuple[tuple[DType, ...], DType, list[Array]]:
    types = tuple(dtype(draw(st.sampled_from(ALL_TYPES))) for _ in op.inputs)
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


def shape_of(op: EinSum, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(sizes[label] for label in op.output)


def tensors(arrays: list[Array]) -> list[Any]:
    return [LIBRARY.from_numpy(array) for array in arrays]


@given(einsums(), st.data())
def test_a_whole_tile_is_the_references(op: EinSum, data: st.DataObject) -> None:
    types, out, arrays = made(data.draw, op)
    expected = reference(op, arrays, out, SIZES)
    given_ = tensors([layouts(a, data.draw(st.integers(0, 4))) for a in arrays])
    kernel = einsum_kernel(op, types, out)
    found = kernel.result(given_, (), expected.shape)
    assert found.dtype == LIBRARY.empty((), out).dtype
    assert_close(LIBRARY.to_numpy(found), expected, out)
    into = LIBRARY.from_numpy(layouts(np.zeros(expected.shape, out), data.draw(st.integers(0, 2))))
    kernel.whole(given_, into)
    assert_close(LIBRARY.to_numpy(into), expected, out)


def in_parts(kernel: TorchKernel, op: EinSum, arrays: list[Any], cuts: dict[str, int]) -> Any:
    """Compute each corner of a cut label space apart, and put the corners together."""
    shape = shape_of(op, SIZES)
    total = [LIBRARY.empty(shape, t) for t in kernel.state]
    for number in range(2 ** len(op.labels)):
        sides = {k: (number >> bit) & 1 for bit, k in enumerate(op.labels)}
        box = {k: slice(cuts[k], None) if s else slice(cuts[k]) for k, s in sides.items()}
        tiles = [a[*(box[k] for k in own), ...] for own, a in zip(op.inputs, arrays, strict=True)]
        into = [t[*(box[k] for k in op.output), ...] for t in total]
        part = kernel.states(tiles, (), into[0].shape)
        if any(sides[k] for k in op.aggregated):
            kernel.combine(into, part)
        else:
            for old, new in zip(into, part, strict=True):
                old.copy_(new)
    return kernel.finished(total)


@given(einsums(), st.data())
def test_parts_make_the_whole(op: EinSum, data: st.DataObject) -> None:
    types, out, arrays = made(data.draw, op)
    cuts = {k: data.draw(st.integers(0, SIZES[k])) for k in op.labels}
    kernel = einsum_kernel(op, types, out)
    found = in_parts(kernel, op, tensors(arrays), cuts)
    assert found.dtype == LIBRARY.empty((), out).dtype
    assert_close(LIBRARY.to_numpy(found), reference(op, arrays, out, SIZES), out)


@given(einsums(), st.data())
def test_what_is_traced_computes_the_same(op: EinSum, data: st.DataObject) -> None:
    types, out, arrays = made(data.draw, op)
    kernel, shape = einsum_kernel(op, types, out), shape_of(op, SIZES)

    def compute(*operands: Any) -> Any:
        states = kernel.states(operands, (), shape)
        both = states if op.agg is None else kernel.combined(states, states)
        return kernel.result(operands, (), shape), kernel.finished(both), *both

    given_ = tensors(arrays)
    traced = make_fx(compute, tracing_mode="fake")(*given_)
    for found, wanted in zip(traced(*given_), compute(*given_), strict=True):
        np.testing.assert_array_equal(LIBRARY.to_numpy(found), LIBRARY.to_numpy(wanted))


@given(einsums(), st.data())
def test_pieces_make_the_whole(op: EinSum, data: st.DataObject) -> None:
    types, out, arrays = made(data.draw, op)
    expected = reference(op, arrays, out, SIZES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aggregations, "LIMIT", data.draw(st.sampled_from([16, 64, 256])))
        found = einsum_kernel(op, types, out).result(tensors(arrays), (), expected.shape)
    assert_close(LIBRARY.to_numpy(found), expected, out)


def test_a_generated_kernel_is_asked_for_large_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    op = EinSum((("i", "k"), ("j", "k")), ("i", "j"), call("abs", call("sub", x, y)), MAX)
    kernel = einsum_kernel(op, (F4, F4), F4)
    seen: list[tuple[int, ...]] = []

    def asked(*of: Any) -> Any:
        def states(operands: Any, sizes: dict[str, int], scalars: Any) -> Any:
            seen.append(tuple(sizes.values()))
            return [(operands[0][:, None] - operands[1]).abs().amax(-1)]

        assert of[:3] == (op, (F4, F4), F4)
        return states

    monkeypatch.setattr(einsum, "fused_join", asked)
    monkeypatch.setattr(kernel, "_loops", None)  # as on a GPU
    for size, calls in ((8, 0), (128, 1)):
        a = torch.randn(size, size)
        assert torch.equal(kernel.result([a, a], (), (size, size)), (a[:, None] - a).abs().amax(-1))
        assert seen == [(128, 128, 128)] * calls


CONTRACTIONS = [
    ("bshd", "bthd", "bhst"), ("bhst", "bthd", "bshd"), ("ik", "kj", "ij"), ("ki", "jk", "ji"),
    ("abk", "kcd", "cadb"), ("abk", "bka", "k"), ("iik", "kj", "ij"), ("aik", "kj", "ij"),
    ("bij", "bjk", "bik"), ("abkl", "lkcd", "acbd"), ("ik", "kj", "ijd"), ("i", "j", "ij"),
    ("ijk", "k", "ij"), ("k", "bjk", "bj"), ("k", "k", ""), ("bk", "bkj", "bj"),
]  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("spec", CONTRACTIONS, ids=" ".join)
@pytest.mark.parametrize(
    "of", ["float32", "complex128", "bfloat16", "float16", "int8", "uint8", "uint64", "bool"]
)
def test_contractions_of_every_layout(spec: tuple[str, str, str], of: str) -> None:
    sizes = dict(zip("abcdhijklst", (4, 5, 6, 7, 3, 70, 66, 20, 8, 19, 21), strict=True))
    first, second, output = (tuple(part) for part in spec)
    op = EinSum((first, second), output, product(2), SUM)
    t = dtype(of)
    arrays = [values_of(tuple(sizes[k] for k in own), t, n) for n, own in enumerate(op.inputs)]
    out = dtype("int64") if of == "bool" else t
    expected = reference(op, arrays, out, sizes)
    kernel = einsum_kernel(op, (t, t), out)
    for how in range(3):
        given_ = tensors([layouts(a, how) for a in arrays])
        found = LIBRARY.to_numpy(kernel.result(given_, (), expected.shape))
        if out.kind in "biu":
            np.testing.assert_array_equal(found, expected)
            continue
        rough = {"bfloat16": 2e-2, "float16": 2e-3}.get(of, 1e-4)
        np.testing.assert_allclose(
            found.astype(complex), expected.astype(complex), rtol=rough, atol=20 * rough
        )


@pytest.mark.parametrize(
    ("join", "types", "out"),
    [
        (call("mul", call("mul", x, y), 0.088), ("bfloat16", "bfloat16"), "bfloat16"),
        (call("mul", call("float32", x), y), ("bfloat16", "bfloat16"), "float32"),
        (call("mul", x, y), ("bfloat16", "float16"), "float32"),
        (call("mul", x, y), ("int32", "bfloat16"), "bfloat16"),
        (call("mul", call("exp", x), y), ("float32", "float32"), "float32"),
        (call("mul", x, call("mul", y, z)), ("float32", "float32", "float32"), "float32"),
        (call("mul", call("mul", x, x), y), ("float32", "float32"), "float32"),
        (call("mul", call("mul", x, call("sub", x, y)), y), ("float32", "float32"), "float32"),
        (call("mul", call("mul", x, Scalar("s0")), y), ("float32", "float32"), "float32"),
        (call("mul", call("mul", x, 3), y), ("int8", "int8"), "int8"),
    ],
    ids=str,
)  # fmt: skip
def test_products_with_factors_and_conversions(join: Any, types: tuple[str, ...], out: str) -> None:
    sizes = {"b": 2, "i": 65, "k": 48, "j": 66, "l": 3}
    labels = [("b", "i", "k"), ("j", "k"), ("k", "l")][: len(types)]
    op = EinSum(tuple(labels), ("b", "j", "i"), join, SUM)
    kinds = tuple(dtype(t) for t in types)
    arrays = [
        values_of(tuple(sizes[k] for k in own), t, n)
        for n, (own, t) in enumerate(zip(labels, kinds, strict=True))
    ]
    scalar = {"s0": dtype("float64")}
    steps = EinSumSteps(op, kinds, {"s0": 0.3}, scalar)
    expected = steps.finish(steps.partial(arrays, sizes)).astype(out)
    kernel = einsum_kernel(op, kinds, dtype(out), tuple(scalar.items()))
    for given_ in (0.3, torch.tensor(0.3, dtype=torch.float64)):
        found = LIBRARY.to_numpy(kernel.result(tensors(arrays), [given_], expected.shape))
        if out == "int8":
            np.testing.assert_array_equal(found, expected)
        else:
            rough = 2e-2 if out == "bfloat16" else 1e-4
            np.testing.assert_allclose(
                found.astype(float), expected.astype(float), rtol=rough, atol=10 * rough
            )
