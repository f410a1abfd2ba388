"""Convolutions, stencils and pools against torch, NumPy's slicing and numba by hand.

Rounds are interleaved. Ratios are our time over the peer's, of the medians; behind it stand the
least and the largest ratio of a round. Arguments choose among `convolutions`, `gradients`,
`stencils` and `pools`; `--torchless` computes convolutions as though torch were not installed, and
`--one-core` has everybody use one: where others use the machine, too, threads wait for each other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter
from typing import Any

import numba
import numpy as np
import torch

import eindecomp as ed
from eindecomp.kernels.cpu import convolution

Array = np.ndarray[Any, Any]
Run = Callable[[], object]
ASKED = "asked: convolutions <= 1.3 x torch, stencils <= 1.0 x the better of NumPy and numba"
CORES = 1 if "--one-core" in sys.argv else 2
# Channels read and made, size of the kernel, stride, and size of the image: those of ResNet-50.
RESNET_50 = [
    (3, 64, 7, 2, 224),
    *((64, 64, 1, 1, 56), (64, 64, 3, 1, 56), (64, 256, 1, 1, 56), (256, 64, 1, 1, 56)),
    *((256, 128, 1, 1, 56), (128, 128, 3, 2, 56), (128, 512, 1, 1, 28), (256, 512, 1, 2, 56)),
    *((512, 128, 1, 1, 28), (128, 128, 3, 1, 28)),
    *((512, 256, 1, 1, 28), (256, 256, 3, 2, 28), (256, 1024, 1, 1, 14), (512, 1024, 1, 2, 28)),
    *((1024, 256, 1, 1, 14), (256, 256, 3, 1, 14)),
    *((1024, 512, 1, 1, 14), (512, 512, 3, 2, 14), (512, 2048, 1, 1, 7), (1024, 2048, 1, 2, 14)),
    *((2048, 512, 1, 1, 7), (512, 512, 3, 1, 7)),
]
rng = np.random.default_rng(0)


def compare(name: str, own: Run, peers: dict[str, Run], rounds: int = 9) -> dict[str, float]:
    """Print and return our time over each peer's."""
    runs = {"ours": own, **peers}
    taken: dict[str, list[float]] = {who: [] for who in runs}
    for round_ in range(rounds + 1):  # the first round warms up
        for who, run in runs.items():
            start = perf_counter()
            run()
            if round_:
                taken[who].append(perf_counter() - start)
    ours, ratios, told = median(taken["ours"]), dict[str, float](), ""
    for who in peers:
        each = [a / b for a, b in zip(taken["ours"], taken[who], strict=True)]
        ratios[who] = ours / median(taken[who])
        told += f"   {who} {ratios[who]:.2f} ({min(each):.2f} to {max(each):.2f})"
    print(f"{name:38} {1e3 * ours:8.2f} ms{told}", flush=True)
    return ratios


def summary(ratios: list[float]) -> None:
    """Print the mean and the largest of several ratios."""
    mean = float(np.exp(np.mean(np.log(ratios))))
    print(f"  all: {mean:.2f} on average, {max(ratios):.2f} at most", flush=True)


def compiled(text: str, **inputs: Array) -> Run:
    """Our way to compute a text's outputs."""
    executable = ed.compile(ed.plan(ed.parse(text), devices=CORES))
    return lambda: executable(inputs)


def random(*shape: int, dtype: str = "float32") -> Array:
    return rng.standard_normal(shape).astype(dtype)


# Convolutions


def convolutions() -> None:
    for b in (1, 8):
        ratios: list[float] = []
        for c, m, k, stride, size in RESNET_50:
            pad, out = k // 2, (size - 1) // stride + 1
            x, w = random(b, c, size, size), random(m, c, k, k)
            read = f"X[b, c, {stride}*h + r - {pad} else 0, {stride}*w + s - {pad} else 0]"
            text = f"""
                input X[b: {b}, c: {c}, h: {size}, w: {size}], K[m: {m}, c, r: {k}, s: {k}]
                Z[b, m, h: {out}, w: {out}] <- sum {read} * K[m,c,r,s]
                output Z"""
            tensors = torch.from_numpy(x), torch.from_numpy(w), None, stride, pad

            def peer(tensors: tuple[Any, ...] = tensors) -> object:
                return torch.nn.functional.conv2d(*tensors)

            name = f"b={b} {c}->{m} {k}x{k}/{stride} at {size}"
            ratios += compare(name, compiled(text, X=x, K=w), {"torch": peer}).values()
        summary(ratios)


