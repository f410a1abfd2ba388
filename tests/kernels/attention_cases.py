"""Attention written in several ways, with random tensors and what the graph says is its result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from eindecomp.graph.evaluate import evaluate
from eindecomp.graph.patterns.attention import Attention, find_attention
from eindecomp.graph.patterns.terms import TensorExpr
from eindecomp.graph.text.elaborate import parse

torch: Any = pytest.importorskip("torch")
kernels: Any = pytest.importorskip("eindecomp.kernels.torch.attention")
layout: Any = pytest.importorskip("eindecomp.kernels.torch.attention_layout")
Backend = kernels.Backend
PartTile = layout.PartTile
WIDE = {"b": 2, "h": 2, "g": 4, "s": 16, "t": 16, "e": 32, "d": 64, "offset": 0}

HEAD = (
    "input Q[b: {b}, h: {h}, g: {g}, s: {s}, k: 2, e: {e}] {dtype}, K[b, h, t: {t}, k, e] {dtype}\n"
    "input V[b, h, t, d: {d}] {dtype}\nT[b,h,g,s,t] <- sum Q[b,h,g,s,k,e] * K[b,h,t,k,e]\n"
)
TAIL = (
    "\nC[b,h,g,s] <- max U[b,h,g,s,t]\nP[b,h,g,s,t] <- exp(U[b,h,g,s,t] - C[b,h,g,s])\n"
    "Z[b,h,g,s] <- sum P[b,h,g,s,t]\nA[b,s,h,g,d] <- sum P[b,h,g,s,t] * V[b,h,t,d]\n"
    "O[b,s,h,g,d] <- {dtype}(A[b,s,h,g,d] / Z[b,h,g,s])\noutput O"
)
FORMS = {
    "plain": "U[b,h,g,s,t] <- T[b,h,g,s,t] * 0.3",
    "causal": "M[s: {s}, t: {t}] <- fill t <= s + {offset}\n"
    "U[b,h,g,s,t] <- where(M[s,t], T[b,h,g,s,t] * 0.3, -inf)",
    "fill": "M[s: {s}, t: {t}] <- fill (t + s) % 3 > 0\n"
    "U[b,h,g,s,t] <- where(M[s,t], T[b,h,g,s,t], -inf)",
    "tensor": "input M[b: {b}, t: {t}] bool\nU[b,h,g,s,t] <- where(M[b,t], T[b,h,g,s,t], -inf)",
    "length": "input n[b: {b}] int32\nM[b: {b}, t: {t}] <- index(t) < n[b]\n"
    "U[b,h,g,s,t] <- where(M[b,t], T[b,h,g,s,t], -inf)",
    "bias": "input B[h: {h}, s: {s}, t: {t}] {dtype}\nU[b,h,g,s,t] <- T[b,h,g,s,t] / 2 + B[h,s,t]",
    "both": "input B[h: {h}, g: {g}, s: {s}, t: {t}] {dtype}\n"
    "M[s: {s}, t: {t}] <- fill t <= s + {offset}\n"
    "U[b,h,g,s,t] <- where(M[s,t], T[b,h,g,s,t] / 2 + B[h,g,s,t], -inf)",
}


@dataclass(frozen=True)
class Case:
    """An attention, its inputs as tensors, its tile of all keys, and what the result should be."""

    attention: Attention
    q: Any
    tile: Any
    expected: np.ndarray[Any, Any]
    dtype: str

    def to(self, device: str) -> Case:
        given = {n: getattr(self.tile, n) for n in ("k", "v", "mask", "bias", "length")}
        moved = {n: None if x is None else x.to(device) for n, x in given.items()}
        return replace(self, q=self.q.to(device), tile=replace(self.tile, **moved))

    def check(self, found: Any, rows: slice = slice(None)) -> None:
        assert found.dtype == getattr(torch, self.dtype)
        tolerance = {"float64": 1e-9, "float32": 2e-5, "bfloat16": 4e-2}[self.dtype]
        np.testing.assert_allclose(
            found.double().cpu().numpy(), self.expected[:, rows], rtol=tolerance, atol=tolerance
        )


def make_case(form: str, dtype: str, seed: int, **sizes: int) -> Case:
    (attention,) = find_attention(parse((HEAD + FORMS[form] + TAIL).format(**sizes, dtype=dtype)))
    exact = parse((HEAD + FORMS[form] + TAIL).format(**sizes, dtype="float64"))
    (part,) = attention.parts
    rng = np.random.default_rng(seed)
    arrays: dict[str, Any] = {}
    for vertex in exact.inputs:
        if vertex.name == "n":
            arrays["n"] = rng.integers(0, sizes["t"] + 1, vertex.shape).astype(np.int32)
        elif vertex.name == "M":
            arrays["M"] = rng.random(vertex.shape) < 0.6
        else:
            random = torch.from_numpy(rng.standard_normal(vertex.shape))
            arrays[vertex.name] = random.to(getattr(torch, dtype)).double().numpy()
    conditions: dict[str, Any] = {}
    extra: dict[str, TensorExpr] = {}
    if part.mask is not None and part.mask.length is not None:
        extra["length"] = part.mask.length
    elif part.mask is not None and not part.mask.is_causal:
        extra["mask"] = part.mask.value
    if part.bias is not None:
        extra["bias"] = part.bias
    for name, value in extra.items():
        labels = layout.condition_labels(attention, part, value)
        operands = [(read.name, read.labels) for read in value.reads]
        exact.output(exact.add_einsum(labels, operands, value.expr, name=f"own_{name}"))
    results = evaluate(exact, arrays)
    for name in extra:
        conditions[name] = torch.from_numpy(np.array(results[f"own_{name}"]))
    q, k, v = (torch.from_numpy(arrays[x]).to(getattr(torch, dtype)) for x in "QKV")
    return Case(attention, q, PartTile(k, v, **conditions), results["O"], dtype)


sizes = st.fixed_dictionaries(
    {
        "b": st.integers(1, 2),
        "h": st.integers(1, 3),
        "g": st.integers(1, 3),
        "s": st.integers(1, 9),
        "t": st.integers(1, 9),
        "e": st.integers(1, 5),
        "d": st.integers(1, 10),
        "offset": st.integers(-4, 8),
    }
)


def sized_case(form: str, dtype: str, seed: int, sizes: dict[str, int]) -> Case:
    return make_case(form, dtype, seed, **sizes)


cases = st.builds(
    sized_case,
    st.sampled_from(sorted(FORMS)),
    st.sampled_from(["float64", "float32", "bfloat16"]),
    st.integers(0, 99),
    sizes,
)


def cut_queries(case: Case, tile: Any, start: int, stop: int) -> Any:
    """A tile of keys with what it says about some queries."""
    (part,) = case.attention.parts
    some: dict[str, Any] = {}
    for name, value in (("mask", part.mask and part.mask.value), ("bias", part.bias)):
        tensor = getattr(tile, name)
        if tensor is not None and value is not None and "s" in value.labels:
            own = layout.condition_labels(case.attention, part, value)
            some[name] = tensor.narrow(own.index("s"), start, stop - start)
    return replace(tile, **some)


STEP = """
scalar latest int32
input length[b: 2] int32, Q[b, h: 2, g: 3, s: 1, e: 8] {dtype}
input K[b, h, t: 21, e] {dtype}, V[b, h, t, d: {d}] {dtype}
input L[b, h, r: 6, e] {dtype}, W[b, h, r, d] {dtype}
M[b,t] <- index(t) < length[b]
T[b,h,g,s,t] <- sum Q[b,h,g,s,e] * K[b,h,t,e]
U[b,h,g,s,r] <- sum Q[b,h,g,s,e] * L[b,h,r,e]
CT[b,h,g,s]  <- max where(M[b,t], T[b,h,g,s,t], -inf)
C[b,h,g,s]   <- max where(index(r) <= latest, max(U[b,h,g,s,r], CT[b,h,g,s]), -inf)
P[b,h,g,s,t] <- where(M[b,t], exp(T[b,h,g,s,t] - C[b,h,g,s]), 0)
R[b,h,g,s,r] <- where(index(r) <= latest, exp(U[b,h,g,s,r] - C[b,h,g,s]), 0)
Z[b,h,g,s]   <- sum P[b,h,g,s,t]
Y[b,h,g,s]   <- sum R[b,h,g,s,r]
A[b,s,h,g,d] <- sum P[b,h,g,s,t] * V[b,h,t,d]
B[b,s,h,g,d] <- sum R[b,h,g,s,r] * W[b,h,r,d]
O[b,s,h,g,d] <- {dtype}((A[b,s,h,g,d] + B[b,s,h,g,d]) / (Z[b,h,g,s] + Y[b,h,g,s]))
output O
"""


def check_step(
    dtype: str, latest: int, length: int, size: int, backends: list[Any], device: str = "cpu"
) -> None:
    """One more token, whose keys are stored ones and the latest."""
    (attention,) = find_attention(parse(STEP.format(dtype=dtype, d=size)))
    exact = parse(STEP.format(dtype="float64", d=size))
    rng = np.random.default_rng(latest)
    arrays: dict[str, Any] = {
        v.name: torch.from_numpy(rng.standard_normal(v.shape)).to(getattr(torch, dtype))
        for v in exact.inputs
        if v.name != "length"
    }
    lengths = np.array([length, 21], np.int32)
    given = {name: tensor.double().numpy() for name, tensor in arrays.items()}
    expected = evaluate(exact, {**given, "length": lengths, "latest": latest})["O"]
    arrays = {name: tensor.to(device) for name, tensor in arrays.items()}
    tiles = [
        PartTile(arrays["K"], arrays["V"], length=torch.from_numpy(lengths).to(device)),
        PartTile(arrays["L"], arrays["W"], length=torch.tensor(latest + 1, device=device)),
    ]
    for backend in backends:
        found = kernels.attend(attention, arrays["Q"], tiles, backend=backend)[0]
        tolerance = {"float64": 1e-9, "float32": 2e-5, "float16": 5e-3, "bfloat16": 4e-2}[dtype]
        np.testing.assert_allclose(
            found.double().cpu().numpy(), expected, rtol=tolerance, atol=tolerance
        )


def trace(case: Case, q: Any, tile: Any, backend: Any = None) -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx

    (names,) = ([n for n in ("k", "v", "mask", "bias", "length") if getattr(tile, n) is not None],)

    def run(q: Any, *given: Any) -> Any:
        own = replace(tile, **dict(zip(names, given, strict=True)))
        return kernels.attend(case.attention, q, [own], backend=backend)[0]

    return make_fx(run, tracing_mode="fake")(q, *(getattr(tile, n) for n in names)), names
