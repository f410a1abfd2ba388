"""Importing Hugging Face's LLaMA on meta tensors and planning it: seconds, memory, bytes.

The peers are `torch.export` alone, which an import begins with, and the plan of our own LLaMA of
the same sizes, which moves no fewer bytes. Each model runs in a process of its own, so that the
peak of its memory is its own. `--quick` leaves out the largest.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from time import perf_counter

MODELS = {  # layers, width, feed-forward width, heads, heads of keys
    "7B": (32, 4096, 11008, 32, 32),
    "70B": (80, 8192, 28672, 64, 8),
}
DEVICES = 8


def measure(model: str, batch: int, tokens: int) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import eindecomp as ed
    from eindecomp.models.llama.config import Config
    from eindecomp.models.llama.graph import prefill_graph

    layers, width, hidden, heads, kv_heads = MODELS[model]
    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=width,
        intermediate_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
    )
    with torch.device("meta"):
        module = LlamaForCausalLM(config).eval()
    example = {"input_ids": torch.zeros(batch, tokens, dtype=torch.long), "use_cache": False}
    on_meta = {**example, "input_ids": example["input_ids"].to("meta")}
    start = perf_counter()
    graph = ed.from_torch(module, example)
    imported = perf_counter() - start
    start = perf_counter()
    plan = ed.plan(graph, DEVICES)
    planned = perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    start = perf_counter()
    torch.export.export(module, (), on_meta, strict=False)
    exported = perf_counter() - start
    own = Config(
        vocabulary=32000,
        width=width,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_size=width // heads,
        hidden=hidden,
    )
    peer = ed.plan(prefill_graph(own, batch, tokens, every=True, keep=False), DEVICES)
    print(
        f"{model:6} {batch:5} {imported:8.1f} {exported:8.1f} {planned:8.1f} {memory:8.2f} "
        f"{plan.cost:>18,} {plan.gap:6.2%} {plan.cost / peer.cost if peer.cost else 1:8.3f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave out the largest")
    parser.add_argument("--model", choices=MODELS, help="measure one, in this process")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=4096)
    given = parser.parse_args()
    if given.model:
        measure(given.model, given.batch, given.tokens)
        return
    print("model  batch import s export s   plan s  peak GiB        bytes moved    gap  × own")
    for model in ("7B",) if given.quick else MODELS:
        for batch in (1, 8):
            command = [sys.executable, __file__, "--model", model, "--batch", str(batch)]
            subprocess.run(command, check=True)  # noqa: S603 - this file itself


if __name__ == "__main__":
    main()
