"""Programs: what a plan's calls are, which arrays they use, and for how long."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import random_graph

import eindecomp as ed
from eindecomp.engines.threads.engine import prepare


def test_a_fill_that_only_lends_its_sizes_is_not_made():
    graph = ed.Graph()
    graph.input("X", {"i": 4, "j": 3})
    graph.fill({"i": 4}, 1, name="F")
    graph.output(graph.einsum("ij,i->ij", "X", "F", join="x*2", name="Z"))
    plan = ed.plan(graph, 2, rewrite=False)
    assert [call.kind for call in prepare(plan).calls] == ["compute", "compute"]
    x = np.ones((4, 3), np.float32)
    assert (ed.run(plan, {"X": x})["Z"] == 2).all()
