"""The paper's matrix chain on ranks, by hand-written panels, by ScaLAPACK and by threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
from on_ranks.jobs import Record, ranks_of, timed
from on_ranks.scalapack import fastest
from peers.race import Absent

import eindecomp as ed
from eindecomp.models.paper_graphs import chain as chain_graph

Array = np.ndarray[Any, Any]

CHAINS = {"uniform, 2000": (2000, False), "uniform, 4000": (4000, False),
          "skewed, 2000": (2000, True), "skewed, 4000": (4000, True)}  # fmt: skip


def numbers(graph: ed.Graph) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {v.name: rng.standard_normal(v.shape, np.float32) for v in graph.inputs}


def chain_inside(quick: bool) -> Iterator[Record]:
    transport, ready = ranks_of("auto")
    for case, (size, skewed) in islice(CHAINS.items(), 0, None, 2 if quick else 1):
        graph = chain_graph(size, skewed)
        given = numbers(graph)
        plan = ed.plan_together(lambda graph=graph: ed.plan(graph, transport.size))
        run = ed.compile(plan, engine="spmd")
        held = run.place(given)
        panels = panels_of(given, transport.rank, transport.size)
        ways = {"ours": lambda run=run, held=held: run(held), "panels": panels}
        more, note = scalapack_beside(transport, ready, given, run(held)["Z"])
        yield {"case": case, "note": note, **timed(ways | more, ready, 5)}


def scalapack_beside(
    transport: Any, ready: Callable[[], object], x: dict[str, Array], wanted: Array
) -> tuple[dict[str, Callable[[], object]], str]:
    """ScaLAPACK at its fastest, and how it is set up; or nothing, and why."""
    try:
        found = fastest(transport, ready, x)
    except Absent as reason:
        return {}, str(reason)
    another = "" if found.agrees(transport, wanted) else ", ANOTHER RESULT"
    return {"ScaLAPACK": found.compute}, f"{found}{another}"


def panels_of(x: dict[str, Array], rank: int, ranks: int) -> Callable[[], Array]:
    """(A·B) + (C·(D·E)) for a rank's columns of B and E: nothing moves."""
    a, b, c, d, e = x.values()
    low, high = rank * b.shape[1] // ranks, (rank + 1) * b.shape[1] // ranks
    b, e = (np.ascontiguousarray(each[:, low:high]) for each in (b, e))
    from threadpoolctl import threadpool_limits

    def compute() -> Array:
        with threadpool_limits(1):
            return a @ b + c @ (d @ e)

    return compute


def chain_alone(quick: bool) -> Iterator[Record]:
    for case, (size, skewed) in islice(CHAINS.items(), 0, None, 2 if quick else 1):
        graph = chain_graph(size, skewed)
        run = ed.compile(ed.plan(graph, 2))
        held = run.place(numbers(graph))
        yield {"case": case, **timed({"threads": lambda run=run, held=held: run(held)}, int, 5)}
