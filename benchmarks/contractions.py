"""Contractions of several tensors in one vertex, against numpy.einsum, opt_einsum and torch.einsum.

MTTKRP of orders 3 and 5 in every mode, TTMc, Tucker, tensor trains and matrix chains, in float32
and float64. Everybody may use all cores. Ours is one vertex, fused, cut for as many devices as
there are cores; `planned` is what `ed.plan` makes of the same graph by itself. Contenders take
turns, each after a pause, since threads of a library spin for a while after a call. The ratio is
that of our best time to the best of all others; ± is how much longer the middle run was.
`mttkrp3 --types float32 --sizes 256` takes a part.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from math import exp, log
from time import perf_counter, sleep
from typing import Any

import numpy as np
import opt_einsum
import torch

import eindecomp as ed
from eindecomp.experiments.record import Host
from eindecomp.kernels.cores import cores

Array = np.ndarray[Any, Any]
Ways = dict[str, Callable[[], object]]
Case = tuple[str, dict[str, int]]
TYPES = ("float32", "float64")
SIZES = (256, 400)
RANKS = (24, 32)
_TURNS = 4
_PAUSE = 0.05  # seconds after which no library's threads spin any more
_SHORT = 0.15  # seconds that a contender has in each turn
OURS = ("ours", "planned")
rng = np.random.default_rng(0)


def mttkrp(modes: str, size: int, rank: int) -> Iterator[Case]:
    """The product of a tensor with the matrices of all modes but one, for each of them."""
    sizes = dict.fromkeys(modes, size) | {"a": rank}
    for mode in modes:
        factors = ",".join(f"{other}a" for other in modes if other != mode)
        yield f"{modes},{factors}->{mode}a", sizes


def cases(sizes: list[int], ranks: list[int]) -> Iterator[tuple[str, Case]]:
    """A group, an expression and its sizes."""
    for size in sizes:
        for rank in ranks:
            yield from (("mttkrp3", case) for case in mttkrp("ijk", size, rank))
    for rank in ranks:
        yield from (("mttkrp5", case) for case in mttkrp("ijklm", 28, rank))
    five = dict.fromkeys("ijklm", 28)
    yield "ttmc5", ("ijklm,jb,kc,ld,me->ibcde", five | dict.fromkeys("bcde", 12))
    yield "ttmc5", ("ijklm,ia,jb,kc,ld->abcdm", five | dict.fromkeys("abcd", 12))
    three = dict.fromkeys("ijk", 256) | dict.fromkeys("abc", 24)
    yield "tucker", ("ijk,ia,jb,kc->abc", three)
    yield "tucker", ("abc,ia,jb,kc->ijk", three)
    train = dict.fromkeys("ijkl", 64) | dict.fromkeys("abc", 24)
    yield "train", ("ia,ajb,bkc,cl->ijkl", train)
    yield "train", ("ijkl,ia,ajb,bkc->cl", train)
    yield "chain", ("ij,jk,kl->il", {"i": 2000, "j": 100, "k": 2000, "l": 200})
    four = {"i": 1000, "j": 2000, "k": 100, "l": 1500, "m": 300}
    yield "chain", ("ij,jk,kl,lm->im", four)
    many = {"i": 1000, "j": 200, "k": 1500, "l": 64, "m": 1200, "n": 500}
    yield "chain", ("ij,jk,kl,lm,mn->in", many)
    most = {"i": 800, "j": 1500, "k": 100, "l": 1000, "m": 2000, "n": 50, "o": 900}
    yield "chain", ("ij,jk,kl,lm,mn,no->io", most)


def contenders(spec: str, sizes: dict[str, int], dtype: str) -> Ways:
    """The same contraction, ours by executables that were made before."""
    graph = ed.Graph()
    given: dict[str, Array] = {}
    for k, labels in enumerate(spec.split("->")[0].split(",")):
        shape = {label: sizes[label] for label in labels}
        graph.input(f"X{k}", shape, dtype)
        given[f"X{k}"] = rng.standard_normal([*shape.values()], dtype=np.dtype(dtype))
    graph.output(graph.einsum(spec, *given, name="Z"))
    fused = ed.compile(ed.plan(graph, cores(), rewrite=False))
    planned = ed.compile(ed.plan(graph, cores()))
    arrays = [*given.values()]
    tensors = [torch.from_numpy(array) for array in arrays]
    ways: Ways = {
        "ours": lambda: fused(given)["Z"],
        "planned": lambda: planned(given)["Z"],
        "numpy": lambda: np.einsum(spec, *arrays, optimize=True),
        "opt_einsum": lambda: opt_einsum.contract(spec, *arrays),
        "torch": lambda: torch.einsum(spec, *tensors),
    }
    expected = np.asarray(ways["numpy"]())
    for name in OURS:
        off = np.abs(np.asarray(ways[name]()) - expected).max() / np.abs(expected).max()
        assert off < (1e-4 if dtype == "float32" else 1e-10), f"{name} is off by {off:.1e}"
    return ways


def best(ways: Ways) -> dict[str, tuple[float, float]]:
    """The best seconds of each, and how much longer its middle one was."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(_TURNS):
        for name in reversed(ways) if turn % 2 else ways:
            sleep(_PAUSE)
            ways[name]()
            begun = perf_counter()
            while len(times[name]) < 4 * (turn + 1) and perf_counter() - begun < _SHORT:
                start = perf_counter()
                ways[name]()
                times[name].append(perf_counter() - start)
    return {n: (min(t), sorted(t)[len(t) // 2] / min(t)) for n, t in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groups", nargs="*", help="mttkrp3, mttkrp5, ttmc5, tucker, train, chain")
    parser.add_argument("--types", nargs="*", default=TYPES)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--ranks", type=int, nargs="*", default=RANKS)
    asked = parser.parse_args()
    torch.set_num_threads(cores())
    here = Host.here()
    print(f"{here.cpu}, {cores()} cores; {', '.join(here.blas)}; torch {torch.__version__}")
    groups: dict[str, list[float]] = {}
    for group, (spec, sizes) in cases(asked.sizes, asked.ranks):
        if asked.groups and group not in asked.groups:
            continue
        for dtype in asked.types:
            found = best(contenders(spec, sizes, dtype))
            peer, who = min((found[name][0], name) for name in found if name not in OURS)
            ratio = found["ours"][0] / peer
            groups.setdefault(f"{group} {dtype}", []).append(ratio)
            title = f"{spec} {dtype} {','.join(f'{k}={n}' for k, n in sizes.items())}"
            shown = "  ".join(f"{n} {1e3 * t:.2f} (±{s:.2f})" for n, (t, s) in found.items())
            mark = "  over" if ratio > 1 else ""
            print(f"{title}: {ratio:.2f} × {who}   {shown} ms{mark}", flush=True)
    print("\nour time over the best of all others'")
    for name, ratios in groups.items():
        mean = exp(sum(map(log, ratios)) / len(ratios))
        over = sum(ratio > 1 for ratio in ratios)
        print(f"{name:16} mean {mean:.2f}  worst {max(ratios):.2f}  over 1.0: {over}/{len(ratios)}")


if __name__ == "__main__":
    main()
