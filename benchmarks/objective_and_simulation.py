"""Objective `time` beside the simulator: LLaMA layers on GPU servers, free and by strategy.

For each plan the seconds that the objective expects over those that are simulated on unloaded
links, one step after another; and the pairs of plans that differ by more than 10 % in simulation
and that the objective puts into the other order. Prints Markdown.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from itertools import combinations

import eindecomp as ed
from eindecomp.errors import EinDecompError
from eindecomp.models.llama import CONFIGS, prefill_graph
from eindecomp.planner.costs.machine import ROUNDS
from eindecomp.planner.costs.presets import machine_of
from eindecomp.planner.space.strategy import applicable

APART = 1.1
"""How many times as long one of two plans takes whose order matters."""
SEQUENCE = 4096


@dataclass(frozen=True)
class Timed:
    """A plan's seconds, expected and simulated."""

    name: str
    expected: float
    simulated: float
    beside: float
    """Simulated with communication beside computing."""


def layer(model: str, batch: int) -> ed.Graph:
    """One layer of a model in bfloat16, with what comes before and after it."""
    config = replace(CONFIGS[model], layers=1, dtype="bfloat16")
    return ed.rewrite(prefill_graph(config, batch, SEQUENCE, keep=False))


def timed(graph: ed.Graph, devices: int, given: argparse.Namespace) -> list[Timed]:
    """Plans of a graph for the objective, free and under each strategy that applies."""
    rows: list[Timed] = []
    machine = replace(machine_of(given.machine, devices), rounds=given.rounds)
    for name in ("free", *applicable(graph, devices)):
        strategy = None if name == "free" else name
        try:
            plan = ed.plan(
                graph, devices, "time", machine=machine, inputs="sharded",
                strategy=strategy, rewrite=False, time_limit=given.time,
            )  # fmt: skip
        except EinDecompError as error:
            print(f"| {name} | no plan: {error} |")
            continue
        alone, beside = (ed.simulate(plan, overlap=how).seconds for how in (0, 1))
        rows.append(Timed(name, plan.cost, alone, beside))
    return rows


def inverted(rows: list[Timed]) -> tuple[int, list[tuple[Timed, Timed]]]:
    """How many pairs are apart in simulation, and those in the other order, slower first."""
    ordered = [sorted(pair, key=lambda row: -row.simulated) for pair in combinations(rows, 2)]
    apart = [(slow, fast) for slow, fast in ordered if slow.simulated > APART * fast.simulated]
    return len(apart), [(slow, fast) for slow, fast in apart if slow.expected < fast.expected]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machine", default="gpu-server")
    parser.add_argument("--models", nargs="+", default=["7B", "2-70B"], choices=sorted(CONFIGS))
    parser.add_argument("--devices", nargs="+", type=int, default=[8, 32, 64])
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--time", type=float, default=10, help="seconds for each plan")
    parser.add_argument("--rounds", choices=ROUNDS, default="doubling")
    given = parser.parse_args()
    pairs, wrong, ratios = 0, 0, list[float]()
    for model in given.models:
        for batch in given.batch:
            graph = layer(model, batch)
            for devices in given.devices:
                rows = timed(graph, devices, given)
                print(f"\n{model}, b = {batch}, {devices} devices of {given.machine}\n")
                print("| plan | objective | simulated | ratio | simulated, beside computing |")
                print("| --- | ---: | ---: | ---: | ---: |")
                for row in rows:
                    ratios.append(row.expected / row.simulated)
                    seconds = [row.expected, row.simulated, row.beside]
                    first, second, third = (f"{1e3 * each:.3f} ms" for each in seconds)
                    print(f"| {row.name} | {first} | {second} | {ratios[-1]:.3f} | {third} |")
                apart, others = inverted(rows)
                pairs, wrong = pairs + apart, wrong + len(others)
                for slow, fast in others:
                    print(f"\nin the other order: {slow.name} and {fast.name}", flush=True)
    spread = f"{min(ratios):.3f} to {max(ratios):.3f} of the simulated seconds"
    print(f"\n{wrong} of {pairs} pairs in the other order; the objective expects {spread}")


if __name__ == "__main__":
    main()
