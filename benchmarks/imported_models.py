"""Imported Hugging Face models on engines of the CPU against the modules themselves, in turns.

BERT, 4 layers of width 256: seconds of a call, and of the processor, as a multiple of the module's,
for each engine and number of devices. `fused` is engine torch with `fuse=True`.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch
from transformers import BertConfig, BertModel

import eindecomp as ed


def model(batch: int, tokens: int) -> tuple[torch.nn.Module, dict[str, Any]]:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=1000,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
    )
    return BertModel(config).eval(), {"input_ids": torch.randint(0, 1000, (batch, tokens))}


def contenders(module: torch.nn.Module, example: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    graph = ed.from_torch(module, example)
    names = {vertex.name for vertex in graph.inputs}
    weights = {n: w.detach() for n, w in module.state_dict().items() if n in names}

    def theirs() -> Any:
        with torch.no_grad():
            return module(**example)

    def ours(engine: str, devices: int, **options: Any) -> Callable[[], Any]:
        executable = ed.compile(ed.plan(graph, devices), engine, **options)
        call = executable.bind(weights)
        return lambda: call(example)

    found: dict[str, Callable[[], Any]] = {"module": theirs}
    for devices in (1, 2):
        found[f"torch, {devices}"] = ours("torch", devices, device="cpu")
        found[f"torch fused, {devices}"] = ours("torch", devices, device="cpu", fuse=True)
        found[f"threads, {devices}"] = ours("threads", devices)
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, help="of torch's, by default one for each core")
    asked = parser.parse_args()
    if asked.threads:
        torch.set_num_threads(asked.threads)
    runs = contenders(*model(asked.batch, asked.tokens))
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for turn in range(asked.rounds + 2):
        for name, run in runs.items():
            start, busy = perf_counter(), process_time()
            run()
            if turn > 1:
                spent[name].append((perf_counter() - start, process_time() - busy))
    base = [[*each] for each in zip(*spent["module"], strict=True)]
    for name, taken in spent.items():
        words: list[str] = []
        for what, own, other in zip(("wall", "cpu"), zip(*taken, strict=True), base, strict=True):
            best, middle = min(own), median(own)
            words.append(
                f"{what} best {1e3 * best:7.2f} ms ({best / min(other):.2f}), "
                f"median {1e3 * middle:7.2f} ({middle / median(other):.2f})"
            )
        print(f"{name:18} {'; '.join(words)}")


if __name__ == "__main__":
    main()
