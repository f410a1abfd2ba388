"""Plans in short times and for many devices: against strategies that everybody knows, and a clock.

`strategies`: a training step of one LLaMA layer, freely planned, against every named strategy with
the same time limit; below 1.000 a strategy moves less. `strangers`: the same for graphs of an
independent tester. `seconds`: the same for objective time, on
H100 servers. `pins`: what pins alone say. `time`: how long plans take with 5 seconds to spare,
`memory`: with 3 where memory is scarce.
`devices`: gaps at many devices. `products`: single products and contractions against their best
grids, and the smaller numbers of devices that awkward ones are told of. Without a name, all of
them; `--seconds` sets the limit of the first three. Those, and `products`, make every plan in a
process of its own: the first plan of a session, with all that is loaded for it.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from multiprocessing import get_context
from time import perf_counter, process_time
from typing import Any

import numpy as np
from any_schedule import Case, best_grid, grid_bytes, matrices, mttkrp
from objective_and_simulation import layer
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
STATE_SPACES = [8, 16, 32], [1, 8, 16, 64], [64, 256, 1024], [16, 64]
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
        options: Any = {"inputs": inputs, "time_limit": seconds}
        name = f"{model} b={batch} p={devices} {inputs}"
        against_strategies(name, training_layer(model, batch), devices, options)


def grouped_attention() -> ed.Graph:
    """An attention block in which four heads of queries share one of keys."""
    sizes = "input X[b: 8, s: 2048, a: 4096], WQ[a, h: 8, g: 4, d: 128], WK[a,h,d], WV[a,h,d]"
    return ed.parse(f"""{sizes}, WO[h,g,d,a]
