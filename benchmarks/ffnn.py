"""Training the paper's classifier against torch, with other optimisers, and a profile.

`--quick` is a sixteenth of the size.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from itertools import islice

from peers.of_experiments import ffnn_peers
from peers.race import beside

import eindecomp as ed
from eindecomp import models
from eindecomp.engines.result import Event, TaskFinished
from eindecomp.experiments import Record
from eindecomp.experiments.paper import FFNN_QUICK, FFNN_SHAPE, RATES, ffnn
from eindecomp.experiments.record import show
from eindecomp.kernels.cores import cores


def profile(shape: dict[str, int], optimizer: str) -> None:
    """Where our steps spend their time; the third reuses the memory of the first."""
    graph = models.ffnn(**shape, optimizer=optimizer)
    plan, state = ed.plan(graph, cores()), models.initial(graph)
    data = models.Synthetic(shape["batch"], shape["features"], shape["classes"])
    spent: dict[str, float] = defaultdict(float)

    def add(event: Event) -> None:
        if isinstance(event, TaskFinished):
            spent[event.vertex] += event.end - event.start

    known = {"lr": RATES[optimizer], "step": 1}
    scalars = {name: known[name] for name in graph.scalars}
    with ed.compile(plan) as executable:
        tensors = executable.place(state)
        for batch in islice(data.batches(), 3):
            spent.clear()
            result = executable({**batch, **scalars, **tensors}, donate=tensors, on_event=add)
            tensors = {name: result.tensor(new) for name, new in graph.ties.items()}
    slowest = sorted(spent.items(), key=lambda item: -item[1])[:9]
    print("ms a core:", ", ".join(f"{name} {1e3 * t / cores():.0f}" for name, t in slowest))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a sixteenth of the size")
    parser.add_argument("--optimizer", choices=RATES, action="append", help="sgd, if none is given")
    parser.add_argument("--steps", type=int, default=20)
    asked = parser.parse_args()
    shape = FFNN_QUICK if asked.quick else FFNN_SHAPE
    for optimizer in asked.optimizer or ["sgd"]:
        found = ffnn(
            shape=shape,
            optimizer=optimizer,
            steps=asked.steps,
            devices=(2,),
            race=beside(ffnn_peers),
        )
        print(show(Record.of("ffnn", asked.quick, 0.0, found)))
        profile(shape, optimizer)


if __name__ == "__main__":
    main()
