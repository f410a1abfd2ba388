"""LLaMA against transformers: a prompt read at once, and one token after another.

A model of the shape of LLaMA 3.2 1B with random weights, which both share, float32, 2 devices here
and 2 threads there, measured in turn in one process. Figures are our seconds divided by those of
transformers with torch, the median of the repeats with the least and the most; at most 1.15 is the
bar. `--quick` takes 4 layers.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import replace
from statistics import median
from time import perf_counter

import numpy as np
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

import eindecomp as ed
from eindecomp.engines.events import Event, KernelCompiled, TaskFinished
from eindecomp.models.llama import CONFIGS, DEFAULT_STRATEGY, Config, Llama
from eindecomp.models.llama.weights import weights_of

VOCABULARY = 32000
THREADS = 2


def peer(config: Config, model: Llama) -> LlamaForCausalLM:
    """The same model in transformers, with the same arrays."""
    scaling = config.scaling
    rope = {"rope_type": "default", "rope_theta": config.theta}
    if scaling is not None:
        rope = {
            "rope_type": "llama3",
            "rope_theta": config.theta,
            "factor": scaling.factor,
            "low_freq_factor": scaling.low,
            "high_freq_factor": scaling.high,
            "original_max_position_embeddings": scaling.positions,
        }
    with torch.device("meta"):
        other = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=config.vocabulary,
                hidden_size=config.width,
                intermediate_size=config.hidden,
                num_hidden_layers=config.layers,
                num_attention_heads=config.heads,
                num_key_value_heads=config.kv_heads,
                head_dim=config.head_size,
                max_position_embeddings=config.positions,
                rms_norm_eps=config.epsilon,
                rope_parameters=rope,
                tie_word_embeddings=config.tied,
            )
        )
    state = {
        weight.stored: torch.from_numpy(model.weights[weight.name].reshape(weight.shape))
        for weight in weights_of(config)
    }
    other.load_state_dict(state, assign=True, strict=False)
    other.tie_weights()
    other.model.rotary_emb = type(other.model.rotary_emb)(other.config)
    return other.eval()


def seconds(function: object) -> float:
    start = perf_counter()
    function()  # type: ignore[operator]
    return perf_counter() - start


def show(what: str, ours: list[float], theirs: list[float]) -> None:
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    print(
        f"{what:24} {median(ours):8.3f} {median(theirs):8.3f}   "
        f"{median(ratios):.3f}  ({min(ratios):.3f} to {max(ratios):.3f})",
        flush=True,
    )


def read_prompts(model: Llama, other: LlamaForCausalLM, tokens: int, repeats: int) -> None:
    ids = np.random.default_rng(tokens).integers(0, VOCABULARY, (1, tokens))
    given = torch.from_numpy(ids)

    def theirs() -> torch.Tensor:
        return other(given, use_cache=True, logits_to_keep=1).logits[:, -1]

    first = seconds(lambda: model.prefill(ids, model.cache(1, tokens)))
    mine, wanted = model.prefill(ids, model.cache(1, tokens)), theirs().numpy()
    error = np.abs(mine - wanted).max() / np.abs(wanted).max()
    assert error < 1e-4, error
    pairs = [
        (seconds(lambda: model.prefill(ids, model.cache(1, tokens))), seconds(theirs))
        for _ in range(repeats)
    ]
    show(f"prefill of {tokens}", *map(list, zip(*pairs, strict=True)))
    print(f"    first call {first:.2f} s, planning included; error {error:.1e}")


def go_on(model: Llama, other: LlamaForCausalLM, tokens: int, repeats: int) -> None:
    ids = np.random.default_rng(tokens).integers(0, VOCABULARY, (1, tokens))
    cache, kept = model.cache(1, 2 * tokens), DynamicCache(config=other.config)
    mine = model.prefill(ids, cache)
    wanted = other(torch.from_numpy(ids), past_key_values=kept, logits_to_keep=1).logits[:, -1]
    token = int(mine.argmax())
    assert token == int(wanted.argmax())
    pairs: list[tuple[float, float]] = []
    first = 0.0
    for turn in range(repeats + 1):
        start = perf_counter()
        mine = model.step([token], cache)
        middle = perf_counter()
        given = torch.tensor([[token]])
        wanted = other(given, past_key_values=kept, logits_to_keep=1).logits[:, -1]
        end = perf_counter()
        token = int(mine.argmax())
        assert token == int(wanted.argmax())
        if turn:
            pairs.append((middle - start, end - middle))
        else:
            first = middle - start
    show(f"decode after {tokens}", *map(list, zip(*pairs, strict=True)))
    print(f"    first call {first:.2f} s, planning included")


def profile(model: Llama, kind: str, tokens: int) -> None:
    """Where the time of one run goes, by kind of vertex, in seconds of all threads together."""
    spent: dict[str, float] = defaultdict(float)

    def hear(event: Event) -> None:
        if isinstance(event, TaskFinished):
            spent[event.vertex.rstrip("0123456789") + f" {event.kind}"] += event.end - event.start
        elif isinstance(event, KernelCompiled):
            spent["compiling"] += event.seconds

    plan = model.plan(kind, 1, tokens)
    rng = np.random.default_rng(0)
    inputs: dict[str, object] = dict(model.weights)
    for vertex in plan.graph.inputs:
        if vertex.name not in inputs:
            integer = vertex.dtype.kind == "i"
            inputs[vertex.name] = (
                np.full(vertex.shape, tokens - 1 if vertex.name != "ids" else 1, vertex.dtype)
                if integer
                else rng.standard_normal(vertex.shape, np.float32)
            )
    ed.run(plan, inputs)
    result = ed.run(plan, inputs, on_event=hear)
    print(f"{kind} of {tokens}: {result.stats.seconds:.3f} s, {result.stats.tasks} tasks")
    for name, total in sorted(spent.items(), key=lambda item: -item[1]):
        print(f"    {name:20} {total:8.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="4 layers")
    parser.add_argument("--profile", action="store_true", help="also show where our time goes")
    parser.add_argument("--strategy", help="a named strategy for our plans, or free")
    asked = parser.parse_args()
    torch.set_num_threads(THREADS)
    torch.set_grad_enabled(False)
    config = replace(
        CONFIGS["3.2-1B"], vocabulary=VOCABULARY, layers=4 if asked.quick else 16, positions=16384
    )
    strategy = DEFAULT_STRATEGY if asked.strategy is None else asked.strategy
    model = Llama.random(config, THREADS, None if strategy == "free" else strategy)
    print(f"{config.parameters / 1e9:.2f} billion parameters, float32, {THREADS} devices")
    other = peer(config, model)
    print("                             ours    torch   ratio")
    for tokens in (128, 512):
        read_prompts(model, other, tokens, 2 if tokens > 128 else 4)
    for tokens in (128, 512):
        go_on(model, other, tokens, 12)
    counts = model.counts
    print(f"{counts.plans} plans in {counts.planning_seconds:.2f} s")
    if asked.profile:
        profile(model, "prefill", 128)
        profile(model, "step", 256)


if __name__ == "__main__":
    main()
