"""LLaMA against transformers: with all 16 layers of 3.2 1B and longer prompts.

At most 1.15 times the seconds of transformers is the bar. `--quick` takes 4 layers.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from functools import partial

import numpy as np
from peers.of_experiments import llama_peers
from peers.race import beside

import eindecomp as ed
from eindecomp.engines.result import Event, KernelCompiled, TaskFinished
from eindecomp.experiments import Findings, Record
from eindecomp.experiments.paper import measure_model, one_billion
from eindecomp.experiments.record import show
from eindecomp.kernels.cores import cores
from eindecomp.models.llama import Config, Llama


def count(spent: dict[str, float], event: Event) -> None:
    """Add an event's seconds to those of its kind of vertex."""
    if isinstance(event, TaskFinished):
        spent[event.vertex.rstrip("0123456789") + f" {event.kind}"] += event.end - event.start
    elif isinstance(event, KernelCompiled):
        spent["compiling"] += event.end - event.start


def profile(config: Config, kind: str, tokens: int) -> None:
    """Where the time of one run goes, by kind of vertex, in seconds of all threads together."""
    spent: dict[str, float] = defaultdict(float)
    model = Llama.random(config, cores())
    plan = model.plan(kind, 1, tokens)
    rng = np.random.default_rng(0)
    inputs: dict[str, object] = dict(model.weights)
    for vertex in plan.graph.inputs:
        if vertex.name not in inputs:
            integer = vertex.dtype.kind == "i"
            inputs[vertex.name] = (
                np.full(vertex.shape, tokens - 1 if vertex.name != "ids" else 1, vertex.dtype)
                if integer
                else rng.standard_normal(vertex.shape, np.float32)
            )
    inputs |= dict.fromkeys(plan.graph.scalars, 0)
    with ed.compile(plan) as executable:
        executable(inputs)
        result = executable(inputs, on_event=partial(count, spent))
    print(f"{kind} of {tokens}: {result.stats.seconds:.3f} s, {result.stats.tasks} tasks")
    for name, total in sorted(spent.items(), key=lambda item: -item[1]):
        print(f"    {name:20} {total:8.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="4 layers")
    parser.add_argument("--profile", action="store_true", help="also show where our time goes")
    asked = parser.parse_args()
    config = one_billion(4 if asked.quick else 16)
    for tokens in (128, 512):
        race = beside(llama_peers)
        timed = measure_model(config, 1, tokens, 4, print, strategies=False, race=race)
        print(show(Record.of("llama", asked.quick, 0.0, Findings(tuple(timed), ()))), flush=True)
    if asked.profile:
        profile(config, "prefill", 128)
        profile(config, "step", 256)


if __name__ == "__main__":
    main()
