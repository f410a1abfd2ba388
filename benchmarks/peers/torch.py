"""The chain and the classifier in torch, in one process."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from eindecomp.kernels.cores import cores
from peers import frameworks

if TYPE_CHECKING:
    import numpy as np

    from eindecomp.experiments.measure import Way

    Array = np.ndarray[Any, Any]


@contextmanager
def chain(x: Mapping[str, Array]) -> Generator[Way]:
    """(A·B) + (C·(D·E)), with a thread for each core."""
    torch = frameworks.torch()
    torch.set_num_threads(cores())
    a, b, c, d, e = (torch.from_numpy(x[name]) for name in "ABCDE")
    yield lambda: a @ b + c @ (d @ e)


class TorchNet:
    """The classifier as a user of torch writes it; on one rank of several with `distribute`."""

    def __init__(
        self,
        state: Mapping[str, Array],
        optimizer: str,
        lr: float,
        threads: int,
        distribute: bool = False,
        device: str = "cpu",
    ) -> None:
        torch = self.torch = frameworks.torch()
        self.device = device
        torch.set_num_threads(threads)
        (features, hidden), classes = state["W1"].shape, state["b2"].size
        with torch.device(device):
            layers = torch.nn.Linear(features, hidden), torch.nn.Linear(hidden, classes)
        with torch.no_grad():
            for layer, weight, bias in zip(layers, ("W1", "W2"), ("b1", "b2"), strict=True):
                layer.weight.copy_(torch.from_numpy(state[weight].T))
                layer.bias.copy_(torch.from_numpy(state[bias]))
        self.net = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1])
        if distribute:
            parallel = torch.nn.parallel.DistributedDataParallel
            self.net = parallel(self.net, gradient_as_bucket_view=True)
        optim = torch.optim
        make = {"sgd": optim.SGD, "momentum": optim.SGD, "adam": optim.Adam, "adamw": optim.AdamW}
        more = {"momentum": 0.9} if optimizer == "momentum" else {}
        self.optimizer: Any = make[optimizer](self.net.parameters(), lr=lr, **more)

    def step(self, batch: Mapping[str, Array]) -> float:
        """One step of training; its loss."""
        torch = self.torch
        x, y = (torch.from_numpy(batch[name]).to(self.device) for name in ("x", "y"))
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.net(x), y.long())
        loss.backward()
        self.optimizer.step()
        return float(loss.item())
