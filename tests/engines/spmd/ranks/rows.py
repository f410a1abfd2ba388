"""Every rank: where only rows move, results and bytes are those of devices apart."""

from __future__ import annotations

import sys

import numpy as np
from test_lookups import LOOKUPS, SIZES, arrays, parse

import eindecomp as ed
from eindecomp.engines.spmd.job import connect
from eindecomp.tra.program.make import program_of


def main() -> None:
    ranks, rng, by_rows = connect().size, np.random.default_rng(0), 0
    for kind in LOOKUPS:
        for sizes in SIZES.values():
            graph = parse(kind, sizes)
            asked = {"inputs": "sharded", "lookups": "rows", "rewrite": False}
            plan = ed.plan_together(lambda g=graph, a=asked: ed.plan(g, ranks, **a))
            by_rows += len(program_of(plan).by_rows)
            given = arrays(graph, rng)
            apart = ed.run(plan, given, engine="apart")
            for overlap in (True, False):
                result = ed.run(plan, given, engine="spmd", overlap=overlap)
                assert result.stats.bytes_by_vertex == apart.stats.bytes_by_vertex
                for name in apart:
                    assert result[name].tobytes() == apart[name].tobytes()
    assert by_rows > len(LOOKUPS)
    if connect().rank == 0:
        sys.stdout.write("all agree\n")


if __name__ == "__main__":
    main()
