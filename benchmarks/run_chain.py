"""The paper's matrix chain (A·B) + (C·(D·E)): our plan and engine against peers, in one run.

The ceiling is the version that a person would write for two cores: each computes a panel of columns
from start to end, with one BLAS thread, so that nothing moves and nothing waits. Rows are the best
of interleaved repeats; the spread is the worst over the best. `--quick` leaves out the largest.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import numpy as np
from threadpoolctl import threadpool_limits

import eindecomp as ed

CHAIN = """
input A[i: {i}, j: {j}], B[j, k: {k}], C[i, l: {l}], D[l, m: {m}], E[m, k]
AB[i,k]  <- sum A[i,j] * B[j,k]
DE[l,k]  <- sum D[l,m] * E[m,k]
CDE[i,k] <- sum C[i,l] * DE[l,k]
Z[i,k]   <- AB[i,k] + CDE[i,k]
output Z
"""


def sizes(s: int, skewed: bool) -> dict[str, int]:
    """Uniform: all s. Skewed: A is s × s/10, B s/10 × s, C s × s/10, D s/10 × 10s, E 10s × s."""
    if not skewed:
        return dict.fromkeys("ijklm", s)
    return {"i": s, "j": s // 10, "k": s, "l": s // 10, "m": 10 * s}


def panels(x: dict[str, np.ndarray], pool: ThreadPoolExecutor) -> np.ndarray:
    """What a person would write for two cores."""
    a, b, c, d, e = (x[name] for name in "ABCDE")
    out = np.empty((a.shape[0], b.shape[1]), a.dtype)
    half = out.shape[1] // 2

    def panel(where: slice) -> None:
        np.matmul(a, b[:, where], out=out[:, where])
        out[:, where] += c @ (d @ e[:, where])

    list(pool.map(panel, (slice(0, half), slice(half, None))))
    return out


def ways(x: dict[str, np.ndarray], graph: ed.Graph) -> dict[str, Callable[[], object]]:
    """Everybody's way to compute it."""
    a, b, c, d, e = (x[name] for name in "ABCDE")
    found: dict[str, Callable[[], object]] = {}
    for devices in (2, 8):
        plan = ed.plan(graph, devices)
        found[f"eindecomp {devices}"] = lambda plan=plan: ed.run(plan, x)
    found["numpy"] = lambda: a @ b + c @ (d @ e)
    pool = ThreadPoolExecutor(2)

    def by_hand() -> None:
        with threadpool_limits(1, user_api="blas"):
            panels(x, pool)

    found["panels"] = by_hand
    found |= _torch(x) | _dask(x)
    return found


def _torch(x: dict[str, np.ndarray]) -> dict[str, Callable[[], object]]:
    try:
        import torch
    except ImportError:
        print("torch is not installed")
        return {}
    a, b, c, d, e = (torch.from_numpy(x[name]) for name in "ABCDE")
    return {"torch": lambda: a @ b + c @ (d @ e)}


def _dask(x: dict[str, np.ndarray]) -> dict[str, Callable[[], object]]:
    try:
        import dask.array as da
    except ImportError:
        print("dask is not installed")
        return {}

    def chain(chunks: Callable[[np.ndarray], object]) -> object:
        a, b, c, d, e = (da.from_array(x[name], chunks=chunks(x[name])) for name in "ABCDE")
        return a @ b + c @ (d @ e)

    def run(chunks: Callable[[np.ndarray], object]) -> Callable[[], object]:
        return lambda: chain(chunks).compute(scheduler="threads", num_workers=2)

    half = run(lambda array: (array.shape[0], -(-array.shape[1] // 2)))
    return {"dask": run(lambda _: "auto"), "dask tuned": half}


def measure(s: int, skewed: bool, repeats: int) -> None:
    """One size: seconds of each, and the ratio of ours to it."""
    shape = sizes(s, skewed)
    graph = ed.parse(CHAIN.format(**shape))
    rng = np.random.default_rng(0)
    x = {v.name: rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs}
    todo = ways(x, graph)
    times: dict[str, list[float]] = {name: [] for name in todo}
    for turn in range(repeats + 1):
        for name, way in todo.items():
            start = perf_counter()
            way()
            if turn:  # the first is for compiling and warming up
                times[name].append(perf_counter() - start)
    i, j, k, m, n = (shape[label] for label in "ijklm")
    flops = 2 * (i * j * k + m * n * k + i * m * k)
    ours = min(times["eindecomp 2"])
    for name, seconds in times.items():
        best = min(seconds)
        print(
            f"{'skewed' if skewed else 'uniform'} {s:5} {name:12} {best:8.3f} s "
            f"{flops / best / 1e9:7.1f} GFLOP/s  ours/it {ours / best:5.3f}  "
            f"spread {max(seconds) / best:.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave out the largest")
    quick = parser.parse_args().quick
    for s in (2000,) if quick else (2000, 4000):
        for skewed in (False, True):
            measure(s, skewed, 3 if quick else 5)


if __name__ == "__main__":
    main()
