"""Vertices with several inputs: their kernel, its verdicts, and plans that keep them whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.kernels.cpu.einsum import EinSumKernel, einsum_kernel
from eindecomp.kernels.cpu.products import contractions
from eindecomp.kernels.cpu.products.contractions import FusedContraction
from eindecomp.kernels.cpu.products.nests import nest_of
from eindecomp.kernels.measured import Verdicts, fastest_of
from eindecomp.lang.einsum import EinSum, product
from eindecomp.lang.monoid import SUM

Array = np.ndarray[Any, Any]
MTTKRP = EinSum((("i", "j", "k"), ("j", "a"), ("k", "a")), ("i", "a"), product(3), SUM)
rng = np.random.default_rng(0)


def tile(of: str) -> list[Array]:
    shapes = [(24, 20, 18), (20, 16), (18, 16)]
    return [rng.standard_normal(shape).astype(of) for shape in shapes]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("of", ["float32", "float64", "float16", "int32", "complex64"])
def test_the_kernel_gives_numpys_result(of: str) -> None:
    operands = [4 * array if of == "int32" else array for array in tile("float64")]
    operands = [array.astype(of) for array in operands]
    dtype = np.dtype(of)
    out = np.empty((24, 16), dtype)
    EinSumKernel(MTTKRP, (dtype,) * 3, dtype).whole(operands, out)
    wide = [array if dtype.kind in "ic" else array.astype("float64") for array in operands]
    expected = np.einsum("ijk,ja,ka->ia", *wide)
    off = float(np.abs(out - expected).max()) / float(np.abs(expected).max())
    assert off < {"float64": 1e-13, "float16": 1e-3, "int32": 0.5e-12}.get(of, 1e-5)


def test_only_floats_of_one_type_are_computed_by_nests() -> None:
    f4, f8, f2 = (np.dtype(name) for name in ("float32", "float64", "float16"))
    assert FusedContraction.suits(MTTKRP, (f4, f4, f4), f4)
    assert not FusedContraction.suits(MTTKRP, (f4, f8, f4), f8)
    assert not FusedContraction.suits(MTTKRP, (f2, f2, f2), f2)
    two = EinSum((("i", "j"), ("j", "k")), ("i", "k"), product(2), SUM)
    assert not FusedContraction.suits(two, (f4, f4), f4)


def test_what_is_not_a_number_stays_so() -> None:
    x, b, c = tile("float32")
    x[3, 4, 5] = np.nan
    b[7, 2] = np.inf
    out = np.empty((24, 16), "float32")
    f4 = np.dtype("float32")
    EinSumKernel(MTTKRP, (f4,) * 3, f4).whole([x, b, c], out)
    assert np.isnan(out[3]).all()
    assert not np.isfinite(out[:, 2]).any()
    rest = np.delete(np.delete(out, 3, axis=0), 2, axis=1)
    assert np.isfinite(rest).all()


def test_a_class_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contractions, "_VERDICTS", Verdicts("contractions", lambda: "here"))
    measured: list[str] = []

    def first(ways: dict[str, Any]) -> str:
        for way in ways.values():
            way()
        measured.append(next(iter(ways)))
        return measured[-1]

    monkeypatch.setattr(contractions, "fastest_of", first)
    monkeypatch.setenv("EINDECOMP_CACHE_MB", "0")
    contraction = FusedContraction(MTTKRP, einsum_kernel)
    sizes = {"i": 24, "j": 20, "k": 18, "a": 16}
    operands, out = tile("float32"), np.empty((24, 16), "float32")
    for _ in range(2):
        call = contraction.prepare(operands, out, sizes, lambda *_: None)
        assert call is not None
        call.launch(operands, [out])
        np.testing.assert_allclose(out, np.einsum("ijk,ja,ka->ia", *operands), rtol=1e-3, atol=1e-3)
    assert len(measured) == 1
    assert nest_of(measured[0]) is not None


def test_a_class_is_measured_in_a_graph_with_scalars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contractions, "_VERDICTS", Verdicts("none", contractions.versions))
    monkeypatch.setattr(Verdicts, "find", lambda _self, _title, measure: measure())
    x, b, c = tile("float32")
    out, f4 = np.empty((24, 16), "float32"), np.dtype("float32")
    scalars = {"lr": f4, "step": np.dtype("float64")}
    kernel = EinSumKernel(MTTKRP, (f4,) * 3, f4, tuple(scalars.items()))
    kernel.whole([x, b, c], out, [np.float32(1), np.float64(2)])
    np.testing.assert_allclose(out, np.einsum("ijk,ja,ka->ia", x, b, c), rtol=1e-4, atol=1e-4)


def test_tiny_tiles_are_left_to_loops() -> None:
    operands = [np.ones(shape, "float32") for shape in ((2, 2, 2), (2, 3), (2, 3))]
    contraction = FusedContraction(MTTKRP, einsum_kernel)
    sizes = {"i": 2, "j": 2, "k": 2, "a": 3}
    out = np.empty((2, 3), "float32")
    assert contraction.prepare(operands, out, sizes, lambda *_: None) is None


def test_the_faster_way_is_found() -> None:
    slow = np.ones((300, 300))
    ways = {"slow": lambda: [slow @ slow for _ in range(20)] and None, "fast": lambda: None}
    assert fastest_of(ways) == "fast"


TEXTS = {
    "mttkrp": "input X[i: 21, j: 22, k: 23], B[j, a: 8], C[k, a]\n"
    "Z[j,a] <- sum X[i,j,k] * B[j,a] * C[k,a]\noutput Z",
    "ttmc": "input X[i: 12, j: 12, k: 12, l: 12], A[i, a: 6], B[j, b: 6], C[k, c: 6]\n"
    "Z[a,b,c,l] <- sum X[i,j,k,l] * A[i,a] * B[j,b] * C[k,c]\noutput Z",
    "train": "input A[i: 16, a: 8], B[a, j: 16, b: 8], C[b, k: 16]\n"
    "Z[i,j,k] <- sum A[i,a] * B[a,j,b] * C[b,k]\noutput Z",
    "chain": "input A[i: 40, j: 30], B[j, k: 50], C[k, l: 20]\n"
    "Z[i,l] <- sum A[i,j] * B[j,k] * C[k,l]\noutput Z",
    "scalar": "input A[i: 40, j: 30], B[j, k: 50], C[k, i]\n"
    "Z[] <- sum A[i,j] * B[j,k] * C[k,i]\noutput Z",
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("devices", [1, 2, 6])
@pytest.mark.parametrize("name", TEXTS)
def test_plans_that_keep_several_inputs_give_what_evaluate_gives(name: str, devices: int) -> None:
    graph = ed.parse(TEXTS[name])
    inputs = {v.name: rng.standard_normal(v.shape).astype(v.dtype) for v in graph.inputs}
    plan = ed.plan(graph, devices, rewrite=False)
    assert len(plan.graph["Z"].inputs) > 2
    found = ed.run(plan, inputs)["Z"]
    expected = ed.evaluate(graph, inputs)["Z"]
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(found / scale, expected / scale, atol=1e-5)
