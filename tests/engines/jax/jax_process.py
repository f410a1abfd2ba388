"""One of several processes that run plans together, each with devices of its own."""

from __future__ import annotations

import sys

import jax
import numpy as np

import eindecomp as ed

TEXT = """
input X[i: {i}, j: 12], Y[j, k: 8]
Z[i,k] <- sum X[i,j] * Y[j,k]
M[k] <- max Z[i,k]
output Z, M
"""


def main(address: str, count: int, number: int) -> None:
    jax.config.update("jax_num_cpu_devices", 2)
    jax.distributed.initialize(address, count, number)
    for size in (8, 7):  # equal pieces, and unequal ones
        graph = ed.parse(TEXT.format(i=size))
        rng = np.random.default_rng(0)
        arrays = {v.name: rng.standard_normal(v.shape, np.float32) for v in graph.inputs}
        wanted = ed.evaluate(graph, arrays)
        placed = arrays
        for strategy in (["j"], ["i"]):
            plan = ed.plan(graph, 2 * count, strategy=strategy, rewrite=False)
            with ed.compile(plan, "jax") as executable:
                placed = executable.place(placed)  # the second time from other layouts
                found = executable(placed)
                for name, right in wanted.items():
                    np.testing.assert_allclose(found[name], right, rtol=1e-4, atol=1e-5)
                assert found.stats.bytes_moved == plan.cost > 0
    sys.stdout.write("agrees\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
