"""What a plan's placements cost a module beyond DTensor's own overhead.

A LLaMA of Hugging Face with its batch cut over 4 devices, one of which runs here: the process group
is pretended, so that only that device's own work is timed. In turns: the plain module on that
device's part of the batch; the module with DTensors for its weights and input, by hand; and the
module under the plan. The last two issue the same operators on the same shards.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from statistics import median
from time import process_time
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.experimental import implicit_replication
from transformers import LlamaConfig, LlamaForCausalLM

import eindecomp as ed
from eindecomp.frontends.torch.verify import pretended_group

DEVICES = 4
BATCH, TOKENS = 8, 128


def model(width: int, layers: int) -> nn.Module:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1024,
        hidden_size=width,
        intermediate_size=width * 11 // 4,
        num_hidden_layers=layers,
        num_attention_heads=8,
        attn_implementation="eager",  # DTensor has no rule for the fused one on CPUs
    )
    return LlamaForCausalLM(config).eval()


def by_hand(module: nn.Module, mesh: DeviceMesh) -> Any:
    """The module with weights on every device and its input cut along the batch."""

    def replicate(_name: str, own: nn.Module, mesh: DeviceMesh) -> None:
        for name, weight in own.named_parameters(recurse=False):
            whole = distribute_tensor(weight.detach(), mesh, [Replicate()], src_data_rank=None)
            own.register_parameter(name, nn.Parameter(whole, requires_grad=False))

    distributed = distribute_module(module, mesh, replicate)

    def run(input_ids: torch.Tensor, **more: Any) -> Any:
        ids = distribute_tensor(input_ids, mesh, [Shard(0)], src_data_rank=None)
        with torch.no_grad(), implicit_replication():
            return distributed(input_ids=ids, **more)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--runs", type=int, default=7)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    ids = torch.randint(0, 1024, (BATCH, TOKENS))
    example = {"input_ids": ids, "use_cache": False}
    module = model(given.width, given.layers)
    plan = ed.plan(ed.from_torch(module, example), mesh={"x": DEVICES}, strategy=["b"])
    with pretended_group(DEVICES):
        mesh = DeviceMesh("cpu", torch.arange(DEVICES), mesh_dim_names=("x",))
        planned = plan.to_dtensor(mesh).apply(module, example)
        hand = by_hand(model(given.width, given.layers), mesh)
        part = {**example, "input_ids": ids[: BATCH // DEVICES]}

        def plain() -> Any:
            with torch.no_grad():
                return module(**part)

        runs = {
            "plain module, its part": plain,
            "DTensor by hand": lambda: hand(**example),
            "under the plan": lambda: planned(**example),
        }
        results = {name: local(run()) for name, run in runs.items()}
        expected = results["plain module, its part"]
        for name, found in results.items():
            torch.testing.assert_close(found, expected, msg=name, rtol=1e-3, atol=1e-3)
        spent: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(given.runs):
            for name, run in runs.items():
                start = process_time()
                run()
                spent[name].append(process_time() - start)
    best = {name: min(seconds) for name, seconds in spent.items()}
    print(f"LLaMA, {given.layers} layers, {given.width} wide; a device's own work, CPU seconds:")
    for name, seconds in spent.items():
        ratio = best[name] / best["DTensor by hand"]
        print(f"  {name:24} {best[name]:7.3f} s, median {median(seconds):7.3f}; {ratio:5.2f}")
    print("The last column is against DTensor by hand.")


def local(found: Any) -> torch.Tensor:
    logits = found.logits
    return logits.to_local() if isinstance(logits, DTensor) else logits


if __name__ == "__main__":
    main()
