"""The engine `ray` against Ray by hand and dask, and workers that are killed while it runs.

    python benchmarks/ray_engine.py [chain] [tasks] [kill] [--size 2000] [--times 20]

Everything is measured in turn, in one run: only the ratios count, and the spread says how far they
can be trusted.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import ray

import eindecomp as ed
from eindecomp.engines.ray.engine import RayEngine
from eindecomp.experiments.measure import take_turns
from eindecomp.experiments.record import Timing
from eindecomp.kernels.cores import cores

sys.path.append(str(Path(__file__).parents[1] / "tests" / "engines" / "ray"))
from processes import below

Arrays = Mapping[str, np.ndarray]
DASK = "dask.distributed"
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}


def show(what: str, ways: Mapping[str, Callable[[], object]], repeats: int) -> Mapping[str, Timing]:
    """Print the best time of each way, its spread, and how it compares with the first."""
    timings, firsts = take_turns(ways, repeats)
    reference = next(iter(timings))
    print(what)
    for name, timing in timings.items():
        same = np.allclose(firsts[name], firsts[reference], rtol=1e-3, atol=1e-2)
        print(
            f"  {name:32} {timing.best:8.3f} s, "
            f"{timing.best / timings[reference].best:5.2f} × the first, "
            f"spread {timing.spread:.2f}{'' if same else ', ANOTHER RESULT'}"
        )
    return timings


def show_best(timings: Mapping[str, Timing], peer: str) -> None:
    """Print how the first way compares with the fastest way of a peer, if it was there."""
    theirs = [name for name in timings if name.startswith(peer)]
    if theirs:
        ours, fastest = next(iter(timings)), min(theirs, key=lambda name: timings[name].best)
        ratio = timings[ours].best / timings[fastest].best
        print(f"  {ours}: {ratio:.2f} × the best of {peer} ({fastest})")


# The matrix chain


@ray.remote
def panel(a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
    """Some columns of (A·B) + (C·(D·E)), on one core as Ray sets it."""
    return a @ b + c @ (d @ e)


def by_hand(refs: Mapping[str, Any], columns: list[tuple[Any, Any]]) -> np.ndarray:
    """Columns of B and E, and with them of the result, a task each; all else is shared."""
    made = [panel.remote(refs["A"], b, refs["C"], refs["D"], e) for b, e in columns]
    return np.concatenate(ray.get(made), axis=1)


def chain(engine: RayEngine, size: int, skewed: bool, repeats: int) -> None:
    """A chain, its inputs being in Ray's memory already, and from arrays of the caller's."""
    graph = ed.models.chain(size, skewed)
    rng = np.random.default_rng(0)
    x = {v.name: rng.standard_normal(v.shape, np.float32) for v in graph.inputs}
    with ed.compile(ed.plan(graph, cores()), engine) as executable, distributed(x) as more:
        placed = executable.place(x)
        refs, columns = put(x)
        ways: dict[str, Callable[[], object]] = {
            "ours, placed": lambda: executable(placed)["Z"],
            "Ray panels by hand, put before": lambda: by_hand(refs, columns),
            "ours, from arrays": lambda: executable(x)["Z"],
            "Ray panels by hand, from arrays": lambda: by_hand(*put(x)),
        }
        case = f"chain of {size}, {'skewed' if skewed else 'uniform'}"
        show_best(show(case, ways | more, repeats), DASK)


def put(x: Arrays) -> tuple[dict[str, Any], list[tuple[Any, Any]]]:
    """The arrays in Ray's memory: B and E by panels."""
    cut = [np.array_split(x[name], cores(), axis=1) for name in "BE"]
    columns = [
        tuple(ray.put(np.ascontiguousarray(each)) for each in pair)
        for pair in zip(*cut, strict=True)
    ]
    return {name: ray.put(x[name]) for name in "ACD"}, columns


@contextmanager
def distributed(x: Arrays) -> Iterator[dict[str, Callable[[], object]]]:
    """The chain in dask.distributed, inputs being with its workers already, if it is installed."""
    try:
        import dask.array as da
        from distributed import Client, LocalCluster, wait
    except ImportError:
        print("(dask.distributed is not installed)")
        yield {}
        return

    def persisted(chunks: Callable[[str], Any]) -> Callable[[], object]:
        held = [da.from_array(x[n], chunks(n)).persist() for n in "ABCDE"]
        wait(held)
        a, b, c, d, e = held
        return lambda: (a @ b + c @ (d @ e)).compute()

    workers = LocalCluster(
        cores(), threads_per_worker=1, processes=True, dashboard_address=None, env=ONE_THREAD
    )
    with workers, Client(workers):
        yield {f"{DASK}, {name}": persisted(chunks) for name, chunks in chunkings(x).items()}


