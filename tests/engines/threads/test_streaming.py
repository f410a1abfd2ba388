"""Data larger than the machine's memory runs through it tile by tile."""

from __future__ import annotations

import resource
import weakref

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.engines.resources import available


class Endless:
    """An array of ones that exists only where it is read."""

    dtype = np.dtype("float32")

    def __init__(self, *shape):
        self.shape = shape
        self.chunks = tuple(min(size, 4096) for size in shape)
        self.largest = self.held = self.most = 0

    def __getitem__(self, where):
        shape = [len(range(*k.indices(n))) for k, n in zip(where, self.shape, strict=True)]
        tile = np.ones(shape, self.dtype)
        self.largest = max(self.largest, tile.nbytes)
        self.held += 1
        self.most = max(self.most, self.held)
        weakref.finalize(tile, self.drop)
        return tile

    def drop(self):
        self.held -= 1


def test_only_tiles_at_work_are_read():
    graph = ed.parse("input X[i: 512, j: 64]\nZ[i] <- sum X[i,j] * X[i,j]\noutput Z")
    given = Endless(512, 64)
    found = ed.run(ed.plan(graph, 64), {"X": given})
    assert (found["Z"] == 64).all()
    assert given.most <= 3 * found.stats.workers


@pytest.mark.long
def test_data_larger_than_memory_streams_through():
    rows = 2 ** int(np.log2(1.5 * (available() or 2**34) / (4 * 2**14)) + 1)
    graph = ed.parse(
        f"input X[i: {rows}, j: {2**14}], W[j, k: 1]\nZ[i,k] <- sum X[i,j] * W[j,k]\noutput Z"
    )
    given = Endless(rows, 2**14)
    plan = ed.plan(graph, 2**11, strategy=["i"])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = ed.run(plan, {"X": given, "W": np.full((2**14, 1), 0.5, np.float32)})
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert 4 * rows * 2**14 > (available() or 0)
    assert (found["Z"] == 2**13).all()
    assert grown * 1024 < 16 * given.largest + 2**28
