"""Planning a training step of LLaMA: our plan against data, ZeRO, Megatron and both together.

Weights are bfloat16; AdamW keeps float32 weights, means and squares beside them, which are tied:
each lies where the step before has left it. Costs are bytes that all devices receive in one step.
With --layers the model is planned with fewer layers than it has, which are all alike. Attention
keeps no scores; layers are computed again where nothing else is found to fit.

Partial sums of activations and their gradients travel as bfloat16, those of the weights' gradients
as float32, in plans as in the systems, whose bytes are counted by hand.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

import eindecomp as ed
from eindecomp.errors import EinDecompError
from eindecomp.models.llama import CONFIGS, prefill_graph
from eindecomp.models.optimizers import training_step

STRATEGY = 0.25  # of our time for a strategy, which leaves little to choose
TRAVEL = {"activations": "bfloat16", "gradients": "float32"}
STRATEGIES = ("data", "zero", "megatron", "megatron+zero")
LOSS = """
monoid log_sum_exp(m, s; n, t) = (
    max(m, n), s * where(m >= n, 1, exp(m - n)) + t * where(n >= m, 1, exp(n - m))
  ) identity (-inf, 0) finish m + log(s) grad (s * exp(m - result), exp(m - result))
input next[b, s] int32
NORM[b,s]  <- log_sum_exp (float32(logits[b,s,v]), 1)
CLASS[v: {v}] <- fill int32(v)
RIGHT[b,s] <- sum where(CLASS[v] == next[b,s], float32(logits[b,s,v]), 0)
loss[]     <- sum (NORM[b,s] - RIGHT[b,s]) / {tokens}
output loss
"""


def adamw(graph: ed.Graph, parameters: Sequence[str], gradients: Sequence[str]) -> None:
    """Updates in float32, of which the next weights are a copy in bfloat16."""
    for name in ("lr", "step"):
        graph.scalar(name, "float64")
    for name, gradient in zip(parameters, gradients, strict=True):
        sizes, labels = graph[name].sizes, " ".join(graph[name].labels)
        state = {
            what: graph.input(f"{name}_{what}", sizes, "float32").name
            for what in ("master", "mean", "square")
        }

        def update(of: str, join: str, *read: str, labels: str = labels) -> str:
            spec = f"{', '.join([labels] * len(read))} -> {labels}"
            new = graph.einsum(spec, *read, join=join, name=f"new_{of}")
            graph.output(new)
            graph.tie(of, new.name)
            return new.name

        mean = update(state["mean"], "x + 0.1 * (float32(y) - x)", state["mean"], gradient)
        square = "0.95 * x + 0.05 * float32(y) * float32(y)"
        square = update(state["square"], square, state["square"], gradient)
        rate = "(lr / (1 - 0.9**step)) * y / (sqrt(z) / sqrt(1 - 0.95**step) + 1e-8)"
        master = f"x * (1 - lr * 0.1) - {rate}"
        master = update(state["master"], master, state["master"], mean, square)
        update(name, "bfloat16(x)", master)


def training(layers: int, batch: int, sequence: int = 4096, model: str = "7B") -> ed.Graph:
    """One step: cross-entropy of every next token, backwards, and AdamW."""
    config = replace(CONFIGS[model], layers=layers, dtype="bfloat16")
    forward = prefill_graph(config, batch, sequence, every=True)
    text = [line for line in str(forward).splitlines() if not line.startswith("output")]
    loss = LOSS.format(v=config.vocabulary, tokens=batch * sequence)
    graph = ed.parse("\n".join([*text, loss]))
    weights = [v.name for v in graph.inputs if v.dtype.name == "bfloat16" and v.name != "R"]
    return training_step(graph, "loss", weights, adamw)


def by_hand(layers: int, batch: int, devices: int, sequence: int = 4096, model: str = "7B") -> int:
    """The bytes of Megatron in servers of 8, and ZeRO-3 between them.

    Ring all-reduces of bfloat16, four a layer, one for the embeddings and one for the output's
    gradient; between servers, weights gathered twice in bfloat16, gradients scattered in float32.
    """
    config = replace(CONFIGS[model], layers=layers)
    server = min(devices, 8)
    stream = batch * sequence * config.width
    reduced = (4 * layers + 2) * 2 * (server - 1) * 2 * stream
    return reduced + (2 + 2 + 4) * (devices // server - 1) * config.parameters


def row(graph: ed.Graph, devices: int, memory: str | None, limit: float) -> None:
    """Our plan, and what the strategies cost relative to it; without the limit if nothing fits."""
    ready = ed.rewrite(graph, keeps_sums=True)
    rest = {"memory": memory, "rewrite": False, "reduce_dtype": TRAVEL}
    rest |= {"recompute": "auto"}
    start = perf_counter()
    try:
        ours = ed.plan(ready, devices, time_limit=limit, **rest)
    except EinDecompError as error:
        if memory is None:
            raise
        print(f"  {perf_counter() - start:.1f} s: {error}\n  without a limit:", flush=True)
        row(graph, devices, None, limit)
        return
    again = f"again: {ours.recompute}"
    show("ours", perf_counter() - start, f"{ours.cost:>22,} gap {100 * ours.gap:5.2f} % {again}")
    for name in STRATEGIES:
        start = perf_counter()
        try:
            plan = ed.plan(ready, devices, strategy=name, time_limit=STRATEGY * limit, **rest)
            again = f"again: {plan.recompute}"
            said = f"{plan.cost:>22,} {plan.cost / ours.cost:7.2f} × ours, {again}"
        except EinDecompError as error:
            said = f"no plan: {error}"
        show(name, perf_counter() - start, said)


def show(name: str, seconds: float, said: str) -> None:
    print(f"  {name:14} {seconds:7.1f} s {said}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="7B")
    parser.add_argument("--layers", type=int, help="fewer than the model has")
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--devices", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--memory", default="80GB")
    parser.add_argument("--time", type=float, default=240, help="seconds for our plan")
    given = parser.parse_args()
    layers = given.layers or CONFIGS[given.model].layers
    for batch in given.batches:
        graph = training(layers, batch, model=given.model)
        for devices in given.devices:
            print(f"{layers} layers, b = {batch}, {devices} devices, {given.memory} each")
            row(graph, devices, given.memory, given.time)
            if devices // 8 <= batch:
                hand = by_hand(layers, batch, devices, model=given.model)
                print(f"  megatron+zero by hand {hand:>23,}")


if __name__ == "__main__":
    main()
