"""The peers of each of the paper's experiments, set up for a race."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from eindecomp.kernels.cores import cores
from peers import dask, ddp, numpy, scalapack, torch, transformers

if TYPE_CHECKING:
    import numpy as np

    from eindecomp.experiments.measure import Way
    from eindecomp.experiments.paper import Training
    from eindecomp.models.llama import Llama
    from peers.race import Peer

    Array = np.ndarray[Any, Any]


def chain_peers(x: Mapping[str, Array]) -> dict[str, Peer]:
    """NumPy by hand, torch, dask.array and ScaLAPACK; plain NumPy takes part anyway."""
    return {
        "NumPy, panels by hand": partial(numpy.panels, x),
        "torch": partial(torch.chain, x),
        "dask.array": partial(dask.chain, x, tuned=False),
        "dask.array, tuned": partial(dask.chain, x, tuned=True),
        "ScaLAPACK": partial(scalapack.chain, x, tuned=False),
        "ScaLAPACK, tuned": partial(scalapack.chain, x, tuned=True),
    }


def ffnn_peers(training: Training) -> dict[str, Peer]:
    """Torch in one process, and data parallel."""
    alone, parallel = f"torch, {cores()} threads", f"torch DDP, {cores()} ranks"
    return {
        alone: partial(torch_alone, training, alone),
        parallel: partial(_torch_parallel, training, parallel),
    }


@contextmanager
def torch_alone(training: Training, name: str, device: str = "cpu") -> Generator[Way]:
    """Torch in one process, on a device that holds everything."""
    net = torch.TorchNet(training.state, training.optimizer, training.lr, cores(), device=device)
    yield training.noting(name, net.step)


@contextmanager
def _torch_parallel(training: Training, name: str) -> Generator[Way]:
    with ddp.training(str(training.graph), training.optimizer, training.lr) as step:
        yield training.noting(name, step)


def llama_peers(model: Llama, ids: Array, kind: str) -> dict[str, Peer]:
    """Transformers with torch."""
    if kind == "prefill":
        return {"transformers": partial(transformers.prefill, model, ids)}
    return {"transformers": partial(transformers.decode, model, ids, ids[:, 0])}


PEERS: dict[str, Callable[..., dict[str, Peer]]] = {
    "chain": chain_peers,
    "ffnn": ffnn_peers,
    "llama": llama_peers,
}
