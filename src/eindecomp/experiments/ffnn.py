"""Experiment 2: training a large feed-forward classifier.

All start from the same parameters and see the same few batches repeatedly, so that there is
something to learn in few steps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from typing import TYPE_CHECKING

from eindecomp.api.compile import compile as compile_plan
from eindecomp.engines.engine import Engine
from eindecomp.engines.executable import Executable
from eindecomp.errors import check_whole
from eindecomp.experiments.measure import (
    DEVICES,
    FEW,
    OURS,
    Contender,
    Lapse,
    apart,
    devices_for,
    peers_beside,
    price,
    race,
)
from eindecomp.experiments.record import Findings, LossCurve
from eindecomp.graph.graph import Graph
from eindecomp.lang.dtypes import Array
from eindecomp.models.fit import Loop
from eindecomp.models.initial import initial
from eindecomp.models.optimizers import carried
from eindecomp.models.paper_graphs import Synthetic
from eindecomp.models.paper_graphs import ffnn as ffnn_graph
from eindecomp.planner.make import plan as make_plan
from eindecomp.planner.space.strategy import GivenStrategy, applicable

if TYPE_CHECKING:
    from eindecomp.experiments.measure import Peer, Way

    Batch = Mapping[str, Array]

SHAPE = {"batch": 128, "features": 32768, "hidden": 2048, "classes": 14588}
QUICK = {"batch": 128, "features": 8192, "hidden": 512, "classes": 3647}
RATES = {"sgd": 2.0, "momentum": 0.5, "adam": 1e-3, "adamw": 1e-3}
_BATCHES = 4
_FEW_STEPS = 6
"""For strategies, which all compute the same."""

_MORE: dict[str, GivenStrategy] = {
    "megatron, classes cut": {"labels": {"c": ["c"], "*": ["h"]}, "state": "replicated"},
}
"""What Megatron does where the output is a vocabulary: hidden units are gathered, classes cut."""


def ffnn(
    quick: bool = False,
    say: Callable[[str], None] = lambda _: None,
    *,
    shape: Mapping[str, int] | None = None,
    optimizer: str = "sgd",
    steps: int = 20,
    devices: Sequence[int] | None = None,
    engine: str | Engine = "threads",
    peers: Callable[[Training], Mapping[str, Peer]] = lambda _: {},
) -> Findings:
    """Time steps of training against peers, compare the losses, and price plans.

    `quick` takes a sixteenth of the size.
    """
    check_whole(2, steps=steps)  # the first is not timed
    chosen = dict(shape or (QUICK if quick else SHAPE))
    graph = ffnn_graph(**chosen, optimizer=optimizer)
    case = f"{optimizer}, " + " × ".join(map(str, chosen.values()))
    say(f"{case}: training")
    training = Training(graph, optimizer, chosen, engine)
    with training.ours({OURS: None}) as ours:
        timed = race(case, ours, peers_beside(engine, peers(training)), steps - 1)
    wanted = training.losses[OURS]
    say(f"{case}: training by strategies")
    again = Training(graph, optimizer, chosen, engine)
    named = applicable(graph, devices_for(engine), stateful=True)
    with again.ours({OURS: None, **named, **_MORE}) as strategies:
        timed += race(f"{case}, by strategy", strategies, {}, min(steps, _FEW_STEPS) - 1)
    curves = curves_of({**again.losses, **training.losses}, wanted)
    counts = devices or (FEW if quick else DEVICES)
    own = carried(graph)
    priced = price(case, graph, devices=counts, more=_MORE, tie=own, say=say)
    return Findings(tuple(timed), tuple(priced), tuple(curves))


def curves_of(losses: Mapping[str, list[float]], wanted: list[float]) -> list[LossCurve]:
    """Everybody's losses, and how far they are from those that are wanted."""
    return [
        LossCurve(name, tuple(own), max(map(apart, own, wanted))) for name, own in losses.items()
    ]


class Training:
    """Everybody's training on the same batches, and the losses that they had."""

    def __init__(
        self,
        graph: Graph,
        optimizer: str,
        shape: Mapping[str, int],
        engine: str | Engine,
        devices: int | None = None,
    ) -> None:
        self.graph, self.optimizer, self.lr = graph, optimizer, RATES[optimizer]
        self.engine, self.devices = engine, devices or devices_for(engine)
        data = Synthetic(shape["batch"], shape["features"], shape["classes"])
        self.batches = list(islice(data.batches(), _BATCHES))
        self.state = initial(graph)
        self.losses: dict[str, list[float]] = {}
        self.executables: dict[str, Executable] = {}

    @contextmanager
    def ours(self, strategies: Mapping[str, GivenStrategy | None]) -> Generator[list[Contender]]:
        """Our plans under strategies, each as a step of training; the first is ours."""
        with ExitStack() as stack:
            found: list[Contender] = []
            for name, strategy in strategies.items():
                own = carried(self.graph)
                plan = make_plan(self.graph, self.devices, strategy=strategy, tie=own)
                executable = stack.enter_context(compile_plan(plan, self.engine))
                self.executables[name] = executable
                loop = Loop(self.graph, executable, own, self.lr, "loss", self.state, [])
                way = self.noting(name, loop.take)
                found.append(Contender(name, "strategy" if found else "ours", way, plan))
            yield found

    def noting(self, name: str, step: Callable[[Batch], float | Lapse]) -> Way:
        """A step on the next batch, whose loss is noted."""
        losses = self.losses[name] = []
        batches = cycle(self.batches)

        def way() -> object:
            result = step(next(batches))
            losses.append(float(result.result if isinstance(result, Lapse) else result))  # pyright: ignore[reportArgumentType]
            return result

        return way