def chunkings(x: Arrays) -> dict[str, Callable[[str], Any]]:
    """How the matrices may be cut for dask: as it does itself, and as a person would."""
    parts = {name: (1, cores() if name in "BE" else 1) for name in x}

    def cut(name: str, rows: int, columns: int) -> tuple[int, ...]:
        return tuple(-(-n // k) for n, k in zip(x[name].shape, (rows, columns), strict=True))

    return {
        "its own chunks": lambda _: "auto",
        "panels": lambda name: cut(name, *parts[name]),
        "4 × 4 chunks": lambda name: cut(name, 4, 4),
    }


# What a task costs


@ray.remote
def add_one(x: Any) -> Any:
    """The least that a task can do."""
    return x + 1


def tasks(count: int, repeats: int) -> None:
    """Rows of tasks, each of which waits for the one before."""
    devices = 100
    steps = count // devices
    graph = ed.Graph()
    last = graph.input("X", {"i": devices}).name
    for k in range(steps):
        last = graph.einsum("i->i", last, join="x+1", name=f"Z{k}").name
    graph.output(last)
    plan = ed.plan(graph, devices, strategy=["i"], rewrite=False)
    x = np.zeros(devices, np.float32)
    executable = ed.compile(plan, RayEngine(task_seconds=0))
    fused = ed.compile(plan, RayEngine())

    def loop() -> object:
        refs = [x[k : k + 1] for k in range(devices)]
        for _ in range(steps):
            refs = [add_one.remote(ref) for ref in refs]
        return np.concatenate(ray.get(refs))

    show(
        f"{devices * steps:,} tasks that do nothing",
        {
            "ours": lambda: executable({"X": x})[last],
            "a bare Ray loop": loop,
            "ours, as tasks of 20 ms": lambda: fused({"X": x})[last],
        },
        repeats,
    )


# Workers that are killed


def kill(engine: RayEngine, times: int, seconds: float) -> None:
    """Kill a worker at a random moment of a run of about so many seconds, again and again."""
    side, steps = 600, 24
    text = f"input X0[i: {side}, j: {side}], Y[j, k: {side}]\n" + "".join(
        f"X{n + 1}[i,k] <- max abs(X{n}[i,j] - Y[j,k])\n" for n in range(steps)
    )
    graph, rng = ed.parse(f"{text}output X{steps}"), np.random.default_rng(0)
    x = {v.name: rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs}
    executable = ed.compile(ed.plan(graph, cores(), strategy=["j"]), engine)
    executable(x)
    begun = perf_counter()
    wanted = executable(x)[f"X{steps}"]
    once = perf_counter() - begun
    runs = max(1, round(seconds / once))
    right, most = 0, 0.0
    for trial in range(times):
        timer = threading.Timer(random.uniform(0, once * runs), kill_a_worker)  # noqa: S311
        timer.start()
        begun = perf_counter()
        found = [executable(x) for _ in range(runs)]
        spent = perf_counter() - begun
        timer.join()
        right += all(np.array_equal(each[f"X{steps}"], wanted) for each in found)
        most = max(most, spent - once * runs)
        again = [line for each in found for line in each.stats.recovered]
        print(f"  {trial + 1:2}: {spent:.1f} s instead of {once * runs:.1f}, again: {again}")
    print(f"{right} of {times} right, at most {most:.1f} s longer")


def kill_a_worker() -> None:
    """Kill one of the processes that compute for this one, as soon as one does."""
    until = perf_counter() + 5
    while perf_counter() < until:
        for pid, words in below().items():
            if words.startswith("ray::run_task"):
                os.kill(pid, signal.SIGKILL)
                return


def main() -> None:
    """Run what is named, by default all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["chain", "tasks", "kill"])
    parser.add_argument("--size", type=int, default=2000)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    with RayEngine() as engine:
        assert engine.cluster.nodes()
        if "chain" in given.what:
            for skewed in (False, True):
                chain(engine, given.size, skewed, given.repeats)
        if "tasks" in given.what:
            tasks(given.tasks, given.repeats)
        if "kill" in given.what:
            kill(engine, given.times, given.seconds)


if __name__ == "__main__":
    main()
