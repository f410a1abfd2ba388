"""Every rank: random plans give, bit by bit, what devices apart give, and move what was planned.

On a device kernels are torch's, which round otherwise: then all runs give the same bits, and
what devices apart give up to rounding.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext

import numpy as np
from agreement import agree, arrays_for, precise
from random_graphs import random_graph
from test_ops import OPS, SIZES, parse

import eindecomp as ed
from eindecomp.engines import resources
from eindecomp.engines.spmd import rank_row
from eindecomp.engines.spmd.job import connect
from eindecomp.models.paper_graphs import ffnn

DEVICE = sys.argv[3] if len(sys.argv) > 3 else None
ASKED = ({}, {"inputs": "sharded"}, {"strategy": "sqrt"}, {"rewrite": False})


def check(graph: ed.Graph, seed: int = 0) -> None:
    """Compare runs of one graph, planned in several ways."""
    ranks = connect().size
    # As if blocks were large, whose memory is used again.
    rank_row.LARGE = resources.LARGE = (0, 1 << 20)[seed // 2 % 2]
    arrays = arrays_for(graph, seed)
    asked = ASKED[seed % len(ASKED)]
    plan = ed.plan_together(lambda: ed.plan(graph, ranks, **asked))
    apart = expected = ed.run(plan, arrays, engine="apart")
    for overlap in (True, False):
        found = ed.run(plan, arrays, engine="spmd", overlap=overlap, device=DEVICE)
        if DEVICE is not None and overlap:
            agree(found, apart, 1e-6)
            expected = found
        assert found.stats.bytes_moved == plan.cost, (seed, found.stats.bytes_moved, plan.cost)
        assert found.stats.bytes_by_vertex == apart.stats.bytes_by_vertex
        for name in expected:
            left, right = found[name], expected[name]
            assert (left.shape, left.dtype) == (right.shape, right.dtype)
            assert left.tobytes() == right.tobytes() or np.array_equal(left, right, equal_nan=True)


def main() -> None:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    with nullcontext() if DEVICE is None else precise():
        for seed in range(first, first + count):
            check(random_graph(seed, tree=False), seed)
    check(ffnn(8, 96, 48, 60, optimizer="sgd"))
    if first == 0:
        for k, op in [*enumerate(OPS)][:: 1 if count > 2 else 5]:
            check(parse(op, SIZES[[*SIZES][k % len(SIZES)]]), k)
        for k, dtype in enumerate(("int8", "float16", "bfloat16", "float64", "complex64", "bool")):
            agg = "any" if dtype == "bool" else "sum"
            join = "and" if dtype == "bool" else "*"
            text = (
                f"input X[i: 6, j: 10] {dtype}, Y[j, k: 5] {dtype}\n"
                f"Z[i,k] <- {agg} X[i,j] {join} Y[j,k]\nW[i] <- {agg} Z[i,k]\noutput W, Z"
            )
            if dtype != "bool":
                check(ed.parse(text), k)
    if connect().rank == 0:
        sys.stdout.write("all agree\n")


if __name__ == "__main__":
    main()
