"""Every rank: an error that all ranks catch does not end what comes after it."""

from __future__ import annotations

import sys
from time import sleep

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.engines.spmd.job import connect

GRAPH = """
input T[n: 11, i: 6], index[r: 8] int64
X[r,i] <- T[index[r],i]
output X
"""


def main() -> None:
    graph, rank = ed.parse(GRAPH), connect().rank
    run = ed.compile(ed.plan(graph, connect().size, strategy=["r"]), engine="spmd")
    table = np.arange(66, dtype=np.float32).reshape(11, 6)
    good = run({"T": table, "index": np.arange(8)})
    for _ in range(2):
        with pytest.raises(ed.RunError, match="index 11 is outside 0 to 10"):
            run({"T": table, "index": np.full(8, 11)})
        if rank:
            sleep(1.5)  # for others to see what this rank told last
        assert np.array_equal(good["X"], table[:8])
        again = run({"T": table, "index": np.arange(1, 9)})
        assert np.array_equal(again["X"], table[1:9])
    if rank == 0:
        sys.stdout.write("all agree\n")


if __name__ == "__main__":
    main()
