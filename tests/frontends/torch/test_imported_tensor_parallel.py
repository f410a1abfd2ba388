"""Imported modules cut the Megatron way: in the words of PyTorch and Hugging Face."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import tiny_models
import torch
from jobs import run_command
from local_ranks import all_ranks
from tiny_models import made
from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import parallelize_module

import eindecomp as ed
from eindecomp.frontends.placements import exported

GLOO = Path(__file__).parent / "ranks" / "gloo_tensor_parallel.py"
IDS = tiny_models.HEARD["decoder_input_ids"]


def run_on_gloo(ranks, folder, *cases):
    job = run_command([sys.executable, str(GLOO), str(ranks), str(folder), *cases], timeout=500)
    assert job.status == 0, job.err


def planned(name, **asked):
    module, example = made(name)
    return module, example, ed.plan(ed.from_torch(module, example), mesh={"x": 2}, **asked)


@pytest.mark.parametrize("name", ["llama", "grouped"])
def test_an_imported_llama_cut_the_megatron_way_is_hugging_faces_own_tp_plan(name):
    module, _, plan = planned(name, strategy="megatron")
    own = dict(module._tp_plan)
    del own["model.embed_tokens"]  # whose vocabulary the plan leaves whole: it moves nothing then
    assert exported(plan, "tp-plan") == plan.to_dtensor().tp_plan() == own


@pytest.mark.long("2")
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_the_documented_sequential_gives_on_gloo_what_it_gives_alone(tmp_path, ranks):
    run_on_gloo(ranks, tmp_path, "sequential")


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", ["qwen3", "llama", "whisper"])
def test_transformers_and_parallelize_module_run_models_on_gloo(tmp_path, ranks, name):
    run_on_gloo(ranks, tmp_path, name)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("asked", [{"strategy": "megatron"}, {"inputs": "sharded"}])
@pytest.mark.parametrize("make", [tiny_models.llama, tiny_models.qwen3])
def test_parallelize_module_runs_imported_models_as_planned(make, asked):
    torch.manual_seed(0)
    module, example = make(2).eval(), {"input_ids": IDS, "use_cache": False}
    plan = ed.plan(ed.from_torch(module, example), mesh={"x": 2}, **asked)
    with torch.no_grad():
        wanted = module(**example).logits
        with all_ranks((2,)) as ranks:
            found = plan.to_dtensor(ranks)
            parallelize_module(module, ranks, found.parallelize_module_plan(), src_data_rank=None)
            for layer in found.parallelize_module_plan():
                weight = module.get_submodule(layer).weight
                assert weight.placements == found.weights[f"{layer}.weight"]
            blocks = module(**example).logits._local_tensors
    for rank in range(2):
        torch.testing.assert_close(blocks[rank], wanted, rtol=1e-4, atol=1e-5)


def test_half_heads_are_refused_with_the_module_and_its_heads():
    module, example = tiny_models.llama(2).eval(), {"input_ids": IDS, "use_cache": False}
    found = ed.plan(ed.from_torch(module, example), mesh={"x": 4}, strategy="megatron").to_dtensor()
    told = r"layers.0.self_attn.k_proj into 4 parts, but .*view_1 makes 2 units \(h\)"
    for asked_for in (found.tp_plan, found.parallelize_module_plan):
        with pytest.raises(ed.PlanError, match=told):
            asked_for()


@pytest.mark.long
def test_a_convolution_is_left_whole_and_attention_that_counts_heads_gathers():
    module = tiny_models.whisper().eval()
    plan = ed.plan(ed.from_torch(module, tiny_models.HEARD), mesh={"x": 2}, inputs="sharded")
    found = plan.to_dtensor().tp_plan(module, tiny_models.HEARD)
    assert not [name for name in found if "conv" in name or "embed" in name]
    attention = {name.rpartition(".")[2]: word for name, word in found.items() if "attn" in name}
    gathered = dict.fromkeys(("q_proj", "k_proj", "v_proj"), "colwise_gather_output")
    assert attention == gathered | {"out_proj": "rowwise_split_input"}
    assert found["model.encoder.layers.*.fc1"] == "colwise"


def test_what_a_norm_or_the_caller_needs_whole_is_gathered():
    module = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 8), nn.Tanh())
    example = {"input": torch.zeros(4, 8)}
    graph = ed.from_torch(module.eval(), example)
    found = ed.plan(graph, mesh={"x": 2}, strategy=["f"]).to_dtensor()
    styles = found.parallelize_module_plan()
    assert styles["0"].output_layouts == styles["2"].input_layouts == (Replicate(),)
    assert found.tp_plan() == {"0": "colwise_gather_output", "2": "rowwise_split_input"}
    alone = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
    found = ed.plan(ed.from_torch(alone, example), mesh={"x": 2}, strategy=["f"]).to_dtensor()
    assert found.tp_plan() == {"0": "colwise_gather_output"}


def test_layers_that_are_no_linear_are_refused_by_name():
    _, _, plan = planned("gpt2", strategy=["h"])
    with pytest.raises(ed.PlanError, match=r"h\.0\.attn\.c_attn, which is no nn.Linear"):
        plan.to_dtensor().tp_plan()


class Tied(nn.Module):
    """Two layers that share a weight, as embeddings and heads do."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = (nn.Linear(8, 8, bias=False) for _ in range(3))
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.last(torch.relu(self.second(torch.relu(self.first(x)))))


def test_a_weight_that_modules_share_is_left_whole():
    graph = ed.from_torch(Tied().eval(), torch.zeros(4, 8))
    plan = ed.plan(graph, mesh={"x": 2}, inputs="sharded")
    assert set(plan.to_dtensor().tp_plan()) == {"last"}


def test_weights_of_a_sequential_have_their_qualified_names():
    module, _, plan = planned("mlp", strategy=["f"])
    found = plan.to_dtensor()
    names = {name for name, _ in module.named_parameters()}
    assert names <= found.weights.keys()
    assert found.weights["0.weight"] == (Shard(0),)
    assert found.tp_plan() == {"0": "colwise_gather_output", "3": "rowwise_split_input"}
    shown = exported(plan, "dtensor")["placements"]
    assert names <= shown.keys()
    assert shown["3.weight"] == ["Shard(1)"]
