"""Models written in JAX: imported, planned and run with equal results."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax_twins import TWINS

import eindecomp as ed
import jax_devices  # noqa: F401 - before JAX starts
from eindecomp.graph.patterns.attention import find_attention
from eindecomp.graph.patterns.masks import MaskKind

ATTENTION = {"llama": 2, "scanned llama": 2, "gpt2": 2, "bert": 2, "vit": 2, "mlp": 0}


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_runs_on_threads_as_in_jax(name):
    fn, arguments = TWINS[name]
    args = arguments()
    graph = ed.from_jax(fn, *args)
    assert ed.parse(str(graph)) == graph
    plan = ed.plan(graph, devices=4)
    result = ed.run(plan, ed.jax_inputs(fn, *args), engine="threads")
    assert result.stats.bytes_moved == plan.cost
    expected = jax.tree.leaves(jax.jit(fn)(*args))
    for vertex, wanted in zip(graph.outputs, expected, strict=True):
        np.testing.assert_allclose(result[vertex.name], wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", TWINS)
def test_attention_is_found(name):
    fn, arguments = TWINS[name]
    found = find_attention(ed.rewrite(ed.from_jax(fn, *arguments())))
    assert len(found) == ATTENTION[name]
    if name in ("llama", "scanned llama", "gpt2"):
        masks = [part.mask for attention in found for part in attention.parts]
        assert {mask and mask.kind for mask in masks} == {MaskKind.CAUSAL}


def test_names_and_labels_can_be_read():
    fn, arguments = TWINS["llama"]
    graph = ed.from_jax(fn, *arguments())
    assert {v.name for v in graph.inputs} >= {"params.embed", "params.layers.0.wq", "tokens"}
    assert graph["params.embed"].labels == ("v", "a")
    assert graph["tokens"].labels == ("b", "s")
    assert graph["params.layers.1.w1"].labels[0] == "a"
    fn, arguments = TWINS["gpt2"]
    assert [v.name for v in ed.from_jax(fn, *arguments()).outputs] == ["out.logits"]


def test_shapes_alone_give_the_same_graph():
    fn, arguments = TWINS["llama"]
    args = arguments()
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), args)
    assert ed.from_jax(fn, *shapes) == ed.from_jax(fn, *args)
