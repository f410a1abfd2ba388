"""Attention on tiles of torch's tensors equals what the graph's own vertices say."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attention_cases import (
    WIDE,
    Backend,
    Case,
    PartTile,
    cases,
    check_step,
    cut_queries,
    kernels,
    make_case,
    sizes,
    torch,
    trace,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from eindecomp.graph.evaluate import evaluate
from eindecomp.graph.patterns.attention import find_attention
from eindecomp.graph.rewrites.rewrite import rewrite
from eindecomp.graph.text.elaborate import parse


@given(cases)
def test_whole(case: Case) -> None:
    found = kernels.backends(case.attention, case.q, [case.tile])
    assert found[-1] is Backend.MATH
    for backend in found:
        case.check(kernels.attend(case.attention, case.q, [case.tile], backend=backend)[0])


@given(cases, st.integers(1, 9), st.booleans())
def test_tiles_of_queries(case: Case, rows: int, strided: bool) -> None:
    queries = case.q.shape[3]
    if strided:
        case = replace(case, q=case.q.mT.contiguous().mT)
    for start in range(0, queries, rows):
        stop = min(start + rows, queries)
        tile = cut_queries(case, case.tile, start, stop)
        q = case.q[:, :, :, start:stop]
        found = kernels.attend(case.attention, q, [tile], start=start)[0]
        case.check(found, slice(start, stop))


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
            found = kernels.attend(attention, q, [PartTile(k, v)], backend=backend)[0]
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)


def attend_to(text: str, **arrays: Any) -> list[tuple[Any, Any, Any]]:
    """What each backend finds for float32 inputs, and what the graph says in float64."""
    graph = parse(text)
    (attention,) = find_attention(graph)
    tensors = {name: torch.as_tensor(x) for name, x in arrays.items()}
    tile = PartTile(tensors["K"], tensors["V"], mask=tensors.get("M"))
    with np.errstate(invalid="ignore"):
        exact = evaluate(parse(text.replace("float32", "float64")), arrays)["O"]
    return [
        (
            backend,
            kernels.attend(attention, tensors["Q"], [tile], backend=backend)[0].numpy(),
            exact,
        )
        for backend in kernels.backends(attention, tensors["Q"], [tile])
    ]


@given(st.floats(1, 1e18), st.integers(1, 5), st.integers(1, 4))
def test_large_scores(size: float, keys: int, values: int) -> None:
    """Equal scores weigh the same, however large they are."""
    text = (
        f"input Q[s: 1, e: 2] float32, K[t: {keys}, e] float32, V[t, d: {values}] float32\n"
        "O[s,d] <- attention[t,e](Q[s,e], K[t,e], V[t,d])\noutput O"
    )
    q, k = np.full((1, 2), size, np.float32), np.full((keys, 2), size, np.float32)
    v = np.arange(keys * values, dtype=np.float32).reshape(keys, values)
    for _, found, exact in attend_to(text, Q=q, K=k, V=v):
        np.testing.assert_allclose(found, exact, rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
def test_hidden_keys_do_not_matter(bad: float) -> None:
    """A mask hides whatever a key is, and a row that sees only scores of -∞ is NaN."""
    text = (
        "input Q[s: 3, e: 2] float32, K[t: 4, e] float32, V[t, d: 3] float32, M[s, t] bool\n"
        "T[s,t] <- sum Q[s,e] * K[t,e]\nU[s,t] <- where(M[s,t], T[s,t], -inf)\n"
        "P[s,t] <- softmax[t] U[s,t]\nO[s,d] <- sum P[s,t] * V[t,d]\noutput O"
    )
    rng = np.random.default_rng(0)
    q, k, v = (rng.random(shape, np.float32) for shape in ((3, 2), (4, 2), (4, 3)))
    k[2] = bad
    seen = np.array([[1, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0]], bool)
    for backend, found, exact in attend_to(text, Q=q, K=k, V=v, M=seen):
        assert backend is Backend.MATH
        np.testing.assert_allclose(found, exact, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize(("latest", "length", "size"), [(0, 0, 8), (3, 13, 5), (5, 21, 8)])
def test_stored_and_latest_keys(dtype: str, latest: int, length: int, size: int) -> None:
    check_step(dtype, latest, length, size, [None, Backend.CPU, Backend.MATH])


@pytest.mark.long
@pytest.mark.skipif(torch.cuda.is_available(), reason="test_attention_cuda.py runs it on the GPU")
def test_flash_decoding_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    here = Path(__file__)
    code = (
        f"import sys; sys.path[:0] = {[str(here.parent), str(here.parents[1])]!r}\n"
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
    from eindecomp.kernels.torch import decoding

    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, n, 20) for n in (3, 150, 150))
    counts = torch.tensor([[150, 70]], dtype=torch.int32)
    k[0, 1, 70:] = torch.nan
    v[0, 1, 70:] = torch.nan
    found = [
        decoding.flash_decoding(q, [k], [v], [counts], [0.5], [shares])
        for shares in (1, 2, 3, 5, 20)
    ]
    for out, lse in found:
        torch.testing.assert_close(out, found[0][0])
        torch.testing.assert_close(lse, found[0][1])
    weights = (q[0, 1] @ k[0, 1, :70].mT * 0.5).softmax(-1)
    torch.testing.assert_close(found[0][0][0, 1], weights @ v[0, 1, :70])


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

    monkeypatch.setattr(kernels, "choices_for", chosen)
    case = make_case(form, "bfloat16", 0, **WIDE)
    case = case.to("meta")
    traced, _ = trace(case, case.q, case.tile, backend)
    calls = {str(node.target): node for node in traced.graph.nodes}
    (node,) = (node for call, node in calls.items() if op in call)
    for operand in node.args[:3]:
        while operand.op != "placeholder":
            assert str(operand.target).split(".")[1] in VIEWS
            operand = operand.args[0]


VIEWS = ("alias", "view", "permute", "expand", "unsqueeze", "slice", "transpose", "_unsafe_view")


@pytest.mark.parametrize("hopper", [True, False])
def test_choices_for_cuda(hopper: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_is_fast_with_cudnn", lambda _: hopper)
    fake: Any = pytest.importorskip("torch._subclasses.fake_tensor")

    def choices(form: str, dtype: str = "bfloat16", **sizes: int) -> tuple[Any, ...]:
        case = make_case(form, dtype, 0, **(WIDE | sizes))
        with fake.FakeTensorMode():
            q, k, v = (
                torch.empty(x.shape, dtype=x.dtype, device="cuda")
                for x in (case.q, case.tile.k, case.tile.v)
            )
            return kernels.backends(case.attention, q, [replace(case.tile, k=k, v=v)])

    flash, others = (Backend.FLASH,), (Backend.EFFICIENT, Backend.MATH)
    many = (Backend.CUDNN, Backend.FLASH) if hopper else flash
    assert choices("causal", s=100) == (*many, *others)
    assert choices("causal") == (*flash, *others)
    assert choices("causal", dtype="float32") == others
    assert choices("causal", dtype="float64") == others[1:]
    assert choices("causal", d=32) == others
    assert choices("causal", e=256, d=512) == others
    assert choices("bias") == others
    assert choices("plain", s=1) == (Backend.DECODE, *flash, *others)
    assert choices("plain", s=1, b=80) == (*flash, Backend.DECODE, *others)
    assert choices("plain", s=100) == (*many, *others)
    assert choices("length", s=1) == (Backend.DECODE, *others)
    assert choices("tensor", s=1) == others


@given(st.integers(-4, 8), sizes)
def test_triangles_of_flash_attention(offset: int, sizes: dict[str, int]) -> None:
    """FlashAttention lets the last query see the last key, however many keys there are."""
    own, see = kernels.compute, kernels.seen_up_to

    def flash(_: Any, q: Any, k: Any, v: Any, scale: float, *, causal: bool = False) -> Any:
        rows, keys = q.shape[2], k.shape[2]
        assert 0 < rows <= keys or not causal
        seen = see(rows, keys, keys - rows if causal else keys, q.device)
        return own(Backend.MATH, q, k, v, scale, seen=seen)

    def chosen(*_: object) -> tuple[Any, ...]:
        return (Backend.FLASH,)

    case = make_case("causal", "float64", 0, **(sizes | {"offset": offset}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "compute", flash)
        patch.setattr(kernels, "choices_for", chosen)
        case.check(kernels.attend(case.attention, case.q, [case.tile])[0])
