"""The gallery's ten problems on the cores of this machine, against NumPy (or SciPy) and PyTorch.

NumPy's arrays in and out, as many threads as there are cores, float32. In every round each runs
twice, and the second time counts: threads of the one before may still be spinning. What is printed
is our best time, and each peer's best as a multiple of it, with the least and the most of a round.
`--markdown` puts that into docs/gallery/index.md, with what moves between 8 devices.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import scipy.sparse.csgraph
import torch
from threadpoolctl import threadpool_limits

import eindecomp as ed

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples" / "gallery"))

from in_numpy import IN_NUMPY  # noqa: E402 - once its folder can be found
from in_torch import IN_TORCH  # noqa: E402
from ten_problems import PROBLEMS, Problem  # noqa: E402

INDEX = ROOT / "docs" / "gallery" / "index.md"
TABLE = re.compile(r"(?<=<!-- table -->\n).*(?=<!-- end of table -->)", re.S)
CORES = len(os.sched_getaffinity(0))
Run = Callable[[], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Ratio:
    """A peer's time over ours: of the bests, and the least and the most of a round."""

    best: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.best:.2f}× ({self.least:.2f}–{self.most:.2f})"


@dataclass(frozen=True, slots=True)
class Timed:
    """How long a problem takes us, and the peers."""

    problem: Problem
    seconds: float
    ratios: dict[str, Ratio]

    @property
    def words(self) -> list[str]:
        """Our time, then each peer's."""
        against = [f"{who} {ratio}" for who, ratio in self.ratios.items()]
        return [f"{1e3 * self.seconds:.1f} ms", *against]


def contenders(problem: Problem) -> dict[str, Run]:
    """Us first, then the peers, on the same numbers."""
    graph = problem.graph()
    given = problem.data(graph, np.random.default_rng(0))
    more = problem.arguments({})
    tensors = {
        name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        for name, value in given.items()
    }
    executable, outputs = ed.compile(problem.plan(None)), [v.name for v in graph.outputs]

    def ours() -> dict[str, Any]:
        result = executable(given)
        return {name: result[name] for name in outputs}

    in_numpy, in_torch = IN_NUMPY[problem.name], IN_TORCH[problem.name]
    runs: dict[str, Run] = {
        "ours": ours,
        "SciPy" if problem.name == "gnn" else "NumPy": lambda: in_numpy(**given, **more),
        "PyTorch": lambda: in_torch(**tensors, **more),
    }
    if problem.name == "shortest_paths":
        floyd_warshall = scipy.sparse.csgraph.floyd_warshall
        runs["SciPy"] = lambda: {"D512": floyd_warshall(given["D"])}
    return runs


def check(runs: dict[str, Run]) -> None:
    """All have the same results, up to rounding; of indices nearly all, as distances may tie."""
    own, *others = (run() for run in runs.values())
    for other in others:
        for name, value in other.items():
            mine, theirs = own[name], np.asarray(value)
            if theirs.dtype.kind == "i":
                assert (mine == theirs).mean() > 0.99, name
            else:
                np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-3, err_msg=name)


def measure(problem: Problem, rounds: int) -> Timed:
    """All contenders in turns."""
    runs = contenders(problem)
    check(runs)
    spent: dict[str, list[float]] = {who: [] for who in runs}
    for _ in range(rounds):
        for who, run in runs.items():
            run()
            start = perf_counter()
            run()
            spent[who].append(perf_counter() - start)
    own = spent.pop("ours")
    ratios = {who: compared(seconds, own) for who, seconds in spent.items()}
    return Timed(problem, min(own), ratios)


def compared(theirs: list[float], own: list[float]) -> Ratio:
    """The seconds of a peer against ours, round by round."""
    by_round = [their / our for their, our in zip(theirs, own, strict=True)]
    return Ratio(min(theirs) / min(own), min(by_round), max(by_round))


def moved(problem: Problem) -> tuple[int, int]:
    """The bytes that a plan for 8 devices moves, and those of the same vertices cut naively."""
    planned, naive = problem.plan().compare({"naive": list(problem.naive)})
    return int(planned.cost), int(naive.cost)


def row(timed: Timed) -> str:
    """A problem's row of the table in the documentation."""
    problem = timed.problem
    name, labels = problem.name, ", ".join(f"`{label}`" for label in problem.naive)
    planned, naive = moved(problem)
    picture = (
        f'<a href="{name}.svg"><img src="{name}.svg" width="120" alt="{problem.title}: plan"></a>'
    )
    cells = (
        f"[{problem.title}]({name}.md)", problem.line, picture, f"{planned:,}",
        f"{naive:,} ({labels})", "<br>".join(timed.words),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    take = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [problem.name for problem in PROBLEMS]
    take.add_argument("problems", nargs="*", help=f"some of {', '.join(names)}; otherwise all")
    take.add_argument("--rounds", type=int, default=7)
    take.add_argument("--markdown", action="store_true", help=f"write {INDEX.relative_to(ROOT)}")
    asked = take.parse_args()
    if unknown := set(asked.problems) - set(names):
        take.error(f"unknown: {', '.join(sorted(unknown))}")
    if asked.markdown and asked.problems:
        take.error("the table is written with all problems")
    torch.set_num_threads(CORES)
    chosen = [p for p in PROBLEMS if not asked.problems or p.name in asked.problems]
    print(f"{CORES} cores; a peer's time over ours, above 1 where we are faster")
    rows: list[str] = []
    with threadpool_limits(CORES):
        for problem in chosen:
            timed = measure(problem, asked.rounds)
            print(f"{problem.title:22} {', '.join(timed.words)}", flush=True)
            rows.append(row(timed))
    if asked.markdown:
        titles = "problem", "", "plan", "bytes moved", "cut naively, along", "time"
        head = [f"| {' | '.join(titles)} |", "| --- | --- | --- | ---: | ---: | --- |"]
        table = "\n".join([*head, *rows, ""])
        INDEX.write_text(TABLE.sub(lambda _: table, INDEX.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
