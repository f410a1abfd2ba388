"""Training the paper's classifier: our plan and engine against torch, alone and data parallel.

A step of ours, of torch in one process with as many threads as there are cores, and of torch's
DistributedDataParallel over gloo, one rank of one thread a core, the batch divided among them, take
turns on the same batches of synthetic data; parameters begin equal, and the same few batches come
again and again, so that there is something to learn in few steps. Rows are the best step, after two
to warm up; the spread is the worst over the best. Losses are compared step by step. Then what plans
for more devices move, with inputs where they are wanted and with inputs stored once. `--quick` is
a tenth of the size.
"""

from __future__ import annotations

import argparse
import os
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle, islice
from time import perf_counter

import numpy as np

import eindecomp as ed
from eindecomp import models
from eindecomp.engines.events import Event, TaskFinished
from eindecomp.engines.threads.engine import ThreadsEngine
from eindecomp.engines.threads.spare import Spare

CORES = len(os.sched_getaffinity(0))
WARM_UP = 2
BATCHES = 4
SHAPE = {"batch": 128, "features": 32768, "hidden": 2048, "classes": 14588}
QUICK = {"batch": 128, "features": 4096, "hidden": 512, "classes": 1500}
RATES = {"sgd": 2.0, "momentum": 0.5, "adam": 1e-3, "adamw": 1e-3}
Arrays = Mapping[str, np.ndarray]


class TorchNet:
    """The classifier as a user of torch writes it; on one rank of several with `distribute`."""

    def __init__(self, state: Arrays, optimizer: str, threads: int, distribute: bool = False):
        import torch

        torch.set_num_threads(threads)
        (features, hidden), classes = state["W1"].shape, state["b2"].size
        layers = torch.nn.Linear(features, hidden), torch.nn.Linear(hidden, classes)
        with torch.no_grad():
            for layer, weight, bias in zip(layers, ("W1", "W2"), ("b1", "b2"), strict=True):
                layer.weight.copy_(torch.from_numpy(state[weight].T))
                layer.bias.copy_(torch.from_numpy(state[bias]))
        net = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1])
        if distribute:
            net = torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
        self.torch, self.net = torch, net
        make = {
            "sgd": torch.optim.SGD,
            "momentum": lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9),
            "adam": torch.optim.Adam,
            "adamw": torch.optim.AdamW,
        }[optimizer]
        self.optimizer = make(net.parameters(), lr=RATES[optimizer])

    def step(self, batch: Arrays) -> float:
        torch = self.torch
        x, y = torch.from_numpy(batch["x"]), torch.from_numpy(batch["y"]).long()
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()


class Ranks:
    """Torch's data-parallel training in processes that wait for their parts of a batch."""

    def __init__(self, graph: ed.Graph, optimizer: str):
        from torch import multiprocessing

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        context = multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for rank in range(CORES):
            ours, theirs = context.Pipe()
            arguments = (theirs, rank, port, str(graph), optimizer)
            self.processes.append(context.Process(target=serve, args=arguments, daemon=True))
            self.processes[-1].start()
            self.pipes.append(ours)
        for pipe in self.pipes:
            pipe.recv()

    def hand_out(self, batch: Arrays) -> None:
        """Give every rank its part; that is not timed, as loaders do it meanwhile."""
        for rank, pipe in enumerate(self.pipes):
            pipe.send({name: np.array_split(array, CORES)[rank] for name, array in batch.items()})
            pipe.recv()

    def step(self, batch: Arrays) -> float:
        for pipe in self.pipes:
            pipe.send("step")
        parts = [len(part) for part in np.array_split(batch["y"], CORES)]
        return float(np.average([pipe.recv() for pipe in self.pipes], weights=parts))

    def stop(self) -> None:
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            pipe.send(None)
            process.join()


def serve(pipe, rank: int, port: int, graph: str, optimizer: str) -> None:
    """One rank: takes a batch, says so, waits for the word, trains, answers with its loss."""
    import torch.distributed as distributed

    address = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=CORES)
    net = TorchNet(models.initial(ed.parse(graph)), optimizer, threads=1, distribute=True)
    pipe.send("ready")
    while (batch := pipe.recv()) is not None:
        pipe.send("taken")
        pipe.recv()
        pipe.send(net.step(batch))
    distributed.destroy_process_group()


