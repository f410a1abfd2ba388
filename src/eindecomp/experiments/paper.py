"""The paper's three experiments: a matrix chain, a classifier's training, and LLaMA.

Each times our plan beside the usual strategies, and prices their plans for many devices. `race`
takes the times; a benchmark gives another one, which adds peers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import cycle, islice

import numpy as np

from eindecomp.api.compile import compile as compile_plan
from eindecomp.engines.engine import Engine, ranks_of
from eindecomp.engines.executable import Executable
from eindecomp.errors import check_whole
from eindecomp.experiments.measure import (
    DEVICES,
    FEW,
    Contender,
    Lapse,
    Race,
    Way,
    apart,
    devices_for,
    price,
    race,
)
from eindecomp.experiments.record import OURS, Findings, LossCurve, Priced, Timed
from eindecomp.graph.graph import Graph
from eindecomp.lang.dtypes import Array
from eindecomp.models.fit import Loop
from eindecomp.models.initial import initial
from eindecomp.models.llama import CONFIGS, Config, Llama, prefill_graph
from eindecomp.models.llama.on_devices import bucket
from eindecomp.models.paper_graphs import Synthetic
from eindecomp.models.paper_graphs import chain as chain_graph
from eindecomp.models.paper_graphs import ffnn as ffnn_graph
from eindecomp.planner.make import plan as make_plan
from eindecomp.planner.space.strategy import GivenStrategy, applicable

Batch = Mapping[str, Array]
Say = Callable[[str], None]


# Experiment 1: the matrix chain (A·B) + (C·(D·E)), uniform and skewed

_ROWS = {"rows": ["i", "l"]}
"""A chain's data parallelism: every product is cut along the rows of its result."""
_MANY = 8


def chain(
    quick: bool = False,
    say: Say = lambda _: None,
    *,
    sizes: Sequence[int] | None = None,
    devices: Sequence[int] | None = None,
    engine: str | Engine = "threads",
    race: Race = race,
) -> Findings:
    """Time every size beside NumPy, and price plans of the largest; `quick` takes a small one."""
    chosen = sizes or ((500,) if quick else (1000, 2000, 4000))
    counts = devices or (FEW if quick else DEVICES)
    timed: list[Timed] = []
    priced: list[Priced] = []
    for skewed in (False, True):
        shape = "skewed" if skewed else "uniform"
        for s in chosen:
            say(f"{shape} {s}: measuring")
            timed += _time_chain(f"{shape} {s}", chain_graph(s, skewed), engine, race)
        case = f"{shape} {max(chosen)}"
        priced += price(case, chain_graph(max(chosen), skewed), devices=counts, more=_ROWS, say=say)
    return Findings(tuple(timed), tuple(priced))


def _time_chain(case: str, graph: Graph, engine: str | Engine, race: Race) -> list[Timed]:
    rng = np.random.default_rng(0)
    x = {v.name: rng.standard_normal(v.shape, np.float32) for v in graph.inputs}
    count, alone = devices_for(engine), ranks_of(engine).size == 1
    plans = {f"{OURS}, {count} devices": make_plan(graph, count, keep_on_interrupt=False)}
    if alone:
        plans[f"{OURS}, {_MANY} devices"] = make_plan(graph, _MANY, keep_on_interrupt=False)
    strategies: dict[str, GivenStrategy] = {**applicable(graph, count), **_ROWS}
    for name, strategy in strategies.items():
        plans[name] = make_plan(graph, count, strategy=strategy, keep_on_interrupt=False)
    with ExitStack() as stack:
        contenders: list[Contender] = []
        for name, plan in plans.items():
            executable = stack.enter_context(compile_plan(plan, engine))
            kind = "ours" if name.startswith(OURS) else "strategy"
            contenders.append(Contender(name, kind, partial(_run_chain, executable, x), plan))
        if alone:
            contenders.append(Contender("NumPy", "peer", partial(numpy_chain, x)))
        return race(case, contenders, 3, (x,))


def _run_chain(executable: Executable, x: Mapping[str, Array]) -> Array:
    return executable(x)["Z"]


