"""Experiment 3: LLaMA, the bytes that prefill moves on many devices, and its time here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.engines.engine import Engine
from eindecomp.experiments.measure import (
    FEW,
    OURS,
    Contender,
    devices_for,
    peers_beside,
    price,
    race,
)
from eindecomp.experiments.record import Findings, Priced, Timed
from eindecomp.lang.dtypes import Array
from eindecomp.models.llama import CONFIGS, Config, Llama, prefill_graph
from eindecomp.models.llama.on_devices import bucket
from eindecomp.planner.space.strategy import applicable

if TYPE_CHECKING:
    from eindecomp.experiments.measure import Peer

    Peers = Callable[[Llama, Array, str], Mapping[str, Peer]]
    """The peers of a model on given prompts, for "prefill" or for "decode"."""
    Strategy = str | Sequence[str] | None

TINY = Config(
    vocabulary=1000, width=128, layers=2, heads=8, kv_heads=4, head_size=16, hidden=352, tied=True
)
_BATCHES = (1, 2)  # one is the usual case; with two, data parallelism has something to divide
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
    say: Callable[[str], None] = lambda _: None,
    *,
    devices: Sequence[int] | None = None,
    engine: str | Engine = "threads",
    peers: Peers = lambda _model, _ids, _kind: {},
) -> Findings:
    """Time a small model against peers, and price plans of 7B.

    `quick` takes a tiny one, and prices one case.
    """
    small = TINY if quick else one_billion()
    timed: list[Timed] = []
    for batch in _BATCHES:
        timed += measure_model(small, batch, 128, 3, say, engine=engine, peers=peers)
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
    say: Callable[[str], None],
    *,
    strategies: bool = True,
    engine: str | Engine = "threads",
    peers: Peers = lambda _model, _ids, _kind: {},
) -> list[Timed]:
    """Read whole prompts, then one more token of each; the first plans as `Llama` does."""
    size = f"{config.parameters / 1e9:.2g} billion, b = {batch}"
    count = devices_for(engine)
    first = Llama.random(config, count, engine=engine)
    models = {_HERE: first}
    if strategies:
        named: dict[str, Strategy] = {_LEAST: None}
        named |= applicable(prefill_graph(config, batch, tokens), count)
        for name, strategy in named.items():
            models[name] = Llama(config, first.weights, count, strategy, engine=engine)
    ids = np.random.default_rng(tokens).integers(0, config.vocabulary, (batch, tokens))
    with ExitStack() as stack:
        for model in models.values():
            stack.enter_context(model)
        say(f"{size}: reading {tokens} tokens")
        rows = race(
            f"{size}, prefill of {tokens}",
            [_prefill(name, model, ids) for name, model in models.items()],
            peers_beside(engine, peers(first, ids, "prefill")),
            repeats,
        )
        say(f"{size}: one more token after {tokens}")
        return rows + race(
            f"{size}, decode after {tokens}",
            [_decode(name, model, ids) for name, model in models.items()],
            peers_beside(engine, peers(first, ids, "decode")),
            4 * repeats,
        )


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


def _contender(
    name: str, way: Callable[[], object], model: Llama, kind: str, shape: tuple[int, int]
) -> Contender:
    ours = name in (_HERE, _LEAST)
    return Contender(name, "ours" if ours else "strategy", way, model.plan(kind, *shape))
