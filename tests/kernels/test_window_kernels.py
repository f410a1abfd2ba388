"""Convolutions, their gradients and pools on tiles, by every way to compute them."""

from __future__ import annotations

from importlib.util import find_spec
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.graph.evaluate import evaluate
from eindecomp.graph.graph import Graph
from eindecomp.graph.shown import see, shown_to
from eindecomp.graph.vertex import Vertex
from eindecomp.kernels.convolutions import convolution_of, pool_of
from eindecomp.kernels.cpu import convolution
from eindecomp.kernels.library import library_of
from eindecomp.layout.boxes import Box
from eindecomp.layout.view import reached, view_of

Array = np.ndarray[Any, Any]
HAS_TORCH = find_spec("torch") is not None and find_spec("torch.nn") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
WAYS = [
    pytest.param("blocks"),
    *(pytest.param(way, marks=needs_torch) for way in ("numpy", "torch", "gpu", "traced")),
    pytest.param("jax", marks=needs_jax),
]
CLOSE = {"float32": 1e-4, "float64": 1e-9, "bfloat16": 3e-2}


def random_convolution(rng: Random) -> str:
    """Of one to three dimensions; grouped, depthwise, or neither."""
    dtype = rng.choice(["float32", "float64", "bfloat16"])
    kind = rng.choice(["full", "grouped", "depthwise"])
    groups = [] if kind == "full" else [f"g: {rng.randint(2, 3)}"]
    read = [] if kind == "depthwise" else [f"c: {rng.randint(1, 4)}"]
    made = [] if kind == "depthwise" else [f"m: {rng.randint(1, 4)}"]
    x, w, z = [f"b: {rng.randint(1, 3)}", *groups, *read], [*groups, *made, *read], ["b"]
    z += [each.split(":")[0] for each in (*groups, *made)]
    index: dict[str, str] = {}
    for k in range(rng.choice([1, 1, 2, 2, 3])):
        taps, stride, dilation = rng.randint(1, 4), rng.randint(1, 3), rng.randint(1, 2)
        before, positions = rng.randint(0, taps - 1), rng.randint(1, 6)
        size = (positions - 1) * stride + dilation * (taps - 1) + 1 - before - rng.randint(-2, 2)
        x.append(f"i{k}: {max(1, size)}")
        w.append(f"r{k}: {taps}")
        z.append(f"o{k}: {positions}")
        index[f"i{k}"] = f"{stride}*o{k} + {dilation}*r{k} - {before} else 0"
    for labels in (x, w, z):
        rng.shuffle(labels)
    at, taken = ([each.split(":")[0] for each in labels] for labels in (x, w))
    return f"""
        input X[{", ".join(x)}] {dtype}, W[{", ".join(w)}] {dtype}
        Z[{", ".join(z)}] <- sum X[{", ".join(index.get(i, i) for i in at)}] * W[{", ".join(taken)}]
        L[] <- sum Z[{", ".join(each.split(":")[0] for each in z)}]
        output L, Z"""


def random_pool(rng: Random) -> str:
    agg, dtype = rng.choice(["sum", "max"]), rng.choice(["float32", "float64"])
    outside = rng.choice(["0", "-inf", "clamp"]) if agg == "max" else rng.choice(["0", "clamp"])
    x, z, taken = [f"b: {rng.randint(1, 3)}", "c: 4"], ["b", "c"], list[str]()
    index: dict[str, str] = {}
    for k in range(rng.randint(1, 3)):
        taps, stride, dilation = rng.randint(1, 4), rng.randint(1, 3), rng.choice([1, 1, 2])
        before, positions = rng.randint(0, taps - 1), rng.randint(1, 6)
        size = (positions - 1) * stride + dilation * (taps - 1) + 1 - before - rng.randint(-2, 2)
        x.append(f"i{k}: {max(1, size)}")
        z.append(f"o{k}: {positions}")
        taken.append(f"r{k}: {taps}")
        index[f"i{k}"] = f"{stride}*o{k} + {dilation}*r{k} - {before} else {outside}"
    rng.shuffle(x)
    rng.shuffle(z)
    at = (each.split(":")[0] for each in x)
    return f"""
        input X[{", ".join(x)}] {dtype}
        Z[{", ".join(z)}] <- {agg}[{", ".join(taken)}] X[{", ".join(index.get(i, i) for i in at)}]
        output Z"""


