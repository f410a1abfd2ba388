"""Products of every shape through the engine, against NumPy and torch, on the processor at hand.

Rows by inner by outer sizes, the second matrix in either order of storage, in float32, float64 and
bfloat16; then stacks of products and attention's two. All may use all cores; the better of NumPy
and torch counts. Threads of a library spin for a while after a call, which slows whoever comes
next: every contender's calls come in a row, after a pause. `--cores 1` compares one core of each,
`--rows 1 8` and `--types float32` take a part. `--into FILE` keeps what was measured, and measures
only what is not in it yet: with `--seconds 30`, say, a shared machine is kept busy in short spells.
Whoever else computes meanwhile makes figures worthless: a case during which others took more than a
third of a core beside those that are not used is marked, left out of the summary and not kept.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product
from math import exp, log, prod
from pathlib import Path
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
Times = dict[str, tuple[float, float]]
ROWS = (1, 2, 8, 32, 128, 512, 2048)
SIDES = (512, 2048, 8192, 32000)
TYPES = ("float32", "float64", "bfloat16")
STACKS = (
    ("bik,bkj->bij", (64, 128, 128), (64, 128, 128)),
    ("bik,bjk->bij", (1000, 32, 32), (1000, 32, 32)),
    ("bshd,bthd->bhst", (2, 1024, 16, 64), (2, 1024, 16, 64)),
    ("bhst,bthd->bshd", (2, 16, 1024, 1024), (2, 1024, 16, 64)),
    ("bhgd,bhtd->bhgt", (1, 8, 4, 64), (1, 8, 2048, 64)),
    ("bhgt,bhtd->bhgd", (1, 8, 4, 2048), (1, 8, 2048, 64)),
)
_LARGEST = 2**28  # bytes of a matrix
_WORK = 4e10  # multiply-adds of a case: more takes seconds, and says the same
_LEAST, _MOST = 0.02, 200  # seconds and calls of a contender in a turn
_PAUSE = 0.05  # seconds after which no library's threads spin any more
_SHORT = 5e-4  # seconds of a peer below which a run is mostly the engine's own overhead
_OVER = 1.2
_OTHERS = 0.35  # cores that others may keep busy
_STAT = Path("/proc/stat")
rng = np.random.default_rng(0)


@dataclass(frozen=True, slots=True)
class Case:
    """A product by its spec, type and shapes."""

    spec: str
    of: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]

    @property
    def title(self) -> str:
        one, other = ("×".join(map(str, shape)) for shape in self.shapes)
        return f"{self.of} {self.spec} {one} by {other}"


@dataclass(frozen=True, slots=True)
class Measured:
    """The best seconds of each contender, and how much longer its middle one was."""

    case: Case
    times: Times
    others: float = 0.0
    """How many of the cores that are used others kept busy meanwhile."""

    @property
    def is_disturbed(self) -> bool:
        return self.others > _OTHERS

    @property
    def peer(self) -> str:
        return min((name for name in self.times if name != "ours"), key=lambda n: self.times[n][0])

    @property
    def ratio(self) -> float:
        return self.times["ours"][0] / self.times[self.peer][0]

    @property
    def is_short(self) -> bool:
        return self.times[self.peer][0] < _SHORT

    def __str__(self) -> str:
        shown = "  ".join(f"{n} {1e3 * t:.3f} (±{s:.2f})" for n, (t, s) in self.times.items())
        mark = "" if self.ratio <= _OVER else "  over, short" if self.is_short else "  over"
        mark += f"  DISTURBED: {self.others:.1f} cores" if self.is_disturbed else ""
        return f"{self.case.title}: {self.ratio:.2f} × {self.peer}   {shown} ms{mark}"


def best(ways: Ways, turns: int = 3) -> Times:
    """The best seconds of each, and how much longer its middle one was."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(turns):
        for name in reversed(ways) if turn % 2 else ways:
            sleep(_PAUSE)
            ways[name]()
            begun, spent, most = perf_counter(), 0.0, len(times[name]) + _MOST
            # Short products are timed more often: chance disturbs some of them.
            while spent < _LEAST or (len(times[name]) < 4 * (turn + 1) and spent < 2):
                if len(times[name]) >= most:
                    break
                start = perf_counter()
                ways[name]()
                times[name].append(perf_counter() - start)
                spent = perf_counter() - begun
    return {n: (min(t), sorted(t)[len(t) // 2] / min(t)) for n, t in times.items()}


def others_seconds() -> float:
    """The seconds of all cores so far that were neither idle nor this process's, if known."""
    if not _STAT.exists():
        return 0.0
    user, nice, system, _, _, *rest = map(int, _STAT.read_text().split("\n")[0].split()[1:9])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK") - sum(os.times()[:2])


def measure(case: Case, cores: int) -> Measured:
    ways = contenders(case, cores)
    for way in ways.values():
        way()
    begun, before = perf_counter(), others_seconds()
    times = best(ways)
    others = (others_seconds() - before) / (perf_counter() - begun)
    return Measured(case, times, others - max(0, (os.cpu_count() or cores) - cores))


def numbers(shape: tuple[int, ...], name: str) -> Array:
    some = rng.standard_normal(min(prod(shape), 2**20 - 3), np.float32).astype(name)
    return np.resize(some, shape)


def to_torch(array: Array) -> torch.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def contenders(case: Case, cores: int) -> Ways:
    """The same product, ours by an executable that was made before."""
    spec = case.spec
    x, y = (numbers(shape, case.of) for shape in case.shapes)
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


def cases(rows: Iterable[int], types: Iterable[str]) -> Iterator[Case]:
    for name, order in product(types, ("kn", "nk")):
        item = ed.parse(f"input X[] {name}\noutput X").inputs[0].dtype.itemsize
        for m, k, n in product(rows, SIDES, SIDES):
            if max(k * n, m * n, m * k) * item <= _LARGEST and m * n * k <= _WORK:
                yield Case(f"mk,{order}->mn", name, ((m, k), (k, n) if order == "kn" else (n, k)))
    for spec, one, other in STACKS:
        yield Case(spec, "float32", (one, other))


def kept(path: Path | None) -> dict[str, Times]:
    """What was measured before, by the titles of cases."""
    return json.loads(path.read_text()) if path is not None and path.exists() else {}


def mean(ratios: Iterable[float]) -> float:
    logs = [log(ratio) for ratio in ratios]
    return exp(sum(logs) / len(logs))


def summary(title: str, found: list[Measured]) -> str:
    """The geometric mean, how far cases spread around it, and how many are over."""
    if not found:
        return f"{title:28} none"
    ratios = sorted(each.ratio for each in found)
    low, high = ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
    over = sum(ratio > _OVER for ratio in ratios)
    return (
        f"{title:28} mean {mean(ratios):.2f}  four in five {low:.2f} to {high:.2f}  "
        f"worst {ratios[-1]:.2f}  over {_OVER}: {over} of {len(ratios)}"
    )


def report(found: list[Measured]) -> None:
    print("\nour time over the better of NumPy's and torch's")
    groups = dict.fromkeys(f"{each.case.of} {each.case.spec}" for each in found)
    for group in groups:
        own = [each for each in found if f"{each.case.of} {each.case.spec}" == group]
        print(summary(group, own))
    for name in TYPES:
        print(summary(name, [each for each in found if each.case.of == name]))
    print(summary("all", found))
    print(summary(f"peer {1e3 * _SHORT:g} ms or more", [e for e in found if not e.is_short]))
    print(f"\nover {_OVER}")
    for each in sorted(found, key=lambda each: -each.ratio):
        if each.ratio > _OVER:
            print(each)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", type=int, default=torch.get_num_threads())
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS)
    parser.add_argument("--types", nargs="*", default=TYPES)
    parser.add_argument("--into", type=Path, help="a file that keeps what was measured")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    asked = parser.parse_args()
    here = Host.here()
    blas = ", ".join(here.blas)
    print(f"{here.cpu}, {asked.cores} cores; {blas}; torch {torch.__version__}", flush=True)
    torch.set_num_threads(asked.cores)
    before, found = kept(asked.into), list[Measured]()
    begun = perf_counter()
    with threadpool_limits(1) if asked.cores == 1 else nullcontext():
        for case in cases(asked.rows, asked.types):
            if case.title in before:
                found.append(Measured(case, before[case.title]))
            elif perf_counter() - begun < asked.seconds:
                found.append(measure(case, asked.cores))
                print(found[-1], flush=True)
                if asked.into is not None and not found[-1].is_disturbed:
                    before[case.title] = found[-1].times
                    asked.into.write_text(json.dumps(before))
    disturbed = sum(each.is_disturbed for each in found)
    print(f"\n{disturbed} of {len(found)} cases disturbed by others, and left out")
    report([each for each in found if not each.is_disturbed])


if __name__ == "__main__":
    main()
