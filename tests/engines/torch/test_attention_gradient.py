"""The gradient of attention by one kernel, wherever a device has all that it takes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attention_cases import FORMS, HEAD, TAIL, sizes
from hypothesis import example, given
from hypothesis import strategies as st
from test_cut_attention import SIZES, WAYS
from torch.fx.experimental.proxy_tensor import make_fx

import eindecomp as ed
from attention_grad_cases import CASES, INPUTS, REST, SCORES, arrays_of, by_torch, step
from eindecomp.graph.patterns.attention_gradient import find_gradients
from eindecomp.kernels.torch import attention_gradient as kernels
from eindecomp.kernels.torch.attention import Backend
from eindecomp.kernels.torch.attention_layout import PartTile, condition_labels
from eindecomp.kernels.torch.tensors import aligned
from eindecomp.lang.dtypes import dtype as named_type

LOSS = """
input G[b: {b}, s: {s}, h: {h}, g: {g}, d: {d}] {dtype}
L[] <- sum O[b,s,h,g,d] * G[b,s,h,g,d]
output L
"""


def gradient_graph(form, dtype, wrt="QKV", **changed):
    text = HEAD + FORMS[form] + TAIL.replace("\noutput O", "") + LOSS
    return ed.grad(ed.parse(text.format(**SIZES | changed, dtype=dtype)), "L", [*wrt])


def numbers_for(graph, dtype, seed):
    """Arrays in which every query sees a key."""
    rng = np.random.default_rng(seed)
    found = {}
    for vertex in graph.inputs:
        if vertex.dtype.kind == "i":
            found[vertex.name] = rng.integers(1, 10, vertex.shape).astype(vertex.dtype)
        elif vertex.dtype.kind == "b":
            found[vertex.name] = rng.random(vertex.shape) < 0.4
            found[vertex.name][:, 0] = True
        else:
            found[vertex.name] = rng.normal(size=vertex.shape).astype(named_type(dtype))
    return found


def calls_in(executable):
    """The calls of a program, each once."""
    ops = executable._prepared.tiled.ops
    return {id(op.call): op.call for op in ops if op.call is not None}.values()


def scores_in(executable, queries, keys):
    """The tiles of floats that a program makes for all queries and keys."""
    tiled = executable._prepared.tiled
    tiles = [tiled.tiles[op.into] for op in tiled.ops]
    return [t for t in tiles if t.shape[-2:] == (queries, keys) and t.types[0].kind not in "bi"]


@given(
    form=st.sampled_from(sorted(FORMS)),
    dtype=st.sampled_from(["float32", "bfloat16"]),
    way=st.sampled_from([*WAYS]),
    wrt=st.sampled_from(["QKV", "QV", "QK", "KV", "Q", "K", "V"]),
    devices=st.integers(1, 2),
    sizes=sizes,
    seed=st.integers(0, 99),
)
@example("causal", "float32", "two memories", "QKV", 2, SIZES | {"s": 9, "offset": 0}, 0)
@example("both", "bfloat16", "one memory", "QKV", 1, SIZES, 0)
@example("bias", "float32", "one memory", "V", 1, SIZES, 0)
def test_it_is_the_gradient(form, dtype, way, wrt, devices, sizes, seed):
    sizes = sizes | {"t": max(sizes["t"], 2), "offset": max(sizes["offset"], 0)}
    graph = gradient_graph(form, dtype, wrt, **sizes)
    exact = gradient_graph(form, "float64", wrt, **sizes)
    arrays = numbers_for(exact, dtype, seed)
    wide = {n: x.astype("float64") if x.dtype.kind not in "bi" else x for n, x in arrays.items()}
    wanted = ed.evaluate(exact, wide)
    devices = min(devices, max(sizes["b"], sizes["h"]))
    plan = ed.plan(graph, devices, strategy=["b", "h"] if devices > 1 else None)
    with ed.compile(plan, "torch", **WAYS[way]) as executable:
        found = executable(arrays)
        # Where sizes are 1, what is summed over them is written otherwise.
        if min(sizes[name] for name in "stde") > 1:
            # For values alone the weights are made again as vertices.
            assert len(calls_in(executable)) == devices * (1 if wrt == "V" else 2)
    most = {"float32": 2e-5, "bfloat16": 1e-1}[dtype]
    for name in wrt:
        own, other = found[f"grad_{name}"].astype("float64"), wanted[f"grad_{name}"]
        np.testing.assert_allclose(own, other, rtol=most, atol=most * max(1, abs(other).max()))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("devices", "strategy"), [(1, None), (2, ["h"]), (2, ["b"]), (4, ["b", "h"])]
)
@pytest.mark.parametrize("case", CASES)
def test_it_is_that_of_torch(case, devices, strategy, way):
    """A bias that has a gradient, too, needs the scores, which are then vertices."""
    graph, wrt = step(case)
    arrays = arrays_of(graph)
    plan = ed.plan(graph, devices, strategy=strategy)
    with ed.compile(plan, "torch", **WAYS[way]) as executable:
        found = executable(arrays)
        is_called = len(wrt) == 3
        assert len(calls_in(executable)) == devices * (2 if is_called else 1)
        assert bool(scores_in(executable, 8, 8)) != is_called
        assert found.stats.bytes_moved == plan.traffic.total
    for name, wanted in by_torch(case, arrays, wrt).items():
        np.testing.assert_allclose(found[f"grad_{name}"], wanted, rtol=1e-4, atol=1e-5)
    plain = ed.run(plan, arrays, "apart")
    for name in wrt:
        np.testing.assert_allclose(
            found[f"grad_{name}"], plain[f"grad_{name}"], rtol=1e-4, atol=1e-5
        )


def limited(graph, devices, memory, **options):
    plan = ed.plan(graph, devices, memory=memory, time_limit=1, **options)
    executable = ed.compile(plan, "torch", device="cpu")
    return executable, [name for name in executable._prepared.program.graph if ".turn" in name]


def long(rows):
    """A training step of a causal attention over many rows."""
    text = f"""
    input Q[h: 2,s: {rows},d: 8], K[h,t: {rows},d], V[h,t,d]
    O[h,s,d] <- causal_attention[s,t,d](Q[h,s,d], K[h,t,d], V[h,t,d])
    loss[] <- sum O[h,s,d]**2
    output loss
    """
    return ed.grad(ed.parse(text), "loss", ["Q", "K", "V"])


def test_what_a_kernel_computes_takes_no_turns():
    graph = long(64)
    arrays = arrays_of(graph)
    executable, turns = limited(graph, 1, 100_000)
    with executable:
        assert not turns
        assert len(calls_in(executable)) == 2
        found = executable(arrays)
    for name, wanted in ed.evaluate(graph, arrays).items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-4)


def test_where_queries_are_cut_the_gradient_takes_turns():
    graph = long(64)
    arrays = arrays_of(graph)
    executable, turns = limited(graph, 2, 100_000, strategy=["s"])
    with executable:
        assert any("back" in name for name in turns)
        assert len(calls_in(executable)) == 2
        found = executable(arrays)
    for name, wanted in ed.evaluate(graph, arrays).items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-4)


def test_memory_grows_with_the_rows():
    peaks = []
    for rows in (64, 128):
        graph = long(rows)
        with ed.compile(ed.plan(graph, 1), "torch", device="cpu", fuse=False) as executable:
            peaks.append(executable(arrays_of(graph)).stats.peak_memory)
            assert not scores_in(executable, rows, rows)
    assert peaks[1] < 2.5 * peaks[0]


def test_what_else_reads_the_weights_keeps_vertices():
    """The gradient by the weights themselves is one of vertices."""
    text = REST.replace("output loss", "N[] <- sum P[b,h,g,s,t]\noutput loss, N")
    text = f"{INPUTS}\n{SCORES}\nW[b,h,g,s,t] <- S[b,h,g,s,t] * 0.5{text}"
    graph = ed.grad(ed.parse(text), "loss", ["Q", "K", "V"])
    assert not [*find_gradients(graph)]


@pytest.mark.parametrize(
    ("form", "backend", "name"),
    [
        ("plain", Backend.FLASH, "flash_attention_backward"),
        ("causal", Backend.CUDNN, "cudnn_attention_backward"),
        ("bias", Backend.EFFICIENT, "efficient_attention_backward"),
        ("causal", Backend.EFFICIENT, "efficient_attention_backward"),
    ],
)
def test_calls_for_cuda(form, backend, name, monkeypatch):
    """One call of the right kernel, whose shapes fit."""
    monkeypatch.setattr(kernels, "choices_for", lambda *_: (backend,))
    graph = gradient_graph(form, "bfloat16", s=16, t=16, e=32, d=64, offset=0)
    [gradient] = find_gradients(graph)
    one, [part] = gradient.attention, gradient.attention.parts
    reads = [one.q, part.k, part.v, one.output, gradient.adjoint, gradient.total]
    if part.bias is not None:
        reads += part.bias.reads
    meta = {read: torch.empty(graph[read.name].shape, device="meta") for read in reads}
    meta = {read: x if read == gradient.total else x.to(torch.bfloat16) for read, x in meta.items()}

    def run(*tensors):
        own = dict(zip(meta, tensors, strict=True))
        bias = None
        if part.bias is not None:
            [read] = part.bias.reads
            bias = aligned(own[read], read.labels, condition_labels(one, part, part.bias))
        tile = PartTile(own[part.k], own[part.v], bias=bias)
        return kernels.differentiate(gradient, own, tile)

    traced = make_fx(run)(*meta.values())
    assert [str(n.target) for n in traced.graph.nodes if "attention" in str(n.target)] == [
        f"aten._scaled_dot_product_{name}.default"
    ]
    shapes = [tuple(x.shape) for x in run(*meta.values())]
    assert shapes == [graph[read.name].shape for _, read, _ in gradient.results]