def gradients() -> None:
    b, ratios = 8, list[float]()
    for c, m, k, stride, size in RESNET_50:
        if k == 1 and stride == 1:
            continue
        pad, out = k // 2, (size - 1) // stride + 1
        x, w, y = random(b, c, size, size), random(m, c, k, k), random(b, m, out, out)
        read = f"X[b, c, {stride}*h + r - {pad} else 0, {stride}*w + s - {pad} else 0]"
        by_weights = f"""
            input X[b: {b}, c: {c}, h: {size}, w: {size}], Y[b, m: {m}, h: {out}, w: {out}]
            Z[m, c, r: {k}, s: {k}] <- sum Y[b,m,h,w] * {read}
            output Z"""
        sums = [f"{x} - {t} + {pad}" for x, t in (("h", "r"), ("w", "s"))]
        places = sums if stride == 1 else [f"({each}) / {stride}" for each in sums]
        at = ", ".join(f"{each} else 0" for each in places)
        by_input = f"""
            input Y[b: {b}, m: {m}, h: {out}, w: {out}], K[m, c: {c}, r: {k}, s: {k}]
            Z[b, c, h: {size}, w: {size}] <- sum Y[b, m, {at}] * K[m,c,r,s]
            output Z"""
        tensors = tuple(map(torch.from_numpy, (y, x, w)))

        def peer(wanted: list[bool], given: Any = (tensors, stride, pad)) -> Run:
            (y, x, w), *steps = given
            s, p = ([n, n] for n in steps)
            more = s, p, [1, 1], False, [0, 0], 1, wanted
            return lambda: torch.ops.aten.convolution_backward(y, x, w, None, *more)

        name = f"b={b} {c}->{m} {k}x{k}/{stride} at {size}, "
        for what, text, given, wanted in (
            ("by input", by_input, {"Y": y, "K": w}, [True, False, False]),
            ("by weights", by_weights, {"X": x, "Y": y}, [False, True, False]),
        ):
            ratios += compare(
                name + what, compiled(text, **given), {"torch": peer(wanted)}
            ).values()
    summary(ratios)


# Stencils


@numba.njit(parallel=True)
def heat_by_hand(x: Array, a: Any, b: Any) -> Array:
    z = np.empty((x.shape[0] - 2, x.shape[1] - 2), x.dtype)
    for i in numba.prange(z.shape[0]):
        for j in range(z.shape[1]):
            c = x[i + 1, j + 1]
            around = x[i, j + 1] + x[i + 2, j + 1] + x[i + 1, j] + x[i + 1, j + 2]
            z[i, j] = c + a * (around - b * c)
    return z


@numba.njit(parallel=True)
def slope_by_hand(x: Array) -> Array:
    z = np.empty((x.shape[0] - 2, x.shape[1] - 2), x.dtype)
    for i in numba.prange(z.shape[0]):
        for j in range(z.shape[1]):
            down, right = x[i + 2, j + 1] - x[i, j + 1], x[i + 1, j + 2] - x[i + 1, j]
            z[i, j] = np.sqrt(down * down + right * right)
    return z


@numba.njit(parallel=True)
def cube_by_hand(x: Array, a: Any, b: Any) -> Array:
    z = np.empty((x.shape[0] - 2, x.shape[1] - 2, x.shape[2] - 2), x.dtype)
    for i in numba.prange(z.shape[0]):
        for j in range(z.shape[1]):
            for k in range(z.shape[2]):
                c = x[i + 1, j + 1, k + 1]
                around = x[i, j + 1, k + 1] + x[i + 2, j + 1, k + 1] + x[i + 1, j, k + 1]
                around += x[i + 1, j + 2, k + 1] + x[i + 1, j + 1, k] + x[i + 1, j + 1, k + 2]
                z[i, j, k] = c + a * (around - b * c)
    return z


