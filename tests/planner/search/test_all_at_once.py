"""Bounding all axes at once: never above the optimum, and tight where pieces are uneven."""

from __future__ import annotations

from math import inf

import pytest
from brute_bytes import plans
from brute_ordered import brute_ordered
from hypothesis import assume, given
from hypothesis import strategies as st
from random_graphs import random_graph
from simulate import simulate
from transformer import small_transformer

import eindecomp as ed
from eindecomp.layout.mesh import Mesh
from eindecomp.planner.costs.price import PriceInBytes
from eindecomp.planner.search.choose import AllAxes
from eindecomp.planner.search.search import Search
from eindecomp.planner.space.layout_rules import LayoutRules


@pytest.mark.parametrize("cells", [1, 1 << 6, 1 << 18])
@given(seed=st.integers(0, 2**32), inputs=st.sampled_from(["free", "sharded"]))
def test_bounding_all_axes_at_once_never_passes_the_optimum(cells, seed, inputs):
    graph = random_graph(seed, tree=False)
    for sizes in ((3, 2), (6,), (2, 2)):
        assume(plans(graph, sizes) <= 3_000)
        mesh = Mesh(tuple("ab"[: len(sizes)]), sizes)
        whole = AllAxes.of(Search(graph, PriceInBytes(mesh), LayoutRules(inputs), any_order=True))
        whole.bounding.levels = [cells]
        found = whole.tighten(inf, inf, levels=1)
        least = brute_ordered(graph, sizes, inputs)
        assert whole.bounding.value <= least <= found.cost
        assert cells < 1 << 18 or whole.bounding.value == found.cost


@pytest.mark.long
def test_a_gradient_graph_on_uneven_pieces_is_proved():
    """Nothing of the sizes is a multiple of 3, and elimination alone is too wide."""
    text = str(small_transformer(2)).replace("output X2", "loss[] <- sum X2[b,s,a]**2\noutput loss")
    graph = ed.parse(text.replace("s: 6", "s: 8"))
    weights = [vertex.name for vertex in graph.inputs if vertex.name != "E"]
    found = ed.plan(ed.grad(graph, "loss", wrt=weights), 6, pending=False)
    assert found.gap == 0
    assert simulate(found).total == found.cost
