"""Plans in short times and for many devices: against strategies that everybody knows, and a clock.

`strategies`: a training step of one LLaMA layer, freely planned, against every named strategy with
the same time limit; below 1.000 a strategy moves less. `pins`: what pins alone say. `time`: how
long plans take with 5 seconds to spare. `devices`: gaps at many devices, products against grids.
Without a name, all of them; `--seconds` sets the limit of `strategies`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from time import perf_counter, process_time
from typing import Any

import numpy as np
from plan_llama import LAYER, llama

import eindecomp as ed
from eindecomp.errors import EinDecompError

SHAPES = {
    "7B": (4096, 32, 128, 11008),
    "13B": (5120, 40, 128, 13824),
    "65B": (8192, 64, 128, 22016),
}
CASES = (  # model, sequences, devices, inputs
    ("7B", 8, 64, "free"),
    ("13B", 8, 256, "sharded"),
    ("65B", 1, 64, "sharded"),
    ("7B", 1, 64, "sharded"),
    ("7B", 8, 512, "sharded"),
)
STRATEGIES = (
    "sqrt",
    "data",
    "zero",
    "context",
    "ulysses",
    "attention",
    "megatron",
    "megatron+zero",
)


def training_layer(model: str, batch: int) -> ed.Graph:
    """One step of training one layer by plain gradients."""
    a, h, d, f = SHAPES[model]
    sizes = f"input X0[b: {batch}, s: 4096, a: {a}], SIZES[h: {h}, d: {d}, f: {f}]"
    graph = ed.parse("\n".join([sizes, LAYER.format(l=0, n=1), "output X1"]))
    graph.output(graph.einsum("b s a ->", "X1", join="x**2", agg="sum", name="loss"))
    weights = [v.name for v in graph.inputs if v.name not in ("X0", "SIZES")]
    return ed.models.training_step(graph, "loss", weights)


def unequal_mlp(layers: int) -> ed.Graph:
    """Products and relus whose widths all differ."""
    widths = [1024 + 96 * (5 * k % 17) for k in range(layers + 1)]
    lines = [f"input X0[b: 4096, w0: {widths[0]}]"]
    for k in range(layers):
        lines += [f"input W{k}[w{k}, w{k + 1}: {widths[k + 1]}]"]
        lines += [f"Y{k}[b,w{k + 1}] <- sum X{k}[b,w{k}] * W{k}[w{k},w{k + 1}]"]
        lines += [f"X{k + 1}[b,w{k + 1}] <- relu(Y{k}[b,w{k + 1}])"]
    return ed.parse("\n".join([*lines, f"output X{layers}"]))


def random_graph(vertices: int, seed: int = 0) -> ed.Graph:
    """Products, sums and maps of square matrices, of any two results before."""
    rng = np.random.default_rng(seed)
    graph = ed.Graph()
    made = [graph.input(f"I{k}", {"i": 512, "j": 512}) for k in range(4)]
    for _ in range(vertices):
        one, other = (made[-1 - int(rng.integers(min(len(made), 12)))] for _ in range(2))
        kind = int(rng.integers(3))
        if kind == 0:
            made.append(graph.einsum("ij,jk->ik", one, other))
        elif kind == 1:
            made.append(graph.einsum("ij,ij->ij", one, other, join="x + y"))
        else:
            made.append(graph.einsum("ij->ji", one, join="relu(x)"))
    graph.output(made[-1])
    return graph


def timed(make: Callable[[], Any]) -> tuple[Any, float, float]:
    """What was made, or the error, with its seconds by the clock and of the processor."""
    start, busy = perf_counter(), process_time()
    try:
        made = make()
    except EinDecompError as error:
        made = error
    return made, perf_counter() - start, process_time() - busy


def gap(plan: ed.Plan) -> str:
    return "proved" if plan.gap < 1e-9 else f"{100 * plan.gap:.2f} %" if plan.bound else "no bound"


def strategies(seconds: float) -> None:
    print(f"\nstrategy / free, time_limit={seconds:g}: below 1.000 the strategy moves less")
    for model, batch, devices, inputs in CASES:
        graph = training_layer(model, batch)
        options: Any = {"inputs": inputs, "time_limit": seconds}
        free, spent, busy = timed(lambda g=graph, p=devices, o=options: ed.plan(g, p, **o))
        row = f"{model} b={batch} p={devices} {inputs}: {spent:.1f} s ({busy:.1f} of processor)"
        print(f"{row}, {free.cost:,} bytes, {gap(free)}", flush=True)
        for name in STRATEGIES:
            under, spent, busy = timed(
                lambda g=graph, p=devices, o=options, n=name: ed.plan(g, p, strategy=n, **o)
            )
            if isinstance(under, ed.Plan):
                ratio = f"{under.cost / free.cost:.3f}"
                print(f"    {name:14} {ratio}  {spent:5.1f} s ({busy:.1f})", flush=True)


def product_graph(m: int, n: int, k: int) -> ed.Graph:
    return ed.parse(
        f"input A[i: {m}, k: {k}], B[k, j: {n}]\nC[i,j] <- sum A[i,k] * B[k,j]\noutput C"
    )


def pins(seconds: float) -> None:
    print(f"\npins, time_limit={seconds:g}")
    graph, devices = product_graph(4096, 4096, 4096), 512
    pin = {"A": {"i": 8, "k": 64}, "B": {"k": 8, "j": 64}, "C": {"i": 8, "j": 64}}
    plan, spent, busy = timed(
        lambda: ed.plan(graph, devices, inputs="sharded", pin=pin, time_limit=seconds)
    )
    if isinstance(plan, ed.Plan):
        said = 1_409_286_144
        print(f"4096³ in 8×8×8: {plan.cost / said:.3f} × what pins say, {spent:.1f} s ({busy:.1f})")
    text = "input X[a: 4096, b: 64], Y[b, c: 64]\nZ[a,c] <- sum X[a,b] * Y[b,c]\noutput Z"
    plan, spent, busy = timed(lambda: ed.plan(ed.parse(text), 1024, pin={"Z": {"a": 1024}}))
    print(f"Z pinned over 1,024 devices: {spent:.1f} s ({busy:.1f}), {gap(plan)}")


def clock(seconds: float) -> None:
    print(f"\ntime_limit={seconds:g}")
    cases: list[tuple[str, Callable[[], ed.Graph], int, str]] = [
        ("2,000 random vertices", lambda: random_graph(2000), 8, "free"),
        ("500 random vertices", lambda: random_graph(500), 64, "sharded"),
        ("MLP of 200 unequal layers", lambda: unequal_mlp(200), 1024, "sharded"),
        ("the same", lambda: unequal_mlp(200), 64, "sharded"),
        ("training of 32 LLaMA layers", training_7b, 8, "free"),
    ]
    for name, make, devices, inputs in cases:
        graph = make()
        plan, spent, busy = timed(
            lambda g=graph, p=devices, i=inputs: ed.plan(g, p, inputs=i, time_limit=seconds)
        )
        said = gap(plan) if isinstance(plan, ed.Plan) else f"{type(plan).__name__}: {plan}"
        print(f"{name}, p={devices} {inputs}: {spent:.1f} s ({busy:.1f}), {said}", flush=True)


def training_7b() -> ed.Graph:
    graph = llama("7B", 8, 4096)
    last = graph.outputs[0]
    graph.output(graph.einsum("b s a ->", last, join="x**2", agg="sum", name="loss"))
    weights = [v.name for v in graph.inputs if v.name not in ("X0", "SIZES")]
    return ed.models.training_step(graph, "loss", weights)


def grids(devices: int) -> Iterator[tuple[int, int, int]]:
    sizes = [n for n in range(1, devices + 1) if devices % n == 0]
    for i, j in product(sizes, sizes):
        if devices % (i * j) == 0:
            yield i, j, devices // (i * j)


def best_grid(shape: Sequence[int], devices: int) -> int:
    """The bytes that a grid of devices moves at the least, each matrix stored once, evenly cut."""
    m, n, k = shape
    costs: list[int] = []
    for i, j, depth in grids(devices):
        if m % i or n % j or k % depth:
            continue
        gathered = m * k * (j - 1) + k * n * (i - 1)
        costs.append(4 * (gathered + m * n * (depth - 1)))
    return min(costs)


def many_devices(seconds: float) -> None:
    print(f"\nmany devices, time_limit={seconds:g}")
    for devices in (8, 64, 512, 4096):
        plan, spent, busy = timed(
            lambda p=devices: ed.plan(
                product_graph(4096, 4096, 4096), p, inputs="sharded", time_limit=seconds
            )
        )
        ratio = plan.cost / best_grid((4096, 4096, 4096), devices)
        print(
            f"4096³, p={devices}: {ratio:.4f} × best grid, {spent:.1f} s ({busy:.1f}), {gap(plan)}"
        )
    for name, graph, devices, inputs in (
        *(("MLP of 16 unequal layers", unequal_mlp(16), p, "sharded") for p in (8, 32, 128, 512)),
        *(("LLaMA-7B forward", llama("7B", 8, 4096), p, "free") for p in (256, 1024)),
    ):
        plan, spent, busy = timed(
            lambda g=graph, p=devices, i=inputs: ed.plan(g, p, inputs=i, time_limit=seconds)
        )
        print(f"{name}, p={devices}: {spent:.1f} s ({busy:.1f}), {gap(plan)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", default=["strategies", "pins", "time", "devices"])
    parser.add_argument("--seconds", type=float, default=20)
    asked = parser.parse_args()
    for name, run, limit in (
        ("strategies", strategies, asked.seconds),
        ("pins", pins, 15.0),
        ("time", clock, 5.0),
        ("devices", many_devices, 30.0),
    ):
        if name in asked.what:
            run(limit)


if __name__ == "__main__":
    main()
