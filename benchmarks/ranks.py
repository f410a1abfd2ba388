"""Engine `spmd` on ranks of this machine, against what a person would write and against peers.

`chain`: the paper's matrix chain by our ranks and by hand-written column panels, in one job, and by
the threads of one process, in turns. `collectives`: what a repartition takes against the
transport's own call for the same bytes. `overhead`: a step that has nothing to do. `classifier`:
a training step against torch's DistributedDataParallel. `llama`: the 1B shape against threads.
`trouble`: a rank is killed, stopped or delayed, again and again. Ratios are our time over theirs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter
from typing import Any

import numpy as np

import eindecomp as ed
from eindecomp.experiments.ffnn import QUICK, RATES, SHAPE
from eindecomp.experiments.llama import one_billion
from eindecomp.models.chain import chain as chain_graph
from eindecomp.models.ffnn import ffnn as ffnn_graph
from eindecomp.models.fit import Loop
from eindecomp.models.initial import initial
from eindecomp.models.llama import Llama
from eindecomp.models.optimizers import carried
from eindecomp.models.synthetic import Synthetic

Array = np.ndarray[Any, Any]
Record = dict[str, Any]
WHAT = ("chain", "collectives", "overhead", "classifier", "llama", "trouble")
_TURNS = 3


# Starting jobs


def launch(transport: str, ranks: int) -> list[str]:
    """The command that starts Python on so many ranks."""
    if transport == "mpi":
        mpirun = shutil.which("mpirun") or sys.exit("there is no mpirun")
        return [mpirun, "--oversubscribe", "-n", str(ranks), sys.executable]
    run = [sys.executable, "-m", "torch.distributed.run", "--master-addr", "127.0.0.1"]
    return [*run, "--master-port", "29533", "--nproc-per-node", str(ranks)]


def inside(transport: str, ranks: int, what: str, *args: object) -> list[Record]:
    """What rank 0 of a job has to say."""
    command = [*launch(transport, ranks), __file__, what, "--inside", *map(str, args)]
    return records(command)


def alone(what: str, *args: object) -> list[Record]:
    """The same by the threads of one process."""
    return records([sys.executable, __file__, what, "--alone", *map(str, args)])


def records(command: list[str]) -> list[Record]:
    env = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)  # noqa: S603
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def best_of(times: list[float]) -> str:
    return f"{1e3 * min(times):.2f} ms (±{median(times) / min(times):.2f})"


def timed(ways: dict[str, Callable[[], object]], ready: Callable[[], object], turns: int) -> Record:
    """Seconds of each way, in turns, after everybody is ready."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(turns + 1):
        for name, way in ways.items():
            ready()
            start = perf_counter()
            way()
            ready()
            if turn:
                found[name].append(perf_counter() - start)
    return found


# What ranks do


def ranks_of(transport: str) -> tuple[Any, Callable[[], object]]:
    from eindecomp.engines.spmd.transport import connect

    found = connect(transport)
    return found, lambda: found.total(np.zeros(1, np.int64))


CHAINS = {"uniform, 2000": (2000, False), "uniform, 4000": (4000, False),
          "skewed, 2000": (2000, True), "skewed, 4000": (4000, True)}  # fmt: skip


def numbers(graph: ed.Graph) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {v.name: rng.standard_normal(v.shape, np.float32) for v in graph.inputs}


def chain_inside(quick: bool) -> Iterator[Record]:
    transport, ready = ranks_of("auto")
    for case, (size, skewed) in islice(CHAINS.items(), 0, None, 2 if quick else 1):
        graph = chain_graph(size, skewed)
        given = numbers(graph)
        plan = ed.plan_together(lambda graph=graph: ed.plan(graph, transport.size))
        run = ed.compile(plan, engine="spmd")
        held = run.place(given)
        panels = panels_of(given, transport.rank, transport.size)
        ways = {"ours": lambda run=run, held=held: run(held), "panels": panels}
        yield {"case": case, **timed(ways, ready, 5)}


def panels_of(x: dict[str, Array], rank: int, ranks: int) -> Callable[[], Array]:
    """(A·B) + (C·(D·E)) for a rank's columns of B and E: nothing moves."""
    a, b, c, d, e = x.values()
    low, high = rank * b.shape[1] // ranks, (rank + 1) * b.shape[1] // ranks
    b, e = (np.ascontiguousarray(each[:, low:high]) for each in (b, e))
    from threadpoolctl import threadpool_limits

    def compute() -> Array:
        with threadpool_limits(1):
            return a @ b + c @ (d @ e)

    return compute


