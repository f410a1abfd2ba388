"""Planning LLaMA: seconds to a plan, its cost against the proved bound and against strategies.

Graphs are built with explicit softmax and norms, and building them is part of the time. The peer is
the paper's own linearisation for its objective, and the usual strategies for real bytes, planned in
the same run. `--quick` leaves out the largest.
"""

from __future__ import annotations

import argparse
from time import perf_counter

import eindecomp as ed

LAYER = """
input N{l}[a], WQ{l}[a,h,d], WK{l}[a,h,d], WV{l}[a,h,d], WO{l}[h,d,a]
input M{l}[a], WG{l}[a,f], WU{l}[a,f], WD{l}[f,a]
SX{l}[b,s]     <- sum X{l}[b,s,a]**2
XN{l}[b,s,a]   <- X{l}[b,s,a] * rsqrt(SX{l}[b,s] / size(a) + 1e-5) * N{l}[a]
Q{l}[b,s,h,d]  <- sum XN{l}[b,s,a] * WQ{l}[a,h,d]
K{l}[b,s,h,d]  <- sum XN{l}[b,s,a] * WK{l}[a,h,d]
V{l}[b,s,h,d]  <- sum XN{l}[b,s,a] * WV{l}[a,h,d]
T{l}[b,h,s,t]  <- sum Q{l}[b,s,h,d] * K{l}[b,t,h,d]
MX{l}[b,h,s]   <- max T{l}[b,h,s,t]
E{l}[b,h,s,t]  <- exp((T{l}[b,h,s,t] - MX{l}[b,h,s]) / sqrt(size(d)))
S{l}[b,h,s]    <- sum E{l}[b,h,s,t]
P{l}[b,h,s,t]  <- E{l}[b,h,s,t] / S{l}[b,h,s]
O{l}[b,s,h,d]  <- sum P{l}[b,h,s,t] * V{l}[b,t,h,d]
Y{l}[b,s,a]    <- sum O{l}[b,s,h,d] * WO{l}[h,d,a]
R{l}[b,s,a]    <- X{l}[b,s,a] + Y{l}[b,s,a]
SR{l}[b,s]     <- sum R{l}[b,s,a]**2
RN{l}[b,s,a]   <- R{l}[b,s,a] * rsqrt(SR{l}[b,s] / size(a) + 1e-5) * M{l}[a]
G{l}[b,s,f]    <- sum RN{l}[b,s,a] * WG{l}[a,f]
U{l}[b,s,f]    <- sum RN{l}[b,s,a] * WU{l}[a,f]
A{l}[b,s,f]    <- silu(G{l}[b,s,f]) * U{l}[b,s,f]
D{l}[b,s,a]    <- sum A{l}[b,s,f] * WD{l}[f,a]
X{n}[b,s,a]    <- R{l}[b,s,a] + D{l}[b,s,a]
"""
SHAPES = {  # layers, a, h, d, f
    "7B": (32, 4096, 32, 128, 11008),
    "65B": (80, 8192, 64, 128, 22016),
}


def llama(model: str, batch: int, sequence: int) -> ed.Graph:
    """The prefill of a LLaMA, from embedded tokens to the last layer's output."""
    layers, a, h, d, f = SHAPES[model]
    lines = [f"input X0[b: {batch}, s: {sequence}, a: {a}], SIZES[h: {h}, d: {d}, f: {f}]"]
    lines += [LAYER.format(l=i, n=i + 1) for i in range(layers)]
    return ed.parse("\n".join([*lines, f"output X{layers}"]))


def training(model: str, batch: int, sequence: int) -> ed.Graph:
    """Forward, backward and a plain gradient step on every weight."""
    graph = llama(model, batch, sequence)
    last = graph.outputs[0]
    graph.output(graph.einsum("b s a ->", last, join="x**2", agg="sum", name="loss"))
    weights = [v.name for v in graph.inputs if v.name not in ("X0", "SIZES")]
    graph = ed.grad(graph, "loss", wrt=weights)
    for name in weights:
        labels = " ".join(graph[name].labels)
        step = graph.einsum(
            f"{labels}, {labels} -> {labels}", name, f"grad_{name}", join="x - 0.001 * y"
        )
        graph.output(step)
    return graph


def show(model: str, what: str, devices: int, seconds: float, plan: ed.Plan, note: str) -> None:
    proof = "proved" if plan.gap < 1e-9 else f"{100 * plan.gap:.2f} %"
    print(
        f"{model:9} {what:6} {devices:5} {seconds:8.2f} {plan.cost:>22,} {proof:>9}  {note}",
        flush=True,
    )


def bound(model: str, devices: int) -> None:
    """The paper's objective, and what its linearisation costs beside the optimum."""
    start = perf_counter()
    graph = llama(model, 8, 4096)
    plan = ed.plan(graph, devices, "bound")
    seconds = perf_counter() - start
    linear = ed.plan(graph, devices, "bound", solver="linear")
    show(model, "bound", devices, seconds, plan, f"linearisation {linear.cost / plan.cost:.2f} ×")


def moved(model: str, devices: int, batch: int, strategies: tuple[str, ...]) -> None:
    """Real bytes, and what strategies move beside that."""
    start = perf_counter()
    graph = llama(model, batch, 4096)
    plan = ed.plan(graph, devices)
    seconds = perf_counter() - start
    layers, a, *_ = SHAPES[model]
    unit = 4 * layers * batch * 4096 * a
    note = f"b={batch}: {plan.cost / unit:.4g} b·s·a a layer"
    for name in strategies:
        other = ed.plan(graph, devices, strategy=name)
        note += f", {name} {other.cost / unit:.4g}"
    show(model, "bytes", devices, seconds, plan, note)


def trained(model: str, devices: int) -> None:
    """A whole training step."""
    start = perf_counter()
    graph = training(model, 8, 4096)
    plan = ed.plan(graph, devices)
    seconds = perf_counter() - start
    show(model, "bytes", devices, seconds, plan, f"training, {len(plan.parts)} vertices")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave out the largest")
    quick = parser.parse_args().quick
    print("model     object devices seconds                   cost       gap")
    for devices in (8, 64) if quick else (8, 64, 1024):
        bound("7B", devices)
    bound("65B", 8)
    moved("7B", 8, 1, ("megatron", "sequence"))
    for devices in (8, 64) if quick else (8, 64, 1024):
        moved("7B", devices, 8, ())
    moved("65B", 8, 8, ())
    if not quick:
        for devices in (8, 16):
            trained("7B", devices)


if __name__ == "__main__":
    main()
