"""Products of every shape through the engine, against NumPy and torch, on the processor at hand.

Rows by inner by outer sizes, the second matrix in either order of storage, in float32, float64 and
bfloat16; then stacks of products and attention's two. All may use all cores; the better of NumPy
and torch counts. Threads of a library spin for a while after a call, which slows whoever comes
next: every contender's calls come in a row, after a pause. `--cores 1` compares one core of each,
`--rows 1 8` and `--types float32` take a part.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import product
from math import exp, log
from time import perf_counter, sleep
from typing import Any

import ml_dtypes
import numpy as np
import torch
from threadpoolctl import threadpool_limits

import eindecomp as ed
from eindecomp.experiments.record import Host

Array = np.ndarray[Any, Any]
Ways = dict[str, Callable[[], object]]
ROWS = (1, 2, 8, 32, 128, 512, 2048)
SIDES = (512, 2048, 8192, 32000)
TYPES = ("float32", "float64", "bfloat16")
_LARGEST = 2**28  # bytes of a matrix
_WORK = 4e10  # multiply-adds of a case: more takes seconds, and says the same
_PAUSE = 0.05  # seconds after which no library's threads spin any more
_SHORT = 5e-4  # seconds of a peer below which a run is mostly the engine's own overhead
rng = np.random.default_rng(0)


def best(ways: Ways, turns: int = 3) -> dict[str, tuple[float, float]]:
    """The best seconds of each, and how much longer its middle one was."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(turns):
        for name in reversed(ways) if turn % 2 else ways:
            sleep(_PAUSE)
            ways[name]()
            begun = perf_counter()
            while len(times[name]) < 4 * (turn + 1) and perf_counter() - begun < 2:
                start = perf_counter()
                ways[name]()
                times[name].append(perf_counter() - start)
    return {n: (min(t), sorted(t)[len(t) // 2] / min(t)) for n, t in times.items()}


def numbers(shape: tuple[int, ...], name: str) -> Array:
    return rng.standard_normal(shape, np.float32).astype(name)


def to_torch(array: Array) -> torch.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def contenders(spec: str, x: Array, y: Array, cores: int) -> Ways:
    """The same product, ours by an executable that was made before."""
    graph = ed.Graph()
    first, second = spec.split("->")[0].split(",")
    for name, labels, array in (("X", first, x), ("Y", second, y)):
        graph.input(name, dict(zip(labels, array.shape, strict=True)), str(array.dtype))
    graph.output(graph.einsum(spec, "X", "Y", name="Z"))
    executable = ed.compile(ed.plan(graph, cores))
    s, t = to_torch(x), to_torch(y)
    ways: Ways = {
        "ours": lambda: executable({"X": x, "Y": y}),
        "torch": lambda: torch.einsum(spec, s, t),
    }
    if x.dtype != ml_dtypes.bfloat16:
        ways["numpy"] = lambda: np.einsum(spec, x, y, optimize=True)
    if x.ndim == y.ndim == 2:
        turned = second == "nk"
        ways["torch"] = lambda: torch.matmul(s, t.T if turned else t)
        if x.dtype != ml_dtypes.bfloat16:
            ways["numpy"] = lambda: np.matmul(x, y.T if turned else y)
    return ways


def cases(rows: list[int], types: list[str]) -> Iterator[tuple[str, str, Array, Array]]:
    """A group, a title, and two arrays."""
    for name, order in product(types, ("kn", "nk")):
        item = ed.parse(f"input X[] {name}\noutput X").inputs[0].dtype.itemsize
        for m, k, n in product(rows, SIDES, SIDES):
            if k * n * item > _LARGEST or m * n * k > _WORK or m * n * item > _LARGEST:
                continue
            w = numbers((k, n) if order == "kn" else (n, k), name)
            x = numbers((m, k), name)
            yield f"{name} mk,{order}->mn", f"{m} × {k} × {n}", x, w
    stacks = [
        ("bik,bkj->bij", (64, 128, 128), (64, 128, 128)),
        ("bik,bjk->bij", (1000, 32, 32), (1000, 32, 32)),
        ("bshd,bthd->bhst", (2, 1024, 16, 64), (2, 1024, 16, 64)),
        ("bhst,bthd->bshd", (2, 16, 1024, 1024), (2, 1024, 16, 64)),
        ("bhgd,bhtd->bhgt", (1, 8, 4, 64), (1, 8, 2048, 64)),
        ("bhgt,bhtd->bhgd", (1, 8, 4, 2048), (1, 8, 2048, 64)),
    ]
    for spec, one, other in stacks:
        title = f"{'×'.join(map(str, one))} by {'×'.join(map(str, other))}"
        yield f"float32 {spec}", title, numbers(one, "float32"), numbers(other, "float32")


def mean(ratios: list[float]) -> float:
    return exp(sum(map(log, ratios)) / len(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", type=int, default=torch.get_num_threads())
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS)
    parser.add_argument("--types", nargs="*", default=TYPES)
    asked = parser.parse_args()
    here = Host.here()
    blas = ", ".join(here.blas)
    print(f"{here.cpu}, {asked.cores} cores; {blas}; torch {torch.__version__}", flush=True)
    torch.set_num_threads(asked.cores)
    groups: dict[str, list[float]] = {}
    long: list[float] = []
    with threadpool_limits(1) if asked.cores == 1 else nullcontext():
        for group, title, x, y in cases(asked.rows, asked.types):
            spec = group.split()[1]
            found = best(contenders(spec, x, y, asked.cores))
            peer = min((found[name][0], name) for name in found if name != "ours")
            ratio = found["ours"][0] / peer[0]
            groups.setdefault(group, []).append(ratio)
            if peer[0] >= _SHORT:
                long.append(ratio)
            shown = "  ".join(f"{n} {1e3 * t:.3f} (±{s:.2f})" for n, (t, s) in found.items())
            mark = "" if ratio <= 1.2 else "  over" if peer[0] >= _SHORT else "  over, short"
            print(f"{group} {title}: {ratio:.2f} × {peer[1]}   {shown} ms{mark}", flush=True)
    print("\nour time over the better of NumPy's and torch's")
    for group, ratios in groups.items():
        print(f"{group:24} mean {mean(ratios):.2f}  worst {max(ratios):.2f}  of {len(ratios)}")
    every = [ratio for ratios in groups.values() for ratio in ratios]
    print(f"all: mean {mean(every):.2f}, worst {max(every):.2f}, of {len(every)}")
    print(
        f"where the peer takes {1e3 * _SHORT:g} ms or more: mean {mean(long):.2f}, "
        f"worst {max(long):.2f}, {sum(r > 1.2 for r in long)} of {len(long)} over 1.2"
    )


if __name__ == "__main__":
    main()
