"""Engine `spmd` on ranks of this machine, against what a person would write and against peers.

`chain`: the paper's matrix chain by our ranks, by hand-written column panels and by ScaLAPACK in
one job, and by the threads of one process, in turns. `collectives`: what a repartition takes
against the transport's own call for the same bytes. `overhead`: a step that has nothing to do.
`classifier`: a training step against torch's DistributedDataParallel. `llama`: the 1B shape against
threads. `trouble`: a rank is killed, stopped or delayed, again and again. Ratios are our time over
theirs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from statistics import median
from typing import Any

import numpy as np
from on_ranks.chain import chain_alone, chain_inside
from on_ranks.jobs import Record, launch, ranks_of, records, timed
from on_ranks.trouble import trouble

import eindecomp as ed
from eindecomp.experiments.ffnn import QUICK, RATES, SHAPE
from eindecomp.experiments.llama import one_billion
from eindecomp.models.ffnn import ffnn as ffnn_graph
from eindecomp.models.fit import Loop
from eindecomp.models.initial import initial
from eindecomp.models.llama import Llama
from eindecomp.models.optimizers import carried
from eindecomp.models.synthetic import Synthetic

WHAT = ("chain", "collectives", "overhead", "classifier", "llama", "trouble")
_TURNS = 3


# Starting jobs


def inside(transport: str, ranks: int, what: str, *args: object) -> list[Record]:
    """What rank 0 of a job has to say."""
    command = [*launch(transport, ranks), __file__, what, "--inside", *map(str, args)]
    return records(command)


def alone(what: str, *args: object) -> list[Record]:
    """The same by the threads of one process."""
    return records([sys.executable, __file__, what, "--alone", *map(str, args)])


# What ranks do

PATTERNS = {
    # What a tensor lies along before and after.
    "all-gather": ({"i": "axis0"}, {}),
    "row to column": ({"i": "axis0"}, {"j": "axis0"}),
    "reduce-scatter": (None, None),
}


def collectives_inside(quick: bool) -> Iterator[Record]:
    transport, ready = ranks_of("auto")
    for megabytes in (64,) if quick else (64, 1024):
        side = int((megabytes * 2**20 / 4) ** 0.5) // transport.size * transport.size
        for name in PATTERNS:
            step, memory, raw = repartition(name, side, transport)
            yield {
                "case": f"{name}, {megabytes} MB",
                **timed({"ours": lambda s=step, m=memory: s(m), "raw": raw}, ready, 5),
            }


def repartition(
    name: str, side: int, transport: Any
) -> tuple[Callable[[Any], None], Any, Callable[[], object]]:
    """A step of a program that moves a matrix, and the transport's own call for the same bytes."""
    text = f"input X[i: {side}, j: {side}]\n"
    if name == "reduce-scatter":
        text = f"input X[i: {side}, j: {side}], Y[i, h: {transport.size}]\n"
        text += "Z[i,j] <- sum X[i,j] * Y[i,h]\noutput Z"
        plan = ed.plan(ed.parse(text), transport.size, strategy=["h"], rewrite=False)
    else:
        text += "Z[i,j] <- X[i,j] + 1\noutput Z"
        lies, wanted = PATTERNS[name]
        cut = ["j"] if wanted else ["i"]
        reader = "Z[j] <- max X[i,j]" if wanted else "Z[k] <- max X[i,j]"
        text = f"input X[i: {side}, j: {side}]\n{reader}\noutput Z"
        if not wanted:
            text = f"input X[i: {side}, j: {side}], Y[k: 8]\nZ[k] <- max X[i,j] * Y[k]\noutput Z"
            cut = ["k"]
        plan = ed.plan(ed.parse(text), transport.size, strategy=cut, pin={"X": lies}, rewrite=False)
    return moving_step(plan, transport, name)


