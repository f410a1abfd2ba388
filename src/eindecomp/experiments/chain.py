"""Experiment 1: the matrix chain (A·B) + (C·(D·E)), uniform and skewed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.api.compile import compile as compile_plan
from eindecomp.engines.engine import Engine
from eindecomp.engines.executable import Executable
from eindecomp.experiments.measure import (
    DEVICES,
    FEW,
    OURS,
    Contender,
    devices_for,
    peers_beside,
    price,
    race,
    ranks_of,
)
from eindecomp.experiments.record import Findings, Priced, Timed
from eindecomp.graph.graph import Graph
from eindecomp.lang.dtypes import Array
from eindecomp.models.paper_graphs import chain as chain_graph
from eindecomp.planner.make import plan as make_plan
from eindecomp.planner.space.strategy import GivenStrategy, applicable

if TYPE_CHECKING:
    from eindecomp.experiments.measure import Peer, Way

    Peers = Callable[[Mapping[str, Array]], Mapping[str, Peer]]

_ROWS = {"rows": ["i", "l"]}
"""A chain's data parallelism: every product is cut along the rows of its result."""
_MANY = 8
_LONG = 2000
"""Larger chains are not warmed up: a call takes many seconds, and smaller ones ran before."""


@contextmanager
def numpy_chain(x: Mapping[str, Array]) -> Generator[Way]:
    """(A·B) + (C·(D·E)) in NumPy, with as many BLAS threads as it takes."""
    a, b, c, d, e = (x[name] for name in "ABCDE")
    yield lambda: a @ b + c @ (d @ e)


def chain(
    quick: bool = False,
    say: Callable[[str], None] = lambda _: None,
    *,
    sizes: Sequence[int] | None = None,
    devices: Sequence[int] | None = None,
    engine: str | Engine = "threads",
    peers: Peers = lambda x: {"NumPy": partial(numpy_chain, x)},
) -> Findings:
    """Time every size against peers, and price plans of the largest; `quick` takes a small one."""
    chosen = sizes or ((500,) if quick else (1000, 2000, 4000))
    counts = devices or (FEW if quick else DEVICES)
    timed: list[Timed] = []
    priced: list[Priced] = []
    for skewed in (False, True):
        shape = "skewed" if skewed else "uniform"
        for s in chosen:
            say(f"{shape} {s}: measuring")
            timed += _measure(f"{shape} {s}", chain_graph(s, skewed), s, engine, peers)
        case = f"{shape} {max(chosen)}"
        graph = chain_graph(max(chosen), skewed)
        priced += price(case, graph, devices=counts, more=_ROWS, say=say)
    return Findings(tuple(timed), tuple(priced))


def _measure(
    case: str,
    graph: Graph,
    s: int,
    engine: str | Engine,
    peers: Peers,
) -> list[Timed]:
    rng = np.random.default_rng(0)
    x = {v.name: rng.standard_normal(v.shape, np.float32) for v in graph.inputs}
    count = devices_for(engine)
    plans = {f"{OURS}, {count} devices": make_plan(graph, count)}
    if ranks_of(engine) is None:
        plans[f"{OURS}, {_MANY} devices"] = make_plan(graph, _MANY)
    strategies: dict[str, GivenStrategy] = {**applicable(graph, count), **_ROWS}
    for name, strategy in strategies.items():
        plans[name] = make_plan(graph, count, strategy=strategy)
    with ExitStack() as stack:
        ours: list[Contender] = []
        for name, plan in plans.items():
            executable = stack.enter_context(compile_plan(plan, engine))
            kind = "ours" if name.startswith(OURS) else "strategy"
            way = partial(_compute, executable, x)
            ours.append(Contender(name, kind, way, plan))
        return race(case, ours, peers_beside(engine, peers(x)), 3, warm_up=s <= _LONG)


def _compute(executable: Executable, x: Mapping[str, Array]) -> Array:
    return executable(x)["Z"]
