"""Attention is found inside the regions of models, and computes what its vertices do."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import agree
from torch_ways import HERE, PAGED

import eindecomp as ed
from eindecomp.models.llama import Config
from eindecomp.models.llama.graph import prefill_graph, step_graph

LAYERS = 2
GRAPHS = {
    "prefill": lambda config: prefill_graph(config, 2, 6),
    "every token": lambda config: prefill_graph(config, 2, 6, every=True, keep=False),
    "step": lambda config: step_graph(config, 2, 8),
}


def small(kv_heads):
    return Config(
        vocabulary=20, width=16, layers=LAYERS, heads=4, kv_heads=kv_heads, head_size=4,
        hidden=24, positions=64,
    )  # fmt: skip


def inputs_for(graph):
    """Numbers for a model: tokens that are in its vocabulary, lengths that are in its cache."""
    rng = np.random.default_rng(0)
    found = {"latest": 3} if "latest" in graph.scalars else {}
    for vertex in graph.inputs:
        if vertex.dtype.kind in "iu":
            found[vertex.name] = rng.integers(0, 6, vertex.shape).astype(vertex.dtype)
        else:
            found[vertex.name] = rng.normal(0, 0.3, vertex.shape).astype(vertex.dtype)
    return found


CASES = [
    *((kind, kv_heads, 1, None) for kind in GRAPHS for kv_heads in (4, 2, 1)),
    *((kind, 2, 2, ["b"]) for kind in GRAPHS),
    ("prefill", 2, 2, ["h"]),
    ("prefill", 4, 4, ["h"]),
]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("way", [HERE, PAGED], ids=["resident", "paged"])
@pytest.mark.parametrize(("kind", "kv_heads", "devices", "strategy"), CASES)
def test_each_layer_attends_by_one_call_on_each_device(kind, kv_heads, devices, strategy, way):
    graph = GRAPHS[kind](small(kv_heads))
    plan = ed.plan(graph, devices, strategy=strategy)
    arrays = inputs_for(graph)
    with ed.compile(plan, "torch", **way) as executable:
        found = [op for op in executable._prepared.tiled.ops if op.call is not None]
        assert len(found) == LAYERS * devices
        agree(executable(arrays), ed.evaluate(graph, arrays), 1e-4)
