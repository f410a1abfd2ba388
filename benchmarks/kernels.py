"""Kernels against the best that NumPy, SciPy and torch do, best of five interleaved rounds.

One core each, except for distances, where every contender may use two: ours computes two halves in
two threads.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import torch
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from eindecomp.kernels.cpu.einsum import einsum_kernel
from eindecomp.lang.einsum import EinSum, product
from eindecomp.lang.monoid import MAX, SUM, Monoid
from eindecomp.lang.scalar import Arg, Expr, call

Array = np.ndarray[Any, Any]
Run = Callable[[], object]
F4 = np.dtype("float32")
x, y = Arg(0), Arg(1)
rng = np.random.default_rng(0)


def random(*shape: int) -> Array:
    return rng.standard_normal(shape, dtype=F4)


def ours(spec: str, join: Expr, agg: Monoid | None, operands: list[Array], out: Array) -> Run:
    inputs, output = spec.split("->")
    op = EinSum(tuple(tuple(part) for part in inputs.split(",")), tuple(output), join, agg)
    kernel = einsum_kernel(op, tuple(a.dtype for a in operands), out.dtype)
    return lambda: kernel.whole(operands, out)


def in_two_threads(first: Run, second: Run) -> Run:
    def run() -> None:
        thread = threading.Thread(target=first)
        thread.start()
        second()
        thread.join()

    return run


def compare(name: str, own: Run, peers: dict[str, Run], rounds: int = 5) -> None:
    """Print our time, and each peer's as a multiple of it."""
    runs = {"ours": own, **peers}
    best = dict.fromkeys(runs, float("inf"))
    for round_ in range(rounds + 1):  # the first round warms up
        for who, run in runs.items():
            start = perf_counter()
            run()
            seconds = perf_counter() - start
            best[who] = seconds if round_ == 0 else min(best[who], seconds)
    ratios = "  ".join(f"{who} {best[who] / best['ours']:.2f}x" for who in peers)
    print(f"{name:34} {1e3 * best['ours']:9.2f} ms   {ratios}")


def distances() -> None:
    a, b = random(1000, 1000), random(1000, 1000)
    s, t = torch.from_numpy(a), torch.from_numpy(b)
    torch.set_num_threads(2)
    out = np.empty((1000, 1000), F4)
    cases = [
        ("L-infinity 1000^3", call("abs", call("sub", x, y)), MAX, "chebyshev", float("inf")),
        ("squared L2 1000^3", call("pow", call("sub", x, y), 2), SUM, "sqeuclidean", 2.0),
    ]
    for name, join, agg, metric, p in cases:
        halves = [
            ours("ik,jk->ij", join, agg, [a[h], b], out[h]) for h in (slice(500), slice(500, None))
        ]

        def chunks(p: float = p) -> None:
            for rows in s.split(32):
                gap = rows[:, None] - t
                _ = gap.abs().amax(2) if p > 2 else gap.square().sum(2)

        def torch_cdist(p: float = p) -> Any:
            mode = "donot_use_mm_for_euclid_dist"
            return torch.cdist(s, t, p=p, compute_mode=mode)

        peers: dict[str, Run] = {
            "torch in chunks": chunks,
            "torch.cdist": torch_cdist,
            "scipy cdist": lambda metric=metric: cdist(a, b, metric),
        }
        compare(name + ", 2 cores", in_two_threads(*halves), peers)
    torch.set_num_threads(1)


def softmax() -> None:
    a = random(2, 16, 1024, 1024)
    t = torch.from_numpy(a)
    m, top = a.max(-1), t.amax(-1)
    row, full = np.empty_like(m), np.empty_like(a)
    result = torch.empty_like(t)
    total = torch.from_numpy(np.abs(m) + 1)
    compare("max over t", ours("bhst->bhs", x, MAX, [a], row), {"torch": lambda: t.amax(-1)})
    exp = call("exp", call("sub", x, y))

    def torch_exp() -> None:
        torch.sub(t, top[..., None], out=result)
        torch.exp(result, out=result)

    compare("exp(x - m)", ours("bhst,bhs->bhst", exp, None, [a, m], full), {"torch": torch_exp})
    compare("sum over t", ours("bhst->bhs", x, SUM, [a], row), {"torch": lambda: t.sum(-1)})
    compare(
        "x / s",
        ours("bhst,bhs->bhst", call("div", x, y), None, [a, total.numpy()], full),
        {"torch": lambda: torch.div(t, total[..., None], out=result)},
    )
    compare(
        "sum exp(x - m), fused",
        ours("bhst,bhs->bhs", exp, SUM, [a, m], row),
        {"torch": lambda: (torch_exp(), result.sum(-1))},
    )
    flat = a[0, :4]
    for name, theirs in (
        ("tanh", torch.tanh), ("sigmoid", torch.sigmoid), ("erf", torch.erf), ("log", torch.log),
        ("sin", torch.sin), ("silu", torch.nn.functional.silu), ("gelu", torch.nn.functional.gelu),
    ):  # fmt: skip
        tensor = torch.from_numpy(flat)
        compare(
            f"{name} of 4M",
            ours("hst->hst", call(name, x), None, [flat], np.empty_like(flat)),
            {"torch": lambda theirs=theirs, tensor=tensor: theirs(tensor)},
        )


