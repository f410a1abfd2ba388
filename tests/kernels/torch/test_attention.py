"""Attention on tiles of torch's tensors equals what the graph's own vertices say."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eindecomp.graph.evaluate import evaluate
from eindecomp.graph.patterns.attention import Attention, MaskKind, Value, find_attention
from eindecomp.graph.rewrites.rewrite import rewrite
from eindecomp.graph.text.elaborate import parse

torch: Any = pytest.importorskip("torch")
kernels: Any = pytest.importorskip("eindecomp.kernels.torch.attention")
layout: Any = pytest.importorskip("eindecomp.kernels.torch.attention_layout")
Backend = kernels.Backend
PartTile = kernels.PartTile

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

    def check(self, found: Any, rows: slice = slice(None)) -> None:
        assert found.dtype == getattr(torch, self.dtype)
        tolerance = {"float64": 1e-9, "float32": 2e-5, "bfloat16": 4e-2}[self.dtype]
        np.testing.assert_allclose(
            found.double().numpy(), self.expected[:, rows], rtol=tolerance, atol=tolerance
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
    extra: dict[str, Value] = {}
    if part.mask is not None and part.mask.kind in (MaskKind.FILL, MaskKind.TENSOR):
        extra["mask"] = part.mask.value
    if part.mask is not None and part.mask.length is not None:
        extra["length"] = part.mask.length
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


def cut(case: Case, start: int, stop: int) -> Any:
    """The tile of some keys."""
    (part,) = case.attention.parts
    tile = case.tile
    some = {"k": tile.k[:, :, start:stop], "v": tile.v[:, :, start:stop], "start": start}
    for name, value in (("mask", part.mask and part.mask.value), ("bias", part.bias)):
        tensor = getattr(tile, name)
        if tensor is not None and value is not None and part.key in value.labels:
            some[name] = tensor[..., start:stop]
    return replace(tile, **some)


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


@given(cases)
def test_whole(case: Case) -> None:
    found = kernels.backends(case.attention, case.q, [case.tile])
    assert found[-1] is Backend.MATH
    for backend in found:
        case.check(kernels.attend(case.attention, case.q, [case.tile], backend=backend))


@given(cases, st.integers(1, 9), st.integers(1, 9), st.booleans())
def test_tiles_of_queries_and_keys(case: Case, rows: int, keys: int, strided: bool) -> None:
    queries, there = case.q.shape[3], case.tile.k.shape[2]
    if strided:
        case = replace(case, q=case.q.mT.contiguous().mT)
    for start in range(0, queries, rows):
        stop = min(start + rows, queries)
        q = case.q[:, :, :, start:stop]
        partials = [
            kernels.attend_partial(
                case.attention,
                case.attention.parts[0],
                q,
                cut_queries(case, cut(case, first, min(first + keys, there)), start, stop),
                start=start,
            )
            for first in range(0, there, keys)
        ]
        check_rescaled(case, partials, slice(start, stop))
        out, lse = kernels.merge(case.attention, partials)
        hidden = (lse == -torch.inf).unsqueeze(-1)
        case.check(torch.where(hidden, torch.nan, out), slice(start, stop))


def check_rescaled(case: Case, partials: list[Any], rows: slice) -> None:
    """Maxima, sums and products combine like the aggregations of the graph."""
    maximum = torch.stack([lse for _, lse in partials]).amax(0)
    shares = [kernels.rescale(case.attention, out, lse, maximum) for out, lse in partials]
    product = torch.stack([share for share, _ in shares]).sum(0)
    total = torch.stack([weight for _, weight in shares]).sum(0)
    case.check((product / total.unsqueeze(-1)).to(case.q.dtype), rows)


LABELS = {
    "queries of many sequences, one set of keys": (
        "input Q[b: 3, s: 4, e: 5], K[t: 6, e], V[t, d: 5]",
        "causal_attention[s,t,e](Q[b,s,e], K[t,e], V[t,d])",
        "b,s,d",
    ),
    "one head of keys": (
        "input Q[b: 3, h: 2, s: 4, e: 5], K[b, t: 6, e], V[b, t, d: 5]",
        "attention[t,e](Q[b,h,s,e], K[b,t,e], V[b,t,d])",
        "s,b,d,h",
    ),
    "no batch": (
        "input Q[s: 4, e: 5], K[t: 6, e], V[t, d: 7]",
        "attention[t,e](Q[s,e], K[t,e], V[t,d])",
        "d,s",
    ),
    "values of two labels between others": (
        "input Q[a: 2, s: 4, b: 3, h: 2, e: 5], K[t: 6, h, a, e, b], V[c: 2, t, b, d: 3, h, a]",
        "causal_attention[s,t,e](Q[a,s,b,h,e], K[t,h,a,e,b], V[c,t,b,d,h,a])",
        "a,c,s,h,d,b",
    ),
    "values of no label": (
        "input Q[b: 3, s: 4, e: 5], K[b, t: 6, e], V[b, t]",
        "attention[t,e](Q[b,s,e], K[b,t,e], V[b,t])",
        "b,s",
    ),
    "heads of keys that queries do not have": (
        "input Q[b: 3, s: 4, e: 5], K[b, h: 2, t: 6, e], V[b, h, t, d: 5]",
        "attention[t,e](Q[b,s,e], K[b,h,t,e], V[b,h,t,d])",
        "b,h,s,d",
    ),
    "no keys": (
        "input Q[b: 3, s: 4, e: 5], K[b, t: 0, e], V[b, t, d: 5]",
        "attention[t,e](Q[b,s,e], K[b,t,e], V[b,t,d])",
        "b,s,d",
    ),
}


@pytest.mark.parametrize("name", LABELS)
def test_labels_in_any_order(name: str) -> None:
    inputs, macro, output = LABELS[name]
    written = parse(f"{inputs}\nO[{output}] <- {macro}\noutput O")
    rng = np.random.default_rng(0)
    arrays = {v.name: rng.standard_normal(v.shape).astype(np.float32) for v in written.inputs}
    q, k, v = (torch.from_numpy(arrays[name]) for name in "QKV")
    for graph in (written, rewrite(written)):
        (attention,) = find_attention(graph)
        expected = evaluate(graph, arrays)["O"]
        for backend in kernels.backends(attention, q, [PartTile(k, v)]):
            found = kernels.attend(attention, q, [PartTile(k, v)], backend=backend)
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)


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


def check_step(dtype: str, latest: int, length: int, size: int, backends: list[Any]) -> None:
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
    tiles = [
        PartTile(arrays["K"], arrays["V"], length=torch.from_numpy(lengths)),
        PartTile(arrays["L"], arrays["W"], length=latest + 1),
    ]
    for backend in backends:
        found = kernels.attend(attention, arrays["Q"], tiles, backend=backend)
        tolerance = {"float64": 1e-9, "float32": 2e-5, "float16": 5e-3, "bfloat16": 4e-2}[dtype]
        np.testing.assert_allclose(found.double().numpy(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize(("latest", "length", "size"), [(0, 0, 8), (3, 13, 5), (5, 21, 8)])
def test_stored_and_latest_keys(dtype: str, latest: int, length: int, size: int) -> None:
    check_step(dtype, latest, length, size, [None, Backend.CPU, Backend.MATH])


def test_flash_decoding_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    here = Path(__file__)
    code = (
        f"import sys; sys.path.insert(0, {str(here.parent)!r})\n"
        "import test_attention as tests\n"
        "for dtype in ('float32', 'float16'):\n"
        "    for latest, length, size in [(0, 0, 8), (3, 13, 5), (5, 21, 8)]:\n"
        "        tests.check_step(dtype, latest, length, size, [tests.Backend.DECODE])\n"
        "tests.check_shares()\n"
    )
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)  # noqa: S603


def check_shares() -> None:
    """However many programs share the keys, they find the same, and read no key too many."""
    from eindecomp.kernels.torch import flash_decoding

    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, n, 20) for n in (3, 150, 150))
    counts = torch.tensor([[150, 70]], dtype=torch.int32)
    k[0, 1, 70:] = torch.nan
    v[0, 1, 70:] = torch.nan
    found = [
        flash_decoding.decode_shares(q, [k], [v], [counts], [0.5], [shares])
        for shares in (1, 2, 3, 5)
    ]
    totals = [lse.logsumexp(2) for _, lse in found]
    means = [(out * lse.softmax(2).unsqueeze(-1)).sum(2) for out, lse in found]
    for total, mean in zip(totals, means, strict=True):
        torch.testing.assert_close(total, totals[0])
        torch.testing.assert_close(mean, means[0])
    weights = (q[0, 1] @ k[0, 1, :70].mT * 0.5).softmax(-1)
    torch.testing.assert_close(means[0][0, 1], weights @ v[0, 1, :70])


def trace(case: Case, q: Any, tile: Any, backend: Any = None) -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx

    (names,) = ([n for n in ("k", "v", "mask", "bias", "length") if getattr(tile, n) is not None],)

    def run(q: Any, *given: Any) -> Any:
        own = replace(tile, **dict(zip(names, given, strict=True)))
        return kernels.attend(case.attention, q, [own], backend=backend)

    return make_fx(run, tracing_mode="fake")(q, *(getattr(tile, n) for n in names)), names


@settings(max_examples=settings().max_examples // 4)
@given(cases)
def test_tracing(case: Case) -> None:
    traced, names = trace(case, case.q, case.tile)
    case.check(traced(case.q, *(getattr(case.tile, n) for n in names)))


@pytest.mark.parametrize(
    ("form", "backend", "op"),
    [
        ("plain", Backend.FLASH, "flash_attention.default"),
        ("causal", Backend.FLASH, "flash_attention.default"),
        ("causal", Backend.CUDNN, "cudnn_attention.default"),
        ("causal", Backend.EFFICIENT, "efficient_attention.default"),
        ("bias", Backend.EFFICIENT, "efficient_attention.default"),
        ("tensor", Backend.EFFICIENT, "efficient_attention.default"),
    ],
)
def test_calls_for_cuda(form: str, backend: Any, op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call of the right kernel, and neither queries nor keys nor values are copied for it."""

    def chosen(*_: object) -> tuple[Any, ...]:
        return (backend,)

    monkeypatch.setattr(kernels, "_choices", chosen)
    case = make_case(form, "bfloat16", 0, **WIDE)
    moved = {
        n: t.to("meta")
        for n in ("k", "v", "mask", "bias")
        if (t := getattr(case.tile, n)) is not None
    }
    traced, _ = trace(case, case.q.to("meta"), replace(case.tile, **moved), backend)
    calls = {str(node.target): node for node in traced.graph.nodes}
    (node,) = (node for call, node in calls.items() if op in call)
    for operand in node.args[:3]:
        while operand.op != "placeholder":
            assert str(operand.target).split(".")[1] in VIEWS
            operand = operand.args[0]