def moving_step(plan: Any, transport: Any, name: str) -> Any:
    """The communication of a plan's only step that has any, made ready."""
    from eindecomp.engines.spmd.bound_row import bind_row
    from eindecomp.engines.spmd.rank_memory import RankMemory
    from eindecomp.engines.spmd.shared_arrays import shared_array
    from eindecomp.kernels.library import library_of
    from eindecomp.tra.program.make import program_of
    from eindecomp.tra.program.steps import Move, ReduceScatter

    program = program_of(plan)
    steps = program.steps
    kind = ReduceScatter if name == "reduce-scatter" else Move
    [number] = [
        k for k, each in enumerate(steps) if isinstance(each, kind) and program.moved_by(each)
    ]
    row = program.on(transport.rank)
    bound = bind_row(program, row, transport, library_of("numpy"), lambda *_: None)[number]
    assert bound.end is not None
    rng = np.random.default_rng(transport.rank)
    memory = RankMemory({}, {}, [None] * len(program.buffers), received=[0] * len(steps))
    source, into = (program.buffers[k] for k in (steps[number].source, steps[number].into))
    shape = tuple(high - low for low, high in source.box(plan.mesh, transport.rank))
    made = shared_array(shape, np.dtype(np.float32))  # as the engine makes what others read
    made[...] = rng.standard_normal(shape, np.float32)
    memory.held[source.number] = (made,)

    def step(memory: Any) -> None:
        bound.begin(memory)
        bound.end(memory)
        memory.spare.give(memory.array(into.number))

    moved = program.moved_by(steps[number]) // transport.size
    return step, memory, raw_call(transport, name, moved)


def raw_call(transport: Any, name: str, received: int) -> Callable[[], object]:
    """The transport's own collective by which a rank receives so many bytes."""
    ranks = transport.size
    part = received // (ranks - 1) // 4
    own, into = np.ones(part * ranks, np.float32), np.empty(part * ranks, np.float32)
    if transport.name == "mpi":
        from mpi4py import MPI

        world = MPI.COMM_WORLD
        if name == "all-gather":
            return lambda: world.Allgather(own[:part], into)
        if name == "reduce-scatter":
            return lambda: world.Reduce_scatter_block(own, into[:part])
        return lambda: world.Alltoall(own, into)
    import torch
    import torch.distributed as dist

    out, to = torch.from_numpy(own), torch.from_numpy(into)
    if name == "all-gather":
        return lambda: dist.all_gather_single(to, out[:part])
    if name == "reduce-scatter":
        return lambda: dist.reduce_scatter_single(to[:part], out)
    return lambda: dist.all_to_all_single(to, out)


def overhead_inside(quick: bool) -> Iterator[Record]:
    del quick
    transport, ready = ranks_of("auto")
    count = 500
    lines = [f"X{k + 1}[i] <- X{k}[i] + {k + 1}" for k in range(count)]
    graph = ed.parse("\n".join(["input X0[i: 8]", *lines, f"output X{count}"]))
    run = ed.compile(ed.plan(graph, transport.size, strategy=["i"], rewrite=False), engine="spmd")
    held = run.place({"X0": np.ones(8, np.float32)})
    steps = len(run._prepared.program.steps)
    yield {"case": "a step", "steps": steps, **timed({"ours": lambda: run(held)}, ready, 20)}


def classifier_inside(quick: bool) -> Iterator[Record]:
    transport, ready = ranks_of("auto")
    yield {"case": "classifier", **classifier("spmd", transport.size, ready, quick)}


def classifier(engine: str, devices: int, ready: Callable[[], object], quick: bool) -> Record:
    shape = QUICK if quick else SHAPE
    graph = ffnn_graph(**shape, optimizer="sgd")
    own = carried(graph)
    plan = ed.plan_together(lambda: ed.plan(graph, devices, tie=own), engine)
    run = ed.compile(plan, engine)
    data = Synthetic(shape["batch"], shape["features"], shape["classes"])
    batches = cycle(list(islice(data.batches(), 4)))
    loop = Loop(graph, run, own, RATES["sgd"], "loss", initial(graph), [])
    return timed({"ours": lambda: loop.take(next(batches))}, ready, 6)


def ddp(quick: bool) -> list[float]:
    from eindecomp.experiments.peers import ddp as peer

    shape = QUICK if quick else SHAPE
    graph = ffnn_graph(**shape, optimizer="sgd")
    data = Synthetic(shape["batch"], shape["features"], shape["classes"])
    batches = cycle(list(islice(data.batches(), 4)))
    with peer.training(str(graph), "sgd", RATES["sgd"]) as step:
        return [step(next(batches)).seconds for _ in range(7)][1:]