def numpy_chain(x: Mapping[str, Array]) -> Array:
    """(A·B) + (C·(D·E)) in NumPy, with as many BLAS threads as it takes."""
    a, b, c, d, e = (x[name] for name in "ABCDE")
    return a @ b + c @ (d @ e)


# Experiment 2: training a large feed-forward classifier. All start from the same parameters and see
# the same few batches repeatedly, so that there is something to learn in few steps.

FFNN_SHAPE = {"batch": 128, "features": 32768, "hidden": 2048, "classes": 14588}
FFNN_QUICK = {"batch": 128, "features": 8192, "hidden": 512, "classes": 3647}
RATES = {"sgd": 2.0, "momentum": 0.5, "adam": 1e-3, "adamw": 1e-3}
_BATCHES = 4
_FEW_STEPS = 6
"""For strategies, which all compute the same."""

_MORE: dict[str, GivenStrategy] = {
    "megatron, classes cut": {"labels": {"c": ["c"], "*": ["h"]}, "state": "replicated"}
}
"""What Megatron does where the output is a vocabulary: hidden units are gathered, classes cut."""


def ffnn(
    quick: bool = False,
    say: Say = lambda _: None,
    *,
    shape: Mapping[str, int] | None = None,
    optimizer: str = "sgd",
    steps: int = 20,
    devices: Sequence[int] | None = None,
    engine: str | Engine = "threads",
    race: Race = race,
) -> Findings:
    """Time steps of training, compare the losses, and price plans.

    `quick` takes a sixteenth of the size.
    """
    check_whole(2, steps=steps)  # the first is not timed
    chosen = dict(shape or (FFNN_QUICK if quick else FFNN_SHAPE))
    graph = ffnn_graph(**chosen, optimizer=optimizer)
    case = f"{optimizer}, " + " × ".join(map(str, chosen.values()))
    say(f"{case}: training")
    training = Training(graph, optimizer, chosen, engine)
    with training.ours({OURS: None}) as ours:
        timed = race(case, ours, steps - 1, (training,))
    wanted = training.losses[OURS]
    say(f"{case}: training by strategies")
    again = Training(graph, optimizer, chosen, engine)
    named = applicable(graph, devices_for(engine), stateful=True)
    with again.ours({OURS: None, **named, **_MORE}) as strategies:
        timed += race(f"{case}, by strategy", strategies, min(steps, _FEW_STEPS) - 1, ())
    curves = curves_of({**again.losses, **training.losses}, wanted)
    counts = devices or (FEW if quick else DEVICES)
    priced = price(case, graph, devices=counts, more=_MORE, say=say)
    return Findings(tuple(timed), tuple(priced), tuple(curves))


def curves_of(losses: Mapping[str, list[float]], wanted: list[float]) -> list[LossCurve]:
    """Everybody's losses, and how far they are from the wanted ones."""
    return [LossCurve(who, tuple(own), max(map(apart, own, wanted))) for who, own in losses.items()]


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
            contenders: list[Contender] = []
            for name, strategy in strategies.items():
                plan = make_plan(
                    self.graph, self.devices, strategy=strategy, keep_on_interrupt=False
                )
                executable = stack.enter_context(compile_plan(plan, self.engine))
                self.executables[name] = executable
                loop = Loop(self.graph, executable, self.lr, "loss", self.state, [])
                way = self.noting(name, loop.take)
                contenders.append(Contender(name, "strategy" if contenders else "ours", way, plan))
            yield contenders

    def noting(self, name: str, step: Callable[[Batch], float | Lapse]) -> Way:
        """A step on the next batch, whose loss is noted."""
        losses = self.losses[name] = []
        batches = cycle(self.batches)

        def way() -> object:
            result = step(next(batches))
            losses.append(float(result.result if isinstance(result, Lapse) else result))  # pyright: ignore[reportArgumentType]
            return result

        return way


# Experiment 3: LLaMA, the bytes that prefill moves on many devices, and its time here

