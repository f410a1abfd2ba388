"""Imported modules cut the Megatron way: in the words of PyTorch and Hugging Face."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from local_ranks import all_ranks
from tiny_models import made
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import parallelize_module

import eindecomp as ed
from eindecomp.frontends.export import exported


def planned(name, **asked):
    module, example = made(name)
    return module, example, ed.plan(ed.from_torch(module, example), mesh={"x": 2}, **asked)


@pytest.mark.parametrize("name", ["llama", "grouped"])
def test_an_imported_llama_cut_the_megatron_way_is_hugging_faces_own_tp_plan(name):
    module, _, plan = planned(name, strategy="megatron")
    own = dict(module._tp_plan)
    del own["model.embed_tokens"]  # whose vocabulary the plan leaves whole: it moves nothing then
    assert exported(plan, "tp-plan") == plan.to_dtensor().tp_plan() == own


def test_parallelize_module_runs_an_imported_llama_as_planned():
    module, example, plan = planned("grouped", strategy="megatron")
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


def test_weights_of_a_sequential_have_their_qualified_names():
    module, _, plan = planned("mlp", strategy=["f"])
    found = plan.to_dtensor()
    names = {name for name, _ in module.named_parameters()}
    assert names <= found.weights.keys()
    assert found.weights["0.weight"] == (Shard(0),)
    assert set(found.tp_plan()) == {"0", "3"}
    shown = exported(plan, "dtensor")["placements"]
    assert names <= shown.keys()
    assert shown["3.weight"] == ["Shard(1)"]
