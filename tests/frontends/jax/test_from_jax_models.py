"""Models written in JAX: imported, planned and run with equal results."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax_twins import TWINS

import eindecomp as ed
from eindecomp.graph.patterns.attention import find_attention

ATTENTION = {"llama": 2, "scanned llama": 2, "gpt2": 2, "bert": 2, "vit": 2, "mlp": 0}


@pytest.mark.one_in(3)
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
        assert {mask and mask.is_causal for mask in masks} == {True}


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


def test_a_mask_that_may_hide_all_keys_of_a_query_is_not_made_infinite():
    def attend(q, k, v, mask):
        return jax.nn.dot_product_attention(q, k, v, mask=mask)

    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, 4, 2, 8)).astype("float32") for _ in range(3))
    mask = rng.random((2, 1, 4, 4)) < 0.5
    mask[0, 0, 1] = False
    graph = ed.from_jax(attend, q, k, v, mask)
    assert not find_attention(ed.rewrite(graph))
    found = ed.evaluate(graph, ed.jax_inputs(attend, q, k, v, mask))["out"]
    np.testing.assert_allclose(found, attend(q, k, v, mask), rtol=1e-4, atol=1e-5)


def test_arguments_are_named_after_parameters_and_keys():
    def fn(first, *rest, scale=1.0, **more):
        return {"sum": first["w-1"] * scale + rest[0], "more": [more["out"], *rest]}

    x = np.ones(3, "float32")
    graph = ed.from_jax(fn, {"w-1": x}, x, x, scale=2, out=x)
    assert [v.name for v in graph.inputs] == ["first.w_1", "rest.0", "rest.1", "out"]
    assert [v.name for v in graph.outputs] == [
        "out_.more.0",
        "out_.more.1",
        "out_.more.2",
        "out_.sum",
    ]
    found = ed.evaluate(graph, ed.jax_inputs(fn, {"w-1": x}, x, x, scale=2, out=x))
    np.testing.assert_array_equal(found["out_.sum"], 3 * x)


def test_arrays_that_a_function_closes_over_become_inputs():
    table = np.array([[1.0, 5.0], [2.0, 7.0]], "float32")
    graph = ed.from_jax(lambda x: x @ table + table.shape[0], table)
    assert [v.name for v in graph.inputs] == ["x", "const_0"]
    inputs = ed.jax_inputs(lambda x: x @ table, table)
    np.testing.assert_array_equal(inputs["const_0"], table)
