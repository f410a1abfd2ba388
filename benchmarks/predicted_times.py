"""Predicted, simulated and measured times of collectives and plans, on 2, 4 and 8 ranks.

The machine is measured once by `eindecomp calibrate --engine spmd`. Then, by `mpirun`, collectives
are timed again at sizes between those of the profile, and plans are run on engine `spmd`, compiled
once and run several times, as a single run is mostly preparation. Two models predict plans: what
objective `time` expects, and `ed.simulate`. An error is |predicted - measured| / measured. Of two
plans whose predictions differ by more than 20 %, the one that is predicted to be faster should be
faster. Profiles are taken however noisy the machine is; how far
repeated measurements were apart is printed first.

Asked for: collectives 15 %, experiments 20 % on average, and every such order right. Ranks beyond
the cores of this machine share them: those lines say how far the model carries, not how good it is.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from shutil import which
from statistics import mean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import eindecomp as ed
from eindecomp.cli.run import random_inputs
from eindecomp.engines.engine import find_engine
from eindecomp.engines.spmd.job import connect
from eindecomp.experiments.calibrate.kernels import TurnTimer
from eindecomp.experiments.calibrate.links import RankLinks, measured
from eindecomp.experiments.paper import TINY
from eindecomp.models.llama import prefill_graph
from eindecomp.models.paper_graphs import chain, ffnn
from eindecomp.planner.space.strategy import applicable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_APART = 1.2  # times that predictions differ by where their order must be right
_BETWEEN = tuple(3 << power for power in range(10, 25, 2))  # sizes that calibrate does not measure
_PATIENCE = 1800
_RUNS = 5
_ASKED = {"collectives": 0.15, "experiments": 0.2}


PREDICTORS: dict[str, Callable[[ed.Plan, ed.Machine], float]] = {
    "objective time": lambda plan, machine: plan.time_on(machine).total,
    "simulator": lambda plan, machine: ed.simulate(plan, machine, reduce="direct").seconds,
}


class Pair(NamedTuple):
    """One prediction and what came true."""

    name: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        return abs(self.predicted - self.measured) / self.measured


def under_mpi(ranks: int, *command: str) -> str:
    """What a command prints that runs on so many ranks; it is ended if it takes too long."""
    rooted = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    found = subprocess.run(  # noqa: S603
        ["mpirun", "--oversubscribe", "-n", str(ranks), sys.executable, *command],  # noqa: S607
        env=os.environ | rooted, capture_output=True, text=True, timeout=_PATIENCE, check=False,
    )  # fmt: skip
    if found.returncode:
        raise SystemExit(f"{' '.join(command)} on {ranks} ranks failed:\n{found.stderr[-2000:]}")
    return found.stdout


def profile_of(ranks: int, folder: Path, quick: bool) -> ed.Machine:
    """The machine as it is measured on so many ranks."""
    path = folder / f"machine{ranks}.json"
    more = ["--quick"] if quick else []
    asked = ("calibrate", "--engine", "spmd", "--noisy", "-o", str(path), *more)
    under_mpi(ranks, "-m", "eindecomp", *asked)
    spread = json.loads(path.read_bytes())["about"]["spread"]
    print(f"{ranks} ranks, the profile: median over best at most {spread}", flush=True)
    return ed.Machine.load(path)


def time_collectives(quick: bool) -> None:
    """On each rank: measure all collectives once more; the first rank prints their seconds."""
    links = RankLinks(connect())
    sizes = _BETWEEN[1:4:2] if quick else _BETWEEN
    with links.ending_together():
        found = measured(
            links.collectives,
            links.axes,
            sizes,
            TurnTimer(3 if quick else 9, links.turn),
            lambda _: None,
        )
    if links.rank == 0:
        points = {
            kind: {axis: curve.points for axis, curve in curves.items()}
            for kind, curves in found.items()
        }
        print(json.dumps(points))


def collectives(ranks: int, machine: ed.Machine, quick: bool) -> Iterator[Pair]:
    """Every collective along every axis at sizes between those of the profile."""
    more = ["--quick"] if quick else []
    found = json.loads(under_mpi(ranks, __file__, "--collectives", *more))
    for kind, curves in found.items():
        for axis, points in curves.items():
            for size, seconds in points:
                curve = machine.curve_of(kind, axis)
                assert curve is not None, "every collective was measured"
                predicted = float(curve.seconds(size))
                yield Pair(kind, predicted, seconds)


def graphs(quick: bool) -> dict[str, ed.Graph]:
    """The experiments, small enough for a laptop."""
    s = 256 if quick else 1000
    shape = (64, 1024, 256, 512) if quick else (128, 8192, 512, 3647)
    return {
        "chain": chain(s),
        "skewed chain": chain(s, skewed=True),
        "classifier step": ffnn(*shape),
        "LLaMA prefill": prefill_graph(TINY, 1, 64 if quick else 256),
    }


def plans(graph: ed.Graph, ranks: int, machine: ed.Machine) -> dict[str, ed.Plan]:
    """Ours for time and for bytes, and the strategies that apply."""
    limit: dict[str, Any] = {"time_limit": 20, "tie": {}}
    made = {
        "least time": ed.plan(graph, ranks, "time", machine=machine, **limit),
        "least bytes": ed.plan(graph, ranks, **limit),
    }
    for name in applicable(graph, ranks):
        try:
            made[name] = ed.plan(graph, ranks, strategy=name, **limit)
        except ed.PlanError:
            continue  # it cannot cut this graph on so many devices
    return made


def experiment(
    graph: ed.Graph, ranks: int, machine: ed.Machine, folder: Path
) -> dict[str, list[Pair]]:
    """Predicted and measured seconds of some plans of one graph, by who predicts them."""
    pairs: dict[str, list[Pair]] = {who: [] for who in PREDICTORS}
    for name, plan in plans(graph, ranks, machine).items():
        path = folder / "plan.json"
        plan.save(path)
        seconds = json.loads(under_mpi(ranks, __file__, "--plan", str(path)))
        for who, predict in PREDICTORS.items():
            pairs[who].append(Pair(name, predict(plan, machine), seconds))
    return pairs


def time_plan(path: str) -> None:
    """On each rank: run a saved plan; the first rank prints the seconds of the best run."""
    links = RankLinks(connect())
    plan = ed.Plan.load(path)
    with links.ending_together(), ed.compile(plan, "spmd") as executable:
        drawn = random_inputs(plan.graph, 0)
        arrays = {vertex.name: drawn[vertex.name] for vertex in plan.graph.inputs}
        placed = {**drawn, **executable.place(arrays)}
        seconds = TurnTimer(_RUNS, links.turn).best("runs", lambda: executable(placed))
    if links.rank == 0:
        print(json.dumps(seconds))


def orders(pairs: Sequence[Pair]) -> tuple[int, int]:
    """How many of the orders that should be right are, and how many there are."""
    clear = [
        sorted(two, key=lambda pair: pair.predicted)
        for two in combinations(pairs, 2)
        if max(p.predicted for p in two) > _APART * min(p.predicted for p in two)
    ]
    return sum(fast.measured < slow.measured for fast, slow in clear), len(clear)


def tell(title: str, pairs: Sequence[Pair], asked: float, *, ordered: bool = False) -> None:
    """One line: the mean and the worst error of how many pairs, and how many orders are right."""
    worst = max(pairs, key=lambda pair: pair.error)
    right, of = orders(pairs) if ordered else (0, 0)
    order = f", {right} of {of} orders right" if ordered else ""
    print(
        f"{title:<44} {len(pairs):3} pairs, mean error {mean_error(pairs):6.1%} "
        f"(asked {asked:.0%}), worst {worst.error:6.1%} ({worst.name}: {worst.predicted:.3g} s, "
        f"measured {worst.measured:.3g} s){order}",
        flush=True,
    )


def mean_error(pairs: Sequence[Pair]) -> float:
    return mean(pair.error for pair in pairs)


def table(found: Mapping[tuple[int, str], Sequence[Pair]]) -> str:
    """The mean and the worst error of collectives and of experiments, for each number of ranks."""
    lines = [f"{'ranks':>5}  {'what':<15} {'pairs':>5} {'mean error':>11} {'worst':>8}"]
    for (ranks, what), pairs in found.items():
        worst = max(pair.error for pair in pairs)
        shown = f"{len(pairs):>5} {mean_error(pairs):>11.1%} {worst:>8.1%}"
        lines.append(f"{ranks:>5}  {what:<15} {shown}")
    return "\n".join(lines)


def has_engine() -> bool:
    """Whether plans can run on ranks here."""
    try:
        find_engine("spmd")
    except (ImportError, ed.InputError) as error:
        print(f"experiments are skipped: engine 'spmd' cannot be loaded here ({error})")
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few sizes, small experiments")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--collectives", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--plan", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.plan is not None:
        time_plan(asked.plan)
        return
    if asked.collectives:
        time_collectives(asked.quick)
        return
    if which("mpirun") is None:
        print("skipped: there is no mpirun here")
        return
    runs = has_engine()
    found: dict[tuple[int, str], list[Pair]] = {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        for ranks in asked.ranks:
            machine = profile_of(ranks, folder, asked.quick)
            found[ranks, "collectives"] = compare_collectives(ranks, machine, asked.quick)
            if runs:
                for who, pairs in compare_plans(ranks, machine, folder, asked.quick).items():
                    found[ranks, who] = pairs
    print(table(found))


def compare_collectives(ranks: int, machine: ed.Machine, quick: bool) -> list[Pair]:
    """Tell how good the predictions of collectives are, one by one and all together."""
    found = list(collectives(ranks, machine, quick))
    for kind in dict.fromkeys(pair.name for pair in found):
        own = [pair for pair in found if pair.name == kind]
        tell(f"{ranks} ranks, {kind}", own, _ASKED["collectives"])
    tell(f"{ranks} ranks, all collectives", found, _ASKED["collectives"])
    return found


def compare_plans(
    ranks: int, machine: ed.Machine, folder: Path, quick: bool
) -> dict[str, list[Pair]]:
    """Tell how good both predictions of plans are, for each experiment."""
    found: dict[str, list[Pair]] = {who: [] for who in PREDICTORS}
    for title, graph in graphs(quick).items():
        for who, pairs in experiment(graph, ranks, machine, folder).items():
            tell(f"{ranks} ranks, {title}, {who}", pairs, _ASKED["experiments"], ordered=True)
            found[who] += pairs
    return found


if __name__ == "__main__":
    main()