def computed(graph: Graph, vertex: Vertex, values: dict[str, Array], box: Box, way: str) -> Array:
    """A tile of a vertex, from the blocks of its inputs that it reads."""
    view = view_of(graph, vertex)
    ranges = {label: (0, size) for label, size in zip(view.labels, view.sizes, strict=True)}
    ranges |= dict(zip(vertex.labels, box, strict=True))
    reads: list[Box] = []
    for dims in view.reads:
        assert dims is not None
        reads.append(
            tuple(
                reached(d.image, {x: ranges.get(x, (0, n)) for x, _, n in d.image.terms})
                if d.image is not None
                else ranges[d.label]
                if d.label is not None
                else (d.start, d.stop)
                for d in dims
            )
        )
    pairs = zip(vertex.inputs, reads, strict=True)
    blocks = [values[name][tuple(slice(*reach) for reach in read)] for name, read in pairs]
    shown, shape = shown_to(vertex, reads, box), tuple(high - low for low, high in box)
    if way == "jax":
        import jax

        from eindecomp.kernels.jax import windows
        from eindecomp.kernels.jax.tile_kernels import kernel_of

        with jax.enable_x64(True):
            kernel = kernel_of(graph, vertex)
            library: Any = SimpleNamespace(window=windows.view)
            given = see(library, kernel, [jax.numpy.asarray(x) for x in blocks], shown)
            return np.asarray(kernel.result(given, (), shape)[0])
    library = library_of("numpy")
    if way in ("torch", "gpu", "traced"):
        from eindecomp.kernels.torch.library import TorchLibrary

        library = TorchLibrary("cuda" if way == "gpu" else "cpu")
    kernel = library.kernel(graph, vertex)
    tiles = [library.from_numpy(np.ascontiguousarray(x)) for x in blocks]
    if way == "traced":
        from torch.fx.experimental.proxy_tensor import make_fx

        def run(*tiles: Any) -> Any:
            return kernel.result(see(library, kernel, tiles, shown), (), shape)

        return library.to_numpy(make_fx(run)(*tiles)(*tiles).contiguous())
    out = library.empty(shape, vertex.dtype)
    kernel.whole(see(library, kernel, tiles, shown), out)
    if vertex.op.output:
        state = [library.empty(shape, of) for of in kernel.state]
        kernel.partial(see(library, kernel, tiles, shown), state)
        kernel.finish(state, out)
    return library.to_numpy(out)


def check(graph: Graph, way: str, rng: Random) -> list[Vertex]:
    """Compare all vertices that read through windows; which ones there are."""
    gen = np.random.default_rng(rng.randint(0, 2**32))
    given = {v.name: gen.standard_normal(v.shape).astype(v.dtype) for v in graph.inputs}
    every = Graph.of(graph.vertices.values(), [*graph.vertices], graph.scalars)
    values = {name: np.asarray(x) for name, x in evaluate(every, given).items()} | given
    found = [vertex for vertex in graph.vertices.values() if vertex.windows]
    for vertex in found:
        whole = tuple((0, size) for size in vertex.shape)
        box = tuple(sorted(rng.sample(range(size + 1), 2)) for size in vertex.shape)
        for tile in (whole, tuple((low, high) for low, high in box)):
            part = values[vertex.name][tuple(slice(*reach) for reach in tile)].astype(np.float64)
            made = computed(graph, vertex, values, tile, way).astype(np.float64)
            scale = np.abs(part[np.isfinite(part)]).max(initial=1)
            close = CLOSE[str(vertex.dtype)] * scale
            np.testing.assert_allclose(made, part, rtol=0, atol=close, err_msg=f"{vertex} {tile}")
    return found


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Have small tiles computed as large ones are."""
    monkeypatch.setattr(convolution, "WORTH", 0)
    monkeypatch.setattr(convolution, "BLOCK", 256)
    if way == "blocks":
        monkeypatch.setattr(convolution, "has_torch", lambda: False)
    if way == "gpu":
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            pytest.skip("there is no GPU")
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("way", WAYS)
def test_convolutions_and_their_gradients(way: str, seed: int) -> None:
    rng = Random(seed)
    for _ in range(3):
        graph = ed.grad(ed.parse(random_convolution(rng)), "L", ["X", "W"])
        found = check(graph, way, rng)
        types = {v.name: [graph[name].dtype for name in v.inputs] for v in found}
        assert any(convolution_of(vertex, types[vertex.name]) for vertex in found)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("way", WAYS)
def test_pools(way: str, seed: int) -> None:
    rng = Random(seed)
    for _ in range(3):
        found = check(ed.parse(random_pool(rng)), way, rng)
        assert all(pool_of(vertex) is not None for vertex in found)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "text",
    [
        "Z[i: 5] <- X[i, i + 1] * Y[i]",  # along a diagonal
        "Z[i: 5, j: 3] <- X[4 - i, 2*j + 1 else 0]",  # backwards
        "Z[i: 5] <- sum X[2, j] * Y[i + 1]",  # of one index
        "Z[i: 4, j: 3] <- sum[r: 2] X[i + j, r] * Y[r + i]",  # two labels of the result
        "Z[i: 5, r: 3] <- X[i + r - 1 else 7, i]",
        "Z[b, i: 6] <- sum X[b, i + r else clamp] * K[r]",
        "Z[b, i: 6] <- sum X[b, i + r else 2] * K[r]",
    ],
)
def test_what_is_no_convolution(way: str, text: str) -> None:
    names = [name for name in ("X[b: 6, n: 6]", "Y[n: 6]", "K[r: 2]") if name[:2] in text]
    check(ed.parse(f"input {', '.join(names)}\n{text}\noutput Z"), way, Random(0))