def llama_inside(quick: bool) -> Iterator[Record]:
    transport, ready = ranks_of("auto")
    yield from llama("spmd", transport.size, ready, quick)


def llama_alone(quick: bool) -> Iterator[Record]:
    yield from llama("threads", 2, int, quick)


def llama(engine: str, devices: int, ready: Callable[[], object], quick: bool) -> Iterator[Record]:
    config = one_billion(2 if quick else 4)
    with Llama.random(config, devices, engine=engine) as model:
        ids = np.random.default_rng(0).integers(0, config.vocabulary, (1, 128))
        prefill = timed({engine: lambda: model.prefill(ids, model.cache(1, 128))}, ready, 5)
        yield {"case": "prefill of 128", **prefill}
        cache = model.cache(1, 512)
        model.prefill(ids, cache)
        step = timed({engine: lambda: model.step(ids[:, 0], cache)}, ready, 24)
        yield {"case": "decode", **step}


INSIDE = {
    "chain": chain_inside,
    "collectives": collectives_inside,
    "overhead": overhead_inside,
    "classifier": classifier_inside,
    "llama": llama_inside,
}
ALONE = {"chain": chain_alone, "llama": llama_alone}


# What is shown


def best_of(times: list[float]) -> str:
    return f"{1e3 * min(times):.2f} ms (±{median(times) / min(times):.2f})"


def merged(parts: list[list[Record]]) -> dict[str, dict[str, list[float]]]:
    """The times of every case, of all turns together."""
    found: dict[str, dict[str, list[float]]] = {}
    for record in (each for part in parts for each in part):
        own = found.setdefault(record["case"], {})
        for name, times in record.items():
            if isinstance(times, list):
                own.setdefault(name, []).extend(times)
    return found


def notes(parts: list[list[Record]]) -> dict[str, str]:
    """What ranks say of a case beside its times; turns may say different things."""
    found: dict[str, dict[str, None]] = {}
    for record in (each for part in parts for each in part):
        if "note" in record:
            found.setdefault(record["case"], {})[record["note"]] = None
    return {case: "; ".join(each) for case, each in found.items()}


def show(parts: list[list[Record]], first: str = "ours") -> None:
    said = notes(parts)
    for case, times in merged(parts).items():
        own = min(times[first])
        others = {name: min(each) for name, each in times.items() if name != first}
        ratios = [f"{own / each:.2f} × {name}" for name, each in others.items()]
        shown = "  ".join(f"{name} {best_of(each)}" for name, each in times.items())
        note = f"   ({said[case]})" if case in said else ""
        print(f"{case}: {', '.join(ratios)}   {shown}{note}", flush=True)


def race(what: str, transport: str, ranks: int, quick: bool) -> None:
    flags = ["--quick"] if quick else []
    if what == "overhead":
        [record] = inside(transport, ranks, what, *flags)
        print(f"a step without work: {1e6 * min(record['ours']) / record['steps']:.1f} µs")
        return
    if what == "collectives":
        show([inside(transport, ranks, what, *flags)])
        return
    turns: list[list[Record]] = []
    for _ in range(_TURNS):
        turns.append(inside(transport, ranks, what, *flags))
        if what == "classifier":
            turns.append([{"case": "classifier", "torch DDP": ddp(quick)}])
        else:
            turns.append(alone(what, *flags))
    show(turns, "spmd" if what == "llama" else "ours")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", choices=[*WHAT, []])
    parser.add_argument("--transport", choices=("mpi", "torch"), default="mpi")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--times", type=int, default=20, help="how often a rank gets into trouble")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    for what in asked.what or WHAT[:-1]:
        if asked.inside or asked.alone:
            for row in (INSIDE if asked.inside else ALONE)[what](asked.quick):
                if asked.alone or not ranks_of("auto")[0].rank:
                    print(json.dumps(row), flush=True)
        elif what == "trouble":
            trouble(asked.transport, asked.times)
        else:
            race(what, asked.transport, asked.ranks, asked.quick)


if __name__ == "__main__":
    main()