Q[b,s,h,g,d] <- sum X[b,s,a] * WQ[a,h,g,d]
K[b,t,h,d]   <- sum X[b,t,a] * WK[a,h,d]
V[b,t,h,d]   <- sum X[b,t,a] * WV[a,h,d]
S[b,h,g,s,t] <- sum Q[b,s,h,g,d] * K[b,t,h,d]
P[b,h,g,s,t] <- softmax[t] S[b,h,g,s,t]
O[b,s,h,g,d] <- sum P[b,h,g,s,t] * V[b,t,h,d]
Y[b,s,a]     <- sum O[b,s,h,g,d] * WO[h,g,d,a]
output Y""")


def strangers(seconds: float) -> None:
    print(f"\nstrategy / free, graphs of an independent tester, time_limit={seconds:g}")
    options: Any = {"inputs": "sharded", "time_limit": seconds}
    for devices in (8, 64, 120):
        name = f"attention with grouped keys, p={devices}"
        against_strategies(name, grouped_attention(), devices, options)
    for devices in (8, 64, 1024):
        name = f"7B training step, b=8 p={devices}"
        against_strategies(name, training_layer("7B", 8), devices, options)
    limited = {**options, "memory": "40MB"}
    against_strategies("MLP of 16 layers in 40 MB, p=64", unequal_mlp(16), 64, limited)


def seconds_of_plans(seconds: float) -> None:
    print(f"\nobjective time, h100-servers, sharded, time_limit={seconds:g}: strategy / free")
    for what, make in (("forward", layer), ("training step", training_layer)):
        for devices in (16, 64):
            options: Any = {"inputs": "sharded", "time_limit": seconds}
            options |= {"objective": "time", "machine": "h100-servers"}
            name = f"{what} of a 7B layer, b=8 p={devices}"
            against_strategies(name, make("7B", 8), devices, options)


def against_strategies(name: str, graph: ed.Graph, devices: int, options: dict[str, Any]) -> None:
    free, said, spent, busy = freshly(planned, graph, devices, options)
    if free is None:
        print(f"{name}: {spent:.1f} s ({busy:.1f} of processor), {said}", flush=True)
        return
    cost = f"{free:,} bytes" if isinstance(free, int) else f"{1e3 * free:.3f} ms"
    print(f"{name}: {spent:.1f} s ({busy:.1f} of processor), {cost}, {said}", flush=True)
    for strategy in STRATEGIES:
        asked = {**options, "strategy": strategy}
        under, _, spent, busy = freshly(planned, graph, devices, asked)
        if under is not None:
            print(f"    {strategy:14} {under / free:.3f}  {spent:5.1f} s ({busy:.1f})", flush=True)


def freshly(work: Callable[..., Any], *given: Any) -> Any:
    """What a function returns in a process of its own."""
    with get_context("spawn").Pool(1) as fresh:
        return fresh.apply(work, given)


def planned(graph: ed.Graph, devices: int, options: dict[str, Any]) -> tuple[Any, ...]:
    """What a plan costs, if there is one, its gap or the error, and the seconds that it took."""
    plan, spent, busy = timed(lambda: ed.plan(graph, devices, **options))
    if isinstance(plan, ed.Plan):
        return plan.cost, gap(plan), spent, busy
    return None, f"{type(plan).__name__}: {plan}", spent, busy


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


def state_space(steps: int, batch: int, width: int, state: int) -> ed.Graph:
    """A linear recurrence of a state, read at every step."""
    lines = [f"input H0[b: {batch}, d: {width}, s: {state}], A[d, s]"]
    for k in range(steps):
        lines += [f"input X{k}[b, d], B{k}[b, s], C{k}[b, s]"]
        lines += [f"H{k + 1}[b,d,s] <- A[d,s] * H{k}[b,d,s] + X{k}[b,d] * B{k}[b,s]"]
        lines += [f"Y{k}[b,d] <- sum H{k + 1}[b,d,s] * C{k}[b,s]"]
    return ed.parse("\n".join([*lines, "output " + ", ".join(f"Y{k}" for k in range(steps))]))


def scarce_memory(seconds: float) -> None:
    """How long plans take where hardly any, or none, fits into memory."""
    print(f"\nscarce memory, time_limit={seconds:g}")
    rng = np.random.default_rng(0)
    late: list[float] = []
    fits = 0
    for _ in range(60):
        pick = int(rng.integers(3))
        if pick == 0:
            steps, batch, width, state = (int(rng.choice(of)) for of in STATE_SPACES)
            graph = state_space(steps, batch, width, state)
        else:
            graph = random_graph(int(rng.choice([20, 60, 150])), int(rng.integers(1000)))
        graph = unequal_mlp(int(rng.choice([10, 40]))) if pick == 1 else graph
        devices = int(rng.choice([4, 8, 16, 64]))
        sizes = [v.elements * v.dtype.itemsize for v in graph.vertices.values()]
        inputs = sum(v.elements * v.dtype.itemsize for v in graph.inputs)
        share = float(rng.choice([0.5, 0.8, 1.05, 1.3, 2, 3])) / devices
        memory = int(share * (inputs + 3 * max(sizes)))
        asked: Any = {"memory": memory, "time_limit": seconds}
        asked["inputs"] = str(rng.choice(["free", "sharded"]))

        run = functools.partial(ed.plan, graph, devices, **asked)
        plan, spent, busy = timed(run)
        late.append(max(min(spent, busy) - seconds, 0))
        fits += isinstance(plan, ed.Plan)
    late.sort()
    middle, most = late[len(late) // 2], late[9 * len(late) // 10]
    print(f"{fits} of {len(late)} fit; processor time beyond the limit: median {middle:.1f} s,")
    print(f"nine of ten {most:.1f} s, most {late[-1]:.1f} s")


def training_7b() -> ed.Graph:
    graph = llama("7B", 8, 4096)
    last = graph.outputs[0]
    graph.output(graph.einsum("b s a ->", last, join="x**2", agg="sum", name="loss"))
    weights = [v.name for v in graph.inputs if v.name not in ("X0", "SIZES")]
    return ed.models.training_step(graph, "loss", weights)


def products(seconds: float) -> None:
    print(f"\nproducts, time_limit={seconds:g}: plan / best grid; a fresh process, first plan")
    cases = [
        matrices(4096, 4096, 4096, 512, 1024, 4096),
        matrices(1000, 1000, 1000, 11, 97, 360, 720, 997, 1000),
        matrices(9600, 2400, 600, 512),
        matrices(65536, 256, 256, 2048),
        Case("bik,bkj->bij", {"b": 6, "i": 1000, "j": 1000, "k": 64}, (60, 4096)),
        Case("bshd,bthd->bhst", {"b": 4, "s": 2048, "h": 6, "d": 128, "t": 2048}, (97, 4096)),
        mttkrp(512, 32, 64, 512, 4096),
        Case("ijkl,jr,kr,lr->ir", {**dict.fromkeys("ijkl", 128), "r": 16}, (256, 1000)),
    ]
    asked = {"inputs": "sharded", "rewrite": False, "work": None, "time_limit": seconds}
    for case in cases:
        for devices in case.devices:
            cost, told, spent, _ = freshly(planned, case.graph(), devices, asked)
            ratio = cost / grid_bytes(case, best_grid(case, devices))
            print(f"{case.name}, p={devices}: {ratio:.4f}, {spent:.2f} s, {told}", flush=True)
    for devices in (7, 11, 13, 25, 97, 997):
        plan = ed.plan(product_graph(1000, 1000, 1000), devices, inputs="sharded")
        fewer, spent, _ = timed(lambda p=plan: p.fewer_devices)
        print(f"1000³, p={devices}: {plan.cost:,} bytes; {fewer}, {1000 * spent:.0f} ms")


def many_devices(seconds: float) -> None:
    print(f"\nmany devices, time_limit={seconds:g}")
    for name, graph, devices, inputs in (
        *(("MLP of 16 unequal layers", unequal_mlp(16), p, "sharded") for p in (8, 32, 128, 512)),
        *(("LLaMA-7B forward", llama("7B", 8, 4096), p, "free") for p in (256, 1024)),
    ):
        plan, spent, busy = timed(
            lambda g=graph, p=devices, i=inputs: ed.plan(g, p, inputs=i, time_limit=seconds)
        )
        print(f"{name}, p={devices}: {spent:.1f} s ({busy:.1f}), {gap(plan)}", flush=True)


SECTIONS: dict[str, tuple[Callable[[float], None], float]] = {
    "strategies": (strategies, 0),  # as many as are asked for
    "strangers": (strangers, 0),
    "seconds": (seconds_of_plans, 0),
    "pins": (pins, 15.0),
    "time": (clock, 5.0),
    "memory": (scarce_memory, 3.0),
    "devices": (many_devices, 30.0),
    "products": (products, 5.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", default=[*SECTIONS])
    parser.add_argument("--seconds", type=float, default=20)
    asked = parser.parse_args()
    for name in SECTIONS:
        if name in asked.what:
            run, limit = SECTIONS[name]
            run(limit or asked.seconds)


if __name__ == "__main__":
    main()