def compare(shape: Mapping[str, int], optimizer: str, steps: int) -> None:
    """Seconds of a step of each, and whether all learn alike."""
    graph = models.ffnn(**shape, optimizer=optimizer)
    data = models.Synthetic(shape["batch"], shape["features"], shape["classes"])
    state = models.initial(graph)
    ranks = Ranks(graph, optimizer)
    peers: dict[str, Callable[[Arrays], float]] = {
        f"torch, {CORES} threads": TorchNet(state, optimizer, CORES).step,
        f"torch DDP, {CORES} ranks": ranks.step,
    }
    times: dict[str, list[float]] = defaultdict(list)
    losses: dict[str, list[float]] = defaultdict(list)
    started = 0.0

    def turns() -> Iterator[Arrays]:
        nonlocal started
        for batch in cycle(islice(data.batches(), BATCHES)):
            ranks.hand_out(batch)
            for name, step in peers.items():
                start = perf_counter()
                losses[name].append(step(batch))
                times[name].append(perf_counter() - start)
            started = perf_counter()
            yield batch

    def stop_clock(_step: int, _loss: float) -> None:
        times["eindecomp"].append(perf_counter() - started)

    fitted = models.fit(
        graph, turns(), state, lr=RATES[optimizer], steps=steps, devices=CORES, on_step=stop_clock
    )
    ranks.stop()
    losses["eindecomp"] = fitted.losses
    ours = min(times["eindecomp"][WARM_UP:])
    for name in ("eindecomp", *peers):
        best, worst = min(times[name][WARM_UP:]), max(times[name][WARM_UP:])
        apart = np.abs(np.divide(losses[name], fitted.losses) - 1).max()
        print(
            f"{optimizer:8} {name:20} {best:7.3f} s  ours/it {ours / best:5.3f}  "
            f"spread {worst / best:4.2f}  loss {losses[name][0]:.4f} to {losses[name][-1]:.4f}, "
            f"apart by {apart:.1e}",
            flush=True,
        )
    assert fitted.losses[-1] < fitted.losses[0]
    profile(fitted, next(data.batches()), optimizer)


def profile(fitted: models.Fitted, batch: Arrays, optimizer: str) -> None:
    """Where further steps of ours spend their time; the second finds the memory of the first."""
    spent: dict[str, float] = defaultdict(float)
    engine = ThreadsEngine(spare=Spare())

    def add(event: Event) -> None:
        if isinstance(event, TaskFinished):
            spent[event.vertex] += event.end - event.start

    scalars = {"lr": RATES[optimizer], "step": fitted.step + 1}
    known = {name: scalars[name] for name in fitted.plan.graph.scalars}
    for _ in range(2):
        spent.clear()
        result = ed.run(fitted.plan, {**batch, **known, **fitted.state}, engine, on_event=add)
        assert result.stats.bytes_moved == fitted.plan.cost
        for array in result.values():
            engine.spare.give(array)
    slowest = sorted(spent.items(), key=lambda item: -item[1])[:9]
    print("  ms a core:", ", ".join(f"{name} {1e3 * t / CORES:.0f}" for name, t in slowest))


def count_bytes(shape: Mapping[str, int]) -> None:
    """What plans move for more devices, beside what people do by hand."""
    graph = models.ffnn(**shape)
    strategies = (None, "sqrt", "data", "megatron")
    print("inputs    devices" + "".join(f"{name or 'eindecomp':>16}" for name in strategies))
    for inputs in ("free", "sharded"):
        for devices in (2, 4, 8, 16, 32, 64):
            plans = [ed.plan(graph, devices, strategy=s, inputs=inputs) for s in strategies]
            best = plans[0].cost
            cells = [f"{p.cost / 1e6:9.1f} MB{p.cost / best:4.0f}×" for p in plans]
            print(f"{inputs:8} {devices:8}" + "".join(cells), flush=True)
            assert all(best <= plan.cost for plan in plans)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the size")
    parser.add_argument("--optimizer", choices=RATES, action="append", help="sgd, if none is given")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    shape = QUICK if options.quick else SHAPE
    for optimizer in options.optimizer or ["sgd"]:
        compare(shape, optimizer, options.steps)
    count_bytes(shape)


if __name__ == "__main__":
    main()
