"""Every rank: what waits gives, bit by bit, what it gives on devices apart, and moves as much."""

from __future__ import annotations

import sys

from agreement import arrays_for

import eindecomp as ed
from eindecomp.engines.spmd.job import connect
from pending_plans import CASES
from random_waits import linear_graph, random_waits


def main() -> None:
    ranks = connect()
    mesh = {"a": 2, "b": ranks.size // 2}
    plans = {case: make(mesh) for case, make in CASES.items()}
    plans |= {str(seed): random_waits(linear_graph(seed), seed, [mesh]) for seed in range(10)}
    for case, plan in plans.items():
        arrays = arrays_for(plan.graph)
        apart = ed.run(plan, arrays, engine="apart")
        for overlap in (True, False):
            found = ed.run(plan, arrays, engine="spmd", overlap=overlap)
            assert found.stats.bytes_by_vertex == apart.stats.bytes_by_vertex, case
            for name in apart:
                assert found[name].tobytes() == apart[name].tobytes(), case
    if ranks.rank == 0:
        sys.stdout.write("all agree\n")


if __name__ == "__main__":
    main()
