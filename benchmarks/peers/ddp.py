"""The classifier under torch's DistributedDataParallel over gloo: a rank of one thread a core."""

from __future__ import annotations

import socket
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.experiments.measure import Lapse
from eindecomp.graph.text.elaborate import parse
from eindecomp.kernels.cores import cores
from eindecomp.models.initial import initial
from peers import frameworks
from peers.race import Absent
from peers.torch import TorchNet

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]
    Batch = Mapping[str, Array]

_PATIENCE = 10.0  # seconds that ranks have to leave


@contextmanager
def training(graph: str, optimizer: str, lr: float) -> Generator[Callable[[Batch], Lapse]]:
    """Ranks that wait for their parts of a batch; each begins with `initial` of the graph."""
    torch = frameworks.torch()
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        raise Absent("torch has no gloo")
    ranks = _Ranks(graph, optimizer, lr)
    try:
        yield ranks.step
    finally:
        ranks.stop()


class _Ranks:
    def __init__(self, graph: str, optimizer: str, lr: float) -> None:
        from multiprocessing import get_context

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        context = get_context("spawn")
        self.pipes: list[Any] = []
        self.processes: list[Any] = []
        for rank in range(cores()):
            ours, theirs = context.Pipe()
            given = (theirs, rank, cores(), port, graph, optimizer, lr)
            self.processes.append(context.Process(target=serve, args=given, daemon=True))
            self.processes[-1].start()
            theirs.close()
            self.pipes.append(ours)
        try:
            for pipe in self.pipes:
                pipe.recv()
        except EOFError:
            self.stop()
            raise Absent("a rank ended before it was ready") from None

    def step(self, batch: Batch) -> Lapse:
        """Handing out the parts is not timed, as loaders do it meanwhile."""
        count = len(self.pipes)
        for rank, pipe in enumerate(self.pipes):
            pipe.send({name: np.array_split(array, count)[rank] for name, array in batch.items()})
            pipe.recv()
        start = perf_counter()
        for pipe in self.pipes:
            pipe.send("step")
        losses = [pipe.recv() for pipe in self.pipes]
        spent = perf_counter() - start
        parts = [len(part) for part in np.array_split(batch["y"], count)]
        return Lapse(spent, float(np.average(losses, weights=parts)))

    def stop(self) -> None:
        # All are told before any is waited for: ranks leave together.
        for pipe in self.pipes:
            with suppress(OSError):
                pipe.send(None)
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            process.join(_PATIENCE)
            process.terminate()
            process.join()
            pipe.close()


def serve(
    pipe: Any, rank: int, ranks: int, port: int, graph: str, optimizer: str, lr: float
) -> None:
    """One rank: takes a batch, says so, waits for the word, trains, answers with its loss."""
    distributed = frameworks.torch().distributed
    address = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks)
    net = TorchNet(initial(parse(graph)), optimizer, lr, threads=1, distribute=True)
    pipe.send("ready")
    while (batch := pipe.recv()) is not None:
        pipe.send("taken")
        pipe.recv()
        pipe.send(net.step(batch))
    distributed.destroy_process_group()