def stencils() -> None:
    numba.set_num_threads(CORES)
    for dtype in ("float32", "float64"):
        for name, text, x, by_slices, by_hand in _stencils(dtype):
            peers = {
                "NumPy": lambda x=x, run=by_slices: run(x),
                "numba": lambda x=x, run=by_hand: run(x),
            }
            compare(f"{name} {dtype}", compiled(text, X=x), peers)


def _stencils(dtype: str) -> Iterator[tuple[str, str, Array, Any, Any]]:
    of = np.dtype(dtype).type
    n, m, a = 4096, 256, of(0.1)

    def heat(x: Array) -> Array:
        c = x[1:-1, 1:-1]
        around = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
        return c + a * (around - of(4) * c)

    def slope(x: Array) -> Array:
        return np.sqrt((x[2:, 1:-1] - x[:-2, 1:-1]) ** 2 + (x[1:-1, 2:] - x[1:-1, :-2]) ** 2)

    def cube(x: Array) -> Array:
        c, i = x[1:-1, 1:-1, 1:-1], slice(1, -1)
        around = x[:-2, i, i] + x[2:, i, i] + x[i, :-2, i]
        around = around + x[i, 2:, i] + x[i, i, :-2] + x[i, i, 2:]
        return c + a * (around - of(6) * c)

    flat, full = random(n, n, dtype=dtype), random(m, m, m, dtype=dtype)
    head = f"input X[i: {n}, j: {n}] {dtype}\nZ[i: {n - 2}, j: {n - 2}] <- "
    around = "X[i, j + 1] + X[i + 2, j + 1] + X[i + 1, j] + X[i + 1, j + 2]"
    text = f"{head} X[i + 1, j + 1] + 0.1 * ({around} - 4 * X[i + 1, j + 1])\noutput Z"
    yield "5 points, 4096^2", text, flat, heat, lambda x: heat_by_hand(x, a, of(4))
    squares = "(X[i + 2, j + 1] - X[i, j + 1])**2 + (X[i + 1, j + 2] - X[i + 1, j])**2"
    yield "slope, 4096^2", f"{head} sqrt({squares})\noutput Z", flat, slope, slope_by_hand
    c = "X[i + 1, j + 1, k + 1]"
    around = " + ".join(
        f"X[i + {i}, j + {j}, k + {k}]"
        for i, j, k in ((0, 1, 1), (2, 1, 1), (1, 0, 1), (1, 2, 1), (1, 1, 0), (1, 1, 2))
    )
    head = f"input X[i: {m}, j: {m}, k: {m}] {dtype}\nZ[i: {m - 2}, j: {m - 2}, k: {m - 2}] <- "
    text = f"{head} {c} + 0.1 * ({around} - 6 * {c})\noutput Z"
    yield "7 points, 256^3", text, full, cube, lambda x: cube_by_hand(x, a, of(6))


# Pools


def pools() -> None:
    for b in (1, 8):
        x = random(b, 64, 112, 112)
        read = "X[b, c, 2*h + r - 1 else {}, 2*w + s - 1 else {}]"
        for agg, outside, peer in (
            ("max", "-inf", lambda t: torch.nn.functional.max_pool2d(t, 3, 2, 1)),
            ("sum", "0", lambda t: torch.nn.functional.avg_pool2d(t, 3, 2, 1)),
        ):
            text = f"""
                input X[b: {b}, c: 64, h: 112, w: 112]
                Z[b, c, h: 56, w: 56] <- {agg}[r: 3, s: 3] {read.format(outside, outside)}
                output Z"""
            tensor = torch.from_numpy(x)
            run = compiled(text, X=x)
            compare(f"{agg} pool 3x3/2, b={b}", run, {"torch": lambda t=tensor, f=peer: f(t)})


def main() -> None:
    torch.set_num_threads(CORES)
    print(ASKED)
    parts = {each.__name__: each for each in (convolutions, gradients, stencils, pools)}
    if "--torchless" in sys.argv:
        convolution.has_torch = lambda: False
    for name in [each for each in sys.argv[1:] if each in parts] or parts:
        parts[name]()


if __name__ == "__main__":
    main()
