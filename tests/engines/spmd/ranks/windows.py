"""Every rank: what is read at computed places is as between devices apart, bit by bit."""

from __future__ import annotations

import sys

import numpy as np
from agreement import arrays_for
from test_engine_windows import KINDS

import eindecomp as ed
from eindecomp.engines.spmd.job import connect
from window_cases import random_case


def check(graph: ed.Graph, seed: int) -> None:
    """Compare runs of one graph."""
    arrays, inputs = arrays_for(graph, seed), ("free", "sharded")[seed % 2]
    plan = ed.plan_together(lambda: ed.plan(graph, connect().size, inputs=inputs))
    apart = ed.run(plan, arrays, engine="apart")
    for overlap in (True, False):
        found = ed.run(plan, arrays, engine="spmd", overlap=overlap)
        assert found.stats.bytes_moved == plan.cost, (seed, found.stats.bytes_moved, plan.cost)
        for name in apart:
            assert np.array_equal(found[name], apart[name], equal_nan=True), (seed, name)


def main() -> None:
    for seed, text in enumerate(KINDS.values()):
        check(ed.parse(f"{text}\noutput Z"), seed)
    for seed in range(12):
        check(random_case(seed).graph, seed)
    if connect().rank == 0:
        sys.stdout.write("all agree\n")


if __name__ == "__main__":
    main()