def products() -> None:
    wide, tall, big = random(4000, 4000), random(4000, 4000), np.zeros((4000, 4000), F4)
    a, b = wide[1000:2000, 500:1500], tall[:1000, 2000:3000]
    c, d = a.copy(), b.copy()
    out = np.empty((1000, 1000), F4)
    tc, td, to = (torch.from_numpy(z) for z in (c, d, out))
    peers: dict[str, Run] = {
        "numpy contiguous": lambda: np.matmul(c, d, out=out),
        "torch contiguous": lambda: torch.matmul(tc, td, out=to),
    }
    panel = big[2000:3000, 1000:2000]
    for spec in ("ik,kj->ij", "ki,kj->ij", "ik,jk->ij", "ik,kj->ji"):
        compare(f"{spec} panels of 4000^2", ours(spec, product(2), SUM, [a, b], panel), peers)

    q, k, p = random(2, 1024, 16, 64), random(2, 1024, 16, 64), np.empty((2, 16, 1024, 1024), F4)
    qc, kc, vc = (
        np.ascontiguousarray(z.transpose(order))
        for z, order in ((q, (0, 2, 1, 3)), (k, (0, 2, 3, 1)), (k, (0, 2, 1, 3)))
    )
    o, oc = np.empty_like(q), np.empty((2, 16, 1024, 64), F4)
    tq, tk, tv, tp, tz = (torch.from_numpy(z) for z in (qc, kc, vc, p, oc))
    compare(
        "bshd,bthd->bhst",
        ours("bshd,bthd->bhst", product(2), SUM, [q, k], p),
        {
            "numpy contiguous": lambda: np.matmul(qc, kc, out=p),
            "torch contiguous": lambda: torch.matmul(tq, tk, out=tp),
        },
    )
    compare(
        "bhst,bthd->bshd",
        ours("bhst,bthd->bshd", product(2), SUM, [p, k], o),
        {
            "numpy contiguous": lambda: np.matmul(p, vc, out=oc),
            "torch contiguous": lambda: torch.matmul(tp, tv, out=tz),
        },
    )


def small() -> None:
    """Degenerate products, where a matrix product is a poor fit."""
    cases = [
        ("2x2 times 100,000", "bij,bjk->bik", (100_000, 2, 2), (100_000, 2, 2), (100_000, 2, 2)),
        ("matrix-vector 4000", "ij,j->i", (4000, 4000), (4000,), (4000,)),
        ("vector-matrix 4000", "i,ij->j", (4000,), (4000, 4000), (4000,)),
        ("outer product 4000", "i,j->ij", (4000,), (4000,), (4000, 4000)),
        ("dot product 10M", "i,i->", (10_000_000,), (10_000_000,), ()),
        ("batched dots", "bi,bi->b", (10_000, 1000), (10_000, 1000), (10_000,)),
    ]
    for name, spec, *shapes in cases:
        a, b, out = (random(*shape) if shape else np.zeros((), F4) for shape in shapes)
        s, t = torch.from_numpy(a), torch.from_numpy(b)
        peers: dict[str, Run] = {
            "torch.einsum": lambda spec=spec, s=s, t=t: torch.einsum(spec, s, t),
        }
        compare(name, ours(spec, product(2), SUM, [a, b], out), peers)


if __name__ == "__main__":
    parts = {f.__name__: f for f in (distances, softmax, products, small)}
    torch.set_num_threads(1)
    with threadpool_limits(1):
        for part in sys.argv[1:] or parts:
            parts[part]()
