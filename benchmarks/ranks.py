"""Engine `spmd` on ranks of this machine, against what a person would write and against peers.

`chain`: the paper's matrix chain by our ranks, by hand-written column panels and by ScaLAPACK in
one job, and by the threads of one process, in turns. `collectives`: what a repartition takes
against the transport's own call for the same bytes. `overhead`: a step that has nothing to do.
`heat`: 100 steps of the heat equation, 4096², against mpi4py with halos by hand.
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
from on_ranks.heat import heat_inside
from on_ranks.jobs import Record, launch, ranks_of, records, timed
from on_ranks.trouble import trouble

import eindecomp as ed
from eindecomp.experiments.calibrate.links import RankLinks
from eindecomp.experiments.paper import FFNN_QUICK, FFNN_SHAPE, RATES, one_billion
from eindecomp.models.fit import Loop
from eindecomp.models.initial import initial
from eindecomp.models.llama import Llama
from eindecomp.models.paper_graphs import Synthetic
from eindecomp.models.paper_graphs import ffnn as ffnn_graph
from eindecomp.planner.costs.machine import Collective

WHAT = ("chain", "collectives", "overhead", "heat", "classifier", "llama", "trouble")
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

SHARES: dict[Collective, Callable[[int], float]] = {
    # What a rank receives of a tensor.
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "all_to_all": lambda ranks: (ranks - 1) / ranks**2,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
}


def collectives_inside(quick: bool) -> Iterator[Record]:
    transport, ready = ranks_of("auto")
    links = RankLinks(transport, {"axis0": transport.size})
    for megabytes in (64,) if quick else (64, 1024):
        for name, share in SHARES.items():
            message = links.collectives[name]("axis0", int(megabytes * 2**20 * share(links.ranks)))
            raw = raw_call(transport, name, message.received)
            yield {
                "case": f"{name}, {megabytes} MB",
                **timed({"ours": message.way, "raw": raw}, ready, 5),
            }


def raw_call(transport: Any, name: Collective, received: int) -> Callable[[], object]:
    """The transport's own collective by which a rank receives so many bytes."""
    ranks = transport.size
    part = received // (ranks - 1) // 4
    own, into = np.ones(part * ranks, np.float32), np.empty(part * ranks, np.float32)
    if transport.name == "mpi":
        from mpi4py import MPI

        world = MPI.COMM_WORLD
        if name == "all_gather":
            return lambda: world.Allgather(own[:part], into)
        if name == "reduce_scatter":
            return lambda: world.Reduce_scatter_block(own, into[:part])
        return lambda: world.Alltoall(own, into)
    import torch
    import torch.distributed as dist

    out, to = torch.from_numpy(own), torch.from_numpy(into)
    if name == "all_gather":
        return lambda: dist.all_gather_single(to, out[:part])
    if name == "reduce_scatter":
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
    shape = FFNN_QUICK if quick else FFNN_SHAPE
    graph = ffnn_graph(**shape, optimizer="sgd")
    plan = ed.plan_together(lambda: ed.plan(graph, devices), engine)
    run = ed.compile(plan, engine)
    data = Synthetic(shape["batch"], shape["features"], shape["classes"])
    batches = cycle(list(islice(data.batches(), 4)))
    loop = Loop(graph, run, RATES["sgd"], "loss", initial(graph), [])
    return timed({"ours": lambda: loop.take(next(batches))}, ready, 6)


def ddp(quick: bool) -> list[float]:
    from peers import ddp as peer

    shape = FFNN_QUICK if quick else FFNN_SHAPE
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
    "heat": heat_inside,
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
    if what in ("collectives", "heat"):
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