TINY = Config(
    vocabulary=1000, width=128, layers=2, heads=8, kv_heads=4, head_size=16, hidden=352, tied=True
)
_PROMPTS = (1, 2)  # one is the usual case; with two, data parallelism has something to divide
_SEQUENCE = 4096
_LAYERS = 1
"""Of 32 layers: they are all alike, and plans of more only take longer."""
_COUNTS = (8, 64)
"""A server and eight of them: plans of all numbers in between take an hour."""
MODELS = ("7B", "3-8B")
"""What is planned: one with a head of keys for each of queries, one where four share one."""
_HERE, _LEAST = f"{OURS}, one machine", f"{OURS}, fewest bytes"


def one_billion(layers: int = 4) -> Config:
    """The shape of LLaMA 3.2 1B, which has 16 layers, with a smaller vocabulary."""
    return replace(CONFIGS["3.2-1B"], vocabulary=32000, layers=layers, positions=16384)


def llama(
    quick: bool = False,
    say: Say = lambda _: None,
    *,
    devices: Sequence[int] | None = None,
    engine: str | Engine = "threads",
    race: Race = race,
) -> Findings:
    """Time a small model, and price plans of 7B; `quick` takes a tiny one, and prices one case."""
    small = TINY if quick else one_billion()
    timed: list[Timed] = []
    for batch in _PROMPTS:
        timed += measure_model(small, batch, 128, 3, say, engine=engine, race=race)
    priced: list[Priced] = []
    counts = devices or (FEW if quick else _COUNTS)
    cases = [(model, batch) for model in MODELS for batch in (8, 1)]
    for model, batch in cases[:1] if quick else cases:
        config = replace(CONFIGS[model], layers=_LAYERS)
        case = f"{model}, one layer, b = {batch}, s = {_SEQUENCE}"
        priced += price(case, prefill_graph(config, batch, _SEQUENCE), devices=counts, say=say)
    return Findings(tuple(timed), tuple(priced))


def measure_model(
    config: Config,
    batch: int,
    tokens: int,
    repeats: int,
    say: Say,
    *,
    strategies: bool = True,
    engine: str | Engine = "threads",
    race: Race = race,
) -> list[Timed]:
    """Read whole prompts, then one more token of each; the first plans as `Llama` does."""
    size = f"{config.parameters / 1e9:.2g} billion, b = {batch}"
    count = devices_for(engine)
    first = Llama.random(config, count, engine=engine)
    models = {_HERE: first}
    if strategies:
        named: dict[str, str | Sequence[str] | None] = {_LEAST: None}
        named |= applicable(prefill_graph(config, batch, tokens), count)
        for name, strategy in named.items():
            models[name] = Llama(config, first.weights, count, strategy, engine=engine)
    ids = np.random.default_rng(tokens).integers(0, config.vocabulary, (batch, tokens))
    with ExitStack() as stack:
        for model in models.values():
            stack.enter_context(model)
        say(f"{size}: reading {tokens} tokens")
        contenders = [_prefill(name, model, ids) for name, model in models.items()]
        case = f"{size}, prefill of {tokens}"
        rows = race(case, contenders, repeats, (first, ids, "prefill"))
        say(f"{size}: one more token after {tokens}")
        contenders = [_decode(name, model, ids) for name, model in models.items()]
        case = f"{size}, decode after {tokens}"
        return rows + race(case, contenders, 4 * repeats, (first, ids, "decode"))


def _prefill(name: str, model: Llama, ids: Array) -> Contender:
    def way() -> object:
        return model.prefill(ids, model.cache(*ids.shape))

    way()  # plans, for the length that it pads to
    return _contender(name, way, model, "prefill", ids.shape)


def _decode(name: str, model: Llama, ids: Array) -> Contender:
    batch, tokens = ids.shape
    cache = model.cache(batch, 2 * tokens)
    model.prefill(ids, cache)

    def way() -> object:
        return model.step(ids[:, 0], cache)

    way()  # from here on the cache has room, and all steps have one plan
    return _contender(name, way, model, "step", (batch, bucket(tokens + 1)))


def _contender(name: str, way: Way, model: Llama, kind: str, shape: tuple[int, int]) -> Contender:
    ours = name in (_HERE, _LEAST)
    return Contender(name, "ours" if ours else "strategy", way, model.plan(kind, *shape))


EXPERIMENTS = {"chain": chain, "ffnn": ffnn, "llama": llama}
