"""Forks ranks of gloo that run tensor-parallel modules, loaded by transformers or parallelised.

Arguments: the number of ranks, a folder for models and the group's file, and names of cases. All is
imported and planned once, before the fork.
"""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module

import eindecomp as ed

# Nobody has given anything where this is only looked through for doctests.
GIVEN = sys.argv[1:] if __name__ == "__main__" else ["1", "."]
RANKS, FOLDER, CASES = int(GIVEN[0]), Path(GIVEN[1]), GIVEN[2:]
SHARDED, MEGATRON = {"inputs": "sharded"}, {"strategy": "megatron"}


def sequential():
    """The module of the documentation."""
    module = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 32))
    return module.eval(), {"input": torch.rand(64, 32)}


def planned(module, example, **asked):
    return ed.plan(ed.from_torch(module, example), mesh={"x": RANKS}, **asked).to_dtensor()


def result(module, example):
    with torch.no_grad():
        found = module(*example.values()) if "input" in example else module(**example)
    return found if isinstance(found, torch.Tensor) else found.logits


def model_of_transformers(name):
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import tiny_models

    if name == "whisper":
        return tiny_models.whisper().eval(), tiny_models.HEARD
    module = getattr(tiny_models, name)(RANKS)  # heads of keys and values: one for each rank
    ids = tiny_models.HEARD["decoder_input_ids"]
    return module.eval(), {"input_ids": ids, "use_cache": False}


def cases():
    """A module, its example, how it is planned, and a folder where transformers can load it."""
    torch.manual_seed(0)
    for name in CASES:
        for asked in (SHARDED, MEGATRON):
            if name == "sequential":
                yield *sequential(), asked, None
            else:
                module, example = model_of_transformers(name)
                module.save_pretrained(folder := FOLDER / f"{name}-{next(iter(asked))}")
                yield module, example, asked, folder


def load(module, folder, words):
    from transformers.distributed import DistributedConfig

    config = DistributedConfig(tp_plan=words, tp_size=RANKS)
    return type(module).from_pretrained(folder, distributed_config=config).eval()


def run(rank, prepared):
    dist.init_process_group(
        "gloo", init_method=f"file://{FOLDER}/group", rank=rank, world_size=RANKS
    )
    mesh = init_device_mesh("cpu", (RANKS,))
    for module, example, wanted, styles, words, folder in prepared:
        if folder is not None:
            found = result(load(module, folder, words), example)
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
        parallelize_module(module, mesh, styles, src_data_rank=None)
        torch.testing.assert_close(result(module, example), wanted, rtol=1e-4, atol=1e-5)
    dist.destroy_process_group()


def prepare():
    for module, example, asked, folder in cases():
        found = planned(module, example, **asked)
        styles = found.parallelize_module_plan(module, example)
        words = found.tp_plan(module, example)
        yield module, example, result(module, example), styles, words, folder


if __name__ == "__main__":
    torch.set_num_threads(1)
    prepared = list(prepare())
    forking = multiprocessing.get_context("fork")
    ranks = [forking.Process(target=run, args=(rank, prepared)) for rank in range(RANKS)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    sys.exit(any(each.exitcode for each in ranks))
