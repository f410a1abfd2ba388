"""Simulated LLaMA on 1,024 devices: EinDecomp against Megatron, Ulysses and ZeRO, as Markdown.

All plans are made by the same planner, for the same servers of 8 devices and under the same
objective; a strategy restricts which labels are cut. Plans are kept in the folder of --plans and
read from there the next time, since making them takes most of the time.

How far the simulator's times are from measured ones is what `predicted_times.py` prints.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any

from train_llama import training

import eindecomp as ed
from eindecomp.errors import EinDecompError
from eindecomp.models.llama import CONFIGS, prefill_graph
from eindecomp.tra.simulation.network import WAYS

SERVER = 8
HEADS = {"t": ["h", "g"], "*": ["s"]}
SEQUENCE = {"prefill": 4096, "train": 2048}
MESH = "node=16,switch=8,gpu=8"


def cluster(axes: Mapping[str, int]) -> ed.Machine:
    """Servers (H100-like, bfloat16): a device has 400 GB/s along gpu axes and 50 GB/s elsewhere."""
    inside = {name: name.startswith("gpu") for name in axes}
    return ed.Machine(
        flops=600e12,
        memory_bandwidth=3.3e12,
        bandwidth={name: 400e9 if near else 50e9 for name, near in inside.items()},
        latency={name: 3e-6 if near else 10e-6 for name, near in inside.items()},
        mesh=axes,
    )


@dataclass(frozen=True)
class Way:
    """A way to plan: a strategy, or none, and where the weights lie."""

    strategy: Any = None
    inputs: str = "sharded"


@dataclass(frozen=True)
class Case:
    """A graph to plan, and the ways that are compared, ours first."""

    name: str
    graph: ed.Graph
    ways: Mapping[str, Way]


def prefill(layers: int | None, batch: int, devices: int) -> Case:
    """LLaMA-65B reads prompts; weights lie where they are read, or once over all devices."""
    config = replace(CONFIGS["65B"], dtype="bfloat16")
    config = config if layers is None else replace(config, layers=layers)
    degrees = {"b": devices // SERVER}
    ways = {
        "EinDecomp": Way(inputs="free"),
        "EinDecomp, weights sharded": Way(),
        "Megatron": Way({"labels": ["h", "f", "v"], "degrees": degrees}, "free"),
        "Ulysses, weights sharded": Way({"labels": HEADS, "degrees": degrees}),
        "ZeRO": Way({"labels": ["b", "s"]}),
    }
    sequence = SEQUENCE["prefill"]
    name = f"65B prefill, {config.layers} layers, b = {batch}, s = {sequence}"
    return Case(name, ed.rewrite(prefill_graph(config, batch, sequence)), ways)


def train(layers: int | None, batch: int, devices: int) -> Case:
    """A step of LLaMA-7B with AdamW; what it updates is tied."""
    sequence = SEQUENCE["train"]
    graph = training(32 if layers is None else layers, batch, sequence)
    degrees = {"b": devices // SERVER}
    tensor = {"labels": ["h", "f", "v"], "degrees": degrees}
    ways = {
        "EinDecomp": Way(),
        "Megatron": Way(tensor | {"state": "replicated"}),
        "Megatron + ZeRO": Way(tensor | {"state": "gathered"}),
        "Ulysses + ZeRO": Way({"labels": HEADS, "degrees": degrees, "state": "gathered"}),
        "ZeRO": Way({"labels": ["b"], "state": "gathered"}),
    }
    name = f"7B training, {layers or 32} layers, b = {batch}, s = {sequence}"
    return Case(name, ed.rewrite(graph), ways)


def planned(case: Case, name: str, given: argparse.Namespace) -> ed.Plan:
    """The plan of a case, from the folder of plans if it is there."""
    mesh = " ".join(f"{axis} {size}" for axis, size in given.mesh.items())
    words = f"{case.name} {mesh} {given.objective} {given.memory} {name}"
    file = "".join(c if c.isalnum() else "-" for c in words) + ".json"
    path = None if given.plans is None else given.plans / file
    if path is not None and path.exists():
        return ed.Plan.load(path)
    machine = cluster(given.mesh)
    plan = ed.plan(
        case.graph,
        mesh=machine.mesh,
        machine=machine,
        objective=given.objective,
        inputs=case.ways[name].inputs,
        strategy=case.ways[name].strategy,
        memory=given.memory or None,
        rewrite=False,
        time_limit=given.time,
    )
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        plan.save(path)
    return plan


def table(case: Case, given: argparse.Namespace) -> None:
    """A row for each plan: simulated seconds, and what the planner thinks of it (cost and gap)."""
    print(f"\n{case.name}, {given.devices} devices, planned for {given.objective}\n")
    print("| plan | simulated | × ours | computing | waiting | TB moved | cost | gap | took |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    ours = 0.0
    for name in case.ways:
        start = perf_counter()
        try:
            plan = planned(case, name, given)
            ready = perf_counter()
            run = ed.simulate(plan, cluster(given.mesh), gather=given.gather, reduce=given.reduce)
        except EinDecompError as error:
            print(f"| {name} | no plan: {error} |", flush=True)
            continue
        took = f"{ready - start:.0f} + {perf_counter() - ready:.0f} s"
        ours = ours or run.seconds
        shares = [f"{100 * float(own.mean()) / run.seconds:.0f} %"
                  for own in (run.computing, run.exposed)]  # fmt: skip
        cells = [f"{run.seconds:.4g} s", f"{run.seconds / ours:.2f}", *shares]
        cost = f"{plan.cost:.4g} {'s' if given.objective == 'time' else 'B'}"
        cells += [f"{run.bytes_moved / 1e12:.3g}", cost, f"{100 * plan.gap:.1f} %", took]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def axes_of(text: str) -> dict[str, int]:
    """The axes of a mesh."""
    pairs = (axis.partition("=") for axis in text.split(","))
    return {name: int(size) for name, _, size in pairs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mesh", type=axes_of, default="node=128,gpu=8", metavar=MESH,
                        help="axes, outermost first; more and smaller ones leave more to choose, "
                        "and take longer to plan")  # fmt: skip
    parser.add_argument("--layers", type=int, help="fewer than the models have, to be quicker")
    parser.add_argument("--cases", nargs="+", choices=["prefill", "train"],
                        default=["prefill", "train"])  # fmt: skip
    parser.add_argument("--batch", type=int, help="sequences; by default 128, and 1024 to train")
    parser.add_argument("--objective", choices=["bytes", "time"], default="time")
    parser.add_argument("--time", type=float, default=240, help="seconds for each plan")
    parser.add_argument("--memory", default="80GB", help="of a device; empty for no limit")
    parser.add_argument("--plans", type=Path, help="a folder to keep plans in")
    parser.add_argument("--gather", choices=WAYS, default="doubling")
    parser.add_argument("--reduce", choices=WAYS, default="doubling")
    given = parser.parse_args()
    given.devices = prod(given.mesh.values())
    if "prefill" in given.cases:
        table(prefill(given.layers, given.batch or given.devices // SERVER, given.devices), given)
    if "train" in given.cases:
        table(train(given.layers, given.batch or given.devices, given.devices), given)


if __name__ == "__main__":
    main()