def chain_alone(quick: bool) -> Iterator[Record]:
    for case, (size, skewed) in islice(CHAINS.items(), 0, None, 2 if quick else 1):
        graph = chain_graph(size, skewed)
        run = ed.compile(ed.plan(graph, 2))
        held = run.place(numbers(graph))
        yield {"case": case, **timed({"threads": lambda run=run, held=held: run(held)}, int, 5)}


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
    from eindecomp.engines.spare import Spare
    from eindecomp.engines.spmd.bound_row import bind_row
    from eindecomp.engines.spmd.rank_memory import RankMemory
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
    memory = RankMemory({}, {}, [None] * len(program.buffers), Spare(), received=[0] * len(steps))
    source, into = (program.buffers[k] for k in (steps[number].source, steps[number].into))
    shape = tuple(high - low for low, high in source.box(plan.mesh, transport.rank))
    memory.held[source.number] = (rng.standard_normal(shape, np.float32),)

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


# What is shown


def merged(parts: list[list[Record]]) -> dict[str, dict[str, list[float]]]:
    """The times of every case, of all turns together."""
    found: dict[str, dict[str, list[float]]] = {}
    for record in (each for part in parts for each in part):
        own = found.setdefault(record["case"], {})
        for name, times in record.items():
            if isinstance(times, list):
                own.setdefault(name, []).extend(times)
    return found


def show(found: dict[str, dict[str, list[float]]], first: str = "ours") -> None:
    for case, times in found.items():
        own = min(times[first])
        others = {name: min(each) for name, each in times.items() if name != first}
        ratios = [f"{own / each:.2f} × {name}" for name, each in others.items()]
        shown = "  ".join(f"{name} {best_of(each)}" for name, each in times.items())
        print(f"{case}: {', '.join(ratios)}   {shown}", flush=True)


def race(what: str, transport: str, ranks: int, quick: bool) -> None:
    flags = ["--quick"] if quick else []
    if what == "overhead":
        [record] = inside(transport, ranks, what, *flags)
        print(f"a step without work: {1e6 * min(record['ours']) / record['steps']:.1f} µs")
        return
    if what == "collectives":
        show(merged([inside(transport, ranks, what, *flags)]))
        return
    turns: list[list[Record]] = []
    for _ in range(_TURNS):
        turns.append(inside(transport, ranks, what, *flags))
        if what == "classifier":
            turns.append([{"case": "classifier", "torch DDP": ddp(quick)}])
        else:
            turns.append(alone(what, *flags))
    show(merged(turns), "spmd" if what == "llama" else "ours")


def trouble(transport: str, count: int) -> None:
    """A rank gets into trouble at a random moment: how long until the job has ended."""
    rng = np.random.default_rng(0)
    script = Path(__file__).parents[1] / "tests" / "engines" / "spmd" / "ranks" / "trouble.py"
    env = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    for how in ("kill", "stop", "delay"):
        took: list[float] = []
        right = 0
        for _ in range(count):
            begin = int(rng.integers(1, 4000))
            command = [*launch(transport, 2), str(script), how, "20", str(begin)]
            with tempfile.TemporaryFile("w+") as heard:
                start = monotonic()
                process = subprocess.Popen(  # noqa: S603
                    command, stdout=heard, stderr=heard, env=env, start_new_session=True
                )
                try:
                    status = process.wait(90)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    status = 0
                took.append(monotonic() - start)
                heard.seek(0)
                right += bool(status) and "Z[k]" in heard.read()
        print(f"{how}: {right} of {count} ended with a clear error, at most {max(took):.0f} s "
              "after the job was started", flush=True)  # fmt: skip


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
            rows = globals()[f"{what}_{'inside' if asked.inside else 'alone'}"](asked.quick)
            for row in rows:
                if asked.alone or not ranks_of("auto")[0].rank:
                    print(json.dumps(row), flush=True)
        elif what == "trouble":
            trouble(asked.transport, asked.times)
        else:
            race(what, asked.transport, asked.ranks, asked.quick)


if __name__ == "__main__":
    main()
