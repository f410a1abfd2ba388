"""The strategy of small tiles: what a kernel reads and writes stays within some bytes."""

from __future__ import annotations

from math import prod

import pytest
from brute_bound import viable
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import random_graph

import eindecomp as ed
from eindecomp.errors import PlanError
from eindecomp.graph.ops import Fill
from eindecomp.layout.view import planned_views
from eindecomp.planner.space.strategy import strategy_words

MATMUL = "input X[i: 64, j: 64], Y[j, k: 64]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"


def taken(graph, name, view, parts):
    """The bytes of the largest tiles that the kernel of a vertex reads and writes."""

    def tile(dims):
        sides = (
            d.stop - d.start if d.label is None
            else -(-(d.stop - d.start) // d.scale // parts.get(d.label, 1)) * d.scale
            for d in dims
        )  # fmt: skip
        return prod(sides)

    vertex = graph[name]
    total = vertex.dtype.itemsize * tile(view.output)
    for source, dims in zip(vertex.inputs, view.reads, strict=True):
        if dims is not None and not isinstance(graph[source].op, Fill):
            total += graph[source].dtype.itemsize * tile(dims)
    return total


@given(
    seed=st.integers(0, 2**32),
    devices=st.sampled_from([2, 4, 6, 8]),
    tiles=st.sampled_from([0, 50, 200, 1000, 10**6]),
)
def test_tiles_are_small_where_they_can_be(seed, devices, tiles):
    graph = random_graph(seed, tree=False)
    found = ed.plan(
        graph, devices, strategy={"tiles": tiles}, rewrite=False, pending=False, time_limit=5
    )
    for name, view in planned_views(found.graph):
        sizes = dict(zip(view.labels, view.sizes, strict=True))
        least = min(taken(found.graph, name, view, parts) for parts in viable(sizes, devices))
        assert taken(found.graph, name, view, found.parts[name]) <= max(tiles, least)


def test_what_is_asked_for_is_said_and_kept(tmp_path):
    graph = ed.parse(MATMUL)
    free, small = ed.plan(graph, 8), ed.plan(graph, 8, strategy={"tiles": 12288})
    assert small.parts["Z"] == {"i": 2, "j": 2, "k": 2}
    assert small.cost >= free.cost
    small.save(tmp_path / "plan.json")
    assert ed.Plan.load(tmp_path / "plan.json") == small
    assert strategy_words(small.strategy) == "tiles of at most 12,288 bytes"


@pytest.mark.parametrize("wrong", [{"tiles": -1}, {"tiles": "x"}, {"tiles": 1, "state": "free"}])
def test_mistakes(wrong):
    with pytest.raises(PlanError, match=r"a strategy of tiles is \{'tiles': bytes\}, not "):
        ed.plan(ed.parse(MATMUL), 2, strategy=wrong)
