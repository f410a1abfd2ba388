"""Models of Hugging Face: imported, planned, run on threads."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_models import IDS, MODELS, made
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

import eindecomp as ed
from eindecomp.graph.ops import Fill
from eindecomp.graph.patterns.attention import find_attention


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", MODELS)
def test_models_run_on_threads_as_in_torch(name):
    module, example = made(name)
    graph = ed.from_torch(module, example)
    assert ed.parse(str(graph)) == graph
    with torch.no_grad():
        expected = module(**example)
    expected = {"out": expected} if isinstance(expected, torch.Tensor) else {**expected}
    tensors = {k: v for k, v in example.items() if isinstance(v, torch.Tensor)}
    names = {"input": "_input"}
    inputs = ed.torch_weights(module, graph) | {names.get(k, k): v for k, v in tensors.items()}
    assert [v.name for v in graph.outputs] == [*expected]
    for devices in (2, 4):
        plan = ed.plan(graph, devices)
        result = ed.run(plan, inputs)
        assert result.stats.bytes_moved == plan.cost
        for key, tensor in expected.items():
            np.testing.assert_allclose(result[key], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["llama", "grouped", "gpt2", "bert", "vit"])
def test_attention_is_found_with_its_mask(name):
    module, example = made(name)
    found = find_attention(ed.rewrite(ed.from_torch(module, example)))
    assert len(found) == 2
    masks = [attention.parts[0].mask for attention in found]
    causal = {None if mask is None else mask.is_causal for mask in masks}
    assert causal == {{"bert": False, "vit": None}.get(name, True)}


def test_shared_weights_are_one_input():
    module, example = made("gpt2")
    graph = ed.from_torch(module, example)
    names = [v.name for v in graph.inputs]
    assert "transformer.wte.weight" in names
    assert "lm_head.weight" not in names


def test_positions_and_masks_are_formulas():
    module, example = made("llama")
    graph = ed.from_torch(module, example)
    for vertex in graph.vertices.values():
        made_of = [graph[name].op for name in vertex.inputs]
        assert not made_of or not all(isinstance(op, Fill) for op in made_of)
    assert {v.name for v in graph.inputs} == {
        *(name for name, _ in module.named_parameters()), "input_ids",
    }  # fmt: skip


def test_labels_are_those_of_our_own_llama():
    module, example = made("grouped")
    graph = ed.from_torch(module, example)
    assert graph["input_ids"].labels == ("b", "s")
    assert graph["model.embed_tokens.weight"].labels == ("v", "a")
    assert graph["model.layers.0.mlp.down_proj.weight"].labels == ("a", "f")
    assert graph["logits"].labels == ("b", "s", "v")
    scores = next(v for v in graph.vertices.values() if v.labels == ("b", "h", "g", "s", "t"))
    assert scores.shape == (2, 2, 2, 6, 6)
    for strategy in (["b"], ["s"], ["h", "f"]):
        plan = ed.plan(graph, 2, strategy=strategy)
        result = ed.run(plan, ed.torch_weights(module, graph) | {"input_ids": IDS})
        with torch.no_grad():
            np.testing.assert_allclose(result["logits"], module(IDS).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_a_model_without_memory_is_planned_as_our_own():
    from eindecomp.models.llama.config import Config
    from eindecomp.models.llama.graph import prefill_graph

    with torch.device("meta"):
        module = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=1,
                num_attention_heads=32,
            )
        )  # fmt: skip
    ids = torch.zeros(1, 1024, dtype=torch.long)
    graph = ed.from_torch(module.eval(), {"input_ids": ids, "use_cache": False})
    config = Config(
        vocabulary=32000, width=4096, layers=1, heads=32, kv_heads=32, head_size=128, hidden=11008
    )
    own = ed.plan(prefill_graph(config, 1, 1024, every=True, keep=False), 8)
    plan = ed.plan(graph, 8)
    assert plan.gap == 0
    assert plan.cost <= own.cost


def test_low_precision():
    module, example = made("llama")
    module = module.to(torch.bfloat16)
    graph = ed.from_torch(module, example)
    inputs = ed.torch_weights(module, graph) | {"input_ids": IDS}
    found = ed.evaluate(graph, inputs)["logits"].astype("float32")
    with torch.no_grad():
        expected = module(**example).logits.float()
    np.testing.assert_allclose(found, expected, atol=3e-2)


def test_caches_are_off_while_a_model_is_imported():
    module, _ = made("llama")
    graph = ed.from_torch(module, IDS)
    assert [v.name for v in graph.outputs] == ["logits"]
    assert module.config.use_cache
    with pytest.raises(ed.GraphError, match="pass use_cache=False") as error:
        ed.from_torch(module, {"input_ids": IDS, "use_cache": True})
    assert len(str(error.value)) < 200
    assert module.config.use_cache


def test_experts_are_imported_and_left_as_they_were():
    config = MixtralConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, num_local_experts=4,
    )  # fmt: skip
    module = MixtralForCausalLM(config).eval()
    before = module.get_experts_implementation()
    graph = ed.from_torch(module, IDS)
    assert module.get_experts_implementation() == before != {"": "batched_mm"}
    found = ed.evaluate(graph, ed.torch_weights(module, graph) | {"input_ids": IDS})
    with torch.no_grad():
        expected = module(IDS, use_cache=False).logits
    np.testing.assert_allclose(found["logits"], expected, rtol=1e-4, atol=1e-5)
