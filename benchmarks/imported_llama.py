"""An imported Hugging Face LLaMA on engine `torch` against the module itself, eager and compiled.

On a GPU if there is one, in bfloat16; a small one in float32 on the CPU otherwise. In turns; the
best and the median of each, and how far each is from the same model in float32.
"""

from __future__ import annotations

import warnings
from copy import deepcopy
from statistics import median
from time import perf_counter
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import eindecomp as ed

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
LAYERS, WIDTH, BATCH, TOKENS = (8, 4096, 4, 1024) if ON_GPU else (2, 256, 2, 64)
ROUNDS = 12


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=WIDTH,
        intermediate_size=WIDTH * 43 // 16,
        num_hidden_layers=LAYERS,
        num_attention_heads=WIDTH // 128,
        max_position_embeddings=4096,
    )
    with torch.device(DEVICE):
        made = LlamaForCausalLM(config).eval()
    return made.to(torch.bfloat16) if ON_GPU else made


def wait() -> None:
    if ON_GPU:
        torch.cuda.synchronize()


def main() -> None:
    warnings.simplefilter("ignore")
    module = model()
    ids = torch.randint(0, 32000, (BATCH, TOKENS), device=DEVICE)
    example = {"input_ids": ids, "use_cache": False}
    graph = ed.from_torch(module, example)
    executable = ed.compile(ed.plan(graph, 1), engine="torch", device=DEVICE)
    names = {vertex.name for vertex in graph.inputs}
    weights = {n: w.detach() for n, w in module.named_parameters() if n in names}
    placed = executable.place(weights)
    compiled = torch.compile(module)

    def ours() -> Any:
        found = executable({**placed, "input_ids": ids})
        wait()
        return found

    def theirs(called: Any) -> Any:
        with torch.no_grad():
            found = called(**example).logits
        wait()
        return found

    runs = {
        "engine torch": ours,
        "module": lambda: theirs(module),
        "module, compiled": lambda: theirs(compiled),
    }
    with torch.no_grad():
        exact = deepcopy(module).float()(**example).logits.cpu()
    found = {name: run() for name, run in runs.items()}
    found["engine torch"] = torch.as_tensor(found["engine torch"]["logits"].astype("float32"))
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(ROUNDS + 2):
        for name, run in runs.items():
            start = perf_counter()
            run()
            if turn >= 2:
                spent[name].append(perf_counter() - start)
    print(f"LLaMA, {LAYERS} layers, {WIDTH} wide, {BATCH} × {TOKENS} tokens, on {DEVICE}:")
    for name, seconds in spent.items():
        off = (found[name].float().cpu() - exact).abs().mean().item()
        best = min(seconds)
        ratio = min(spent["engine torch"]) / best
        print(
            f"  {name:18} best {best * 1e3:8.2f} ms, median {median(seconds) * 1e3:8.2f} ms; "
            f"engine torch takes {ratio:.2f} × it; off by {off:.1e} on average"
        )


if __name__ == "__main__":
    main()