WIDE = {"b": 2, "h": 2, "g": 4, "s": 16, "t": 16, "e": 32, "d": 64, "offset": 0}
VIEWS = ("alias", "view", "permute", "expand", "unsqueeze", "slice", "transpose", "_unsafe_view")


def test_choices_for_cuda() -> None:
    fake: Any = pytest.importorskip("torch._subclasses.fake_tensor")

    def choices(form: str, dtype: str = "bfloat16", **sizes: int) -> tuple[Any, ...]:
        case = make_case(form, dtype, 0, **(WIDE | sizes))
        with fake.FakeTensorMode():
            q, k, v = (
                torch.empty(x.shape, dtype=x.dtype, device="cuda")
                for x in (case.q, case.tile.k, case.tile.v)
            )
            return kernels.backends(case.attention, q, [replace(case.tile, k=k, v=v)])

    every = (Backend.FLASH, Backend.CUDNN, Backend.EFFICIENT, Backend.MATH)
    assert choices("causal") == every
    assert choices("causal", dtype="float32") == every[2:]
    assert choices("causal", dtype="float64") == every[3:]
    assert choices("causal", d=32) == every[2:]
    assert choices("causal", e=256, d=512) == every[2:]
    assert choices("bias") == every[2:]
    assert choices("plain", s=1) == (Backend.DECODE, *every)
    assert choices("plain", s=1, b=80) == (*every[:2], Backend.DECODE, *every[2:])
    assert choices("plain", s=100) == every
    assert choices("length", s=1) == (Backend.DECODE, *every[2:])
    assert choices("tensor", s=1) == every[2:]


def test_fastest_skips_what_refuses() -> None:
    case = make_case("plain", "float32", 0, b=1, h=1, g=1, s=4, t=4, e=4, d=8, offset=0)
    refused = iter([True, False])

    def seconds(run: Any) -> float:
        case.check(run())
        if next(refused):
            raise RuntimeError
        return 1.0

    assert kernels.fastest(case.attention, case.q, [case.tile], seconds) is Backend.MATH
