"""Regions of equal keys compute the same, so that one compiled function does for all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from random_graphs import random_graph

import eindecomp as ed
from eindecomp.engines.torch.ready_region import ReadyRegions
from eindecomp.kernels.torch.library import TorchLibrary
from eindecomp.kernels.torch.tensors import torch_type
from eindecomp.tra.program.make import program_of
from eindecomp.tra.tiles.ops import OpKind, lookups_of, tiles_of
from eindecomp.tra.tiles.regions import regions_of
from strategies import graphs

SEEN = {}
"""One region of each key, of any graph."""


def codes_of(graph, devices, **asked):
    tiled = tiles_of(program_of(ed.plan(graph, devices, rewrite=False, **asked)))
    return ReadyRegions(tiled, regions_of(tiled), [TorchLibrary()], fuse=False).codes


def made_up(code):
    """Arrays for a region, the same for all of its key, with indices that are in range."""
    torch.manual_seed(0)
    most = 1 if lookups_of(code.tiled, code.region.ops) else 2
    tiles = [code.tiled.tiles[tile] for tile in code.region.reads]
    shapes = [(tile.shape, torch_type(dtype)) for tile in tiles for dtype in tile.types]
    arrays = [torch.randint(0, most, shape).to(dtype) for shape, dtype in shapes]
    scalars = [torch.tensor(1, dtype=torch_type(of)) for of in code.graph.scalars.values()]
    return arrays, scalars


def check(codes):
    for code in codes:
        first = SEEN.setdefault(code.key, code)
        if first is code:
            continue
        found, wanted = code(*made_up(code)), first(*made_up(first))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@settings(phases=[Phase.explicit, Phase.generate])  # what was seen depends on earlier cases
@given(
    graph=st.one_of(
        graphs(), st.integers(0, 2**32).map(lambda seed: random_graph(seed, tree=False, moves=True))
    ),
    devices=st.sampled_from([1, 2, 3, 4]),
)
def test_random_regions(graph, devices):
    check(codes_of(graph, devices))


ORDERED = """
input X[i: {i}, j: {j}] {dtype}
Z[{labels}] <- {agg} {right}
output Z
"""
LABELS = [("i", "X[i,j]"), ("i, k: 4", "X[i,j] + index(k)"), ("j", "X[i,j] + index(i)")]


@pytest.mark.parametrize("strategy", [["i"], ["j"]])
@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("agg", ["sum", "prod", "max"])
@pytest.mark.parametrize(("labels", "right"), LABELS)
def test_regions_that_differ_in_sizes(agg, labels, right, dtype, strategy):
    for i, j in ((4, 4), (4, 8), (8, 4), (8, 8)):
        text = ORDERED.format(i=i, j=j, dtype=dtype, labels=labels, agg=agg, right=right)
        check(codes_of(ed.parse(text), 2, strategy=strategy))


def test_parts_that_are_put_together_in_another_order():
    text = (
        "input A[i: 4, k: 4]\nX[i,k] <- exp(A[i,k])\nZ[i] <- sum X[k,i]\nW[i] <- Z[i] + 1\noutput W"
    )
    plan = ed.plan(ed.parse(text), 2, pin={"Z": {"i": 2}, "W": {}}, rewrite=False)
    tiled = tiles_of(program_of(plan))
    for turned in (False, True):
        ops = [
            replace(op, reads=op.reads[::-1]) if turned and op.kind is OpKind.ASSEMBLE else op
            for op in tiled.ops
        ]
        made = replace(tiled, ops=tuple(ops))
        assert any(op.kind is OpKind.ASSEMBLE for op in ops)
        check(ReadyRegions(made, regions_of(made), [TorchLibrary()], fuse=False).codes)
