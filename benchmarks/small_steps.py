"""Small steps: softmax regression of MNIST's shape, an epoch of made-up images at a time.

By `models.fit`, which donates, by a loop of our own that does not, and by torch, in turns.
`--neighbours 2` keeps that many other processes busy on the cores meanwhile.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

import eindecomp as ed

BATCH, FEATURES, CLASSES, STEPS, RATE = 128, 784, 10, 468, 0.1
TEXT = f"""
input x[b: {BATCH}, f: {FEATURES}], y[b] int32, W[f, c: {CLASSES}], bias[c]
Z[b,c] <- sum x[b,f] * W[f,c]
U[b,c] <- Z[b,c] + bias[c]
P[b,c] <- softmax[c] U[b,c]
C[c: {CLASSES}] <- fill int32(c)
loss[] <- sum where(C[c] == y[b], -log(P[b,c] + 1e-9), 0) / size(b)
output loss
"""


def batches() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    x = rng.random((STEPS, BATCH, FEATURES), np.float32)
    y = rng.integers(0, CLASSES, (STEPS, BATCH), np.int32)
    return [{"x": x[k], "y": y[k]} for k in range(STEPS)]


class Ours:
    """The same graph, plan and batches, by `models.fit` and by a loop that gives nothing up."""

    def __init__(self, data: list[dict[str, Any]]) -> None:
        self.graph = ed.models.training_step(ed.parse(TEXT), "loss", ["W", "bias"], "sgd")
        self.plan, self.data = ed.plan(self.graph, 2), data
        self.state = {
            "W": np.zeros((FEATURES, CLASSES), np.float32),
            "bias": np.zeros(CLASSES, np.float32),
        }

    def fit(self) -> float:
        fitted = ed.models.fit(
            self.graph, self.data, self.state, lr=RATE, plan=self.plan, progress=False
        )
        return fitted.losses[-1]

    def loop(self) -> float:
        loss = 0.0
        with ed.compile(self.plan) as executable:
            tensors = executable.place(self.state)
            for batch in self.data:
                result = executable({**batch, **tensors, "lr": RATE})
                tensors = {name: result.tensor(f"new_{name}") for name in tensors}
                loss = float(result["loss"])
        return loss


def theirs(data: list[dict[str, Any]]) -> float:
    linear = torch.nn.Linear(FEATURES, CLASSES)
    torch.nn.init.zeros_(linear.weight)
    torch.nn.init.zeros_(linear.bias)
    optimizer, loss = torch.optim.SGD(linear.parameters(), RATE), 0.0
    for batch in data:
        optimizer.zero_grad()
        classes = torch.from_numpy(batch["y"]).long()
        found = torch.nn.functional.cross_entropy(linear(torch.from_numpy(batch["x"])), classes)
        found.backward()
        optimizer.step()
        loss = found.item()
    return loss


@contextmanager
def neighbours(count: int) -> Generator[None]:
    """Processes that keep cores busy."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--neighbours", type=int, default=0)
    asked = parser.parse_args()
    data = batches()
    ours = Ours(data)
    runs = {"models.fit": ours.fit, "no donating": ours.loop, "torch": lambda: theirs(data)}
    losses = {name: run() for name, run in runs.items()}
    spent: dict[str, list[float]] = {name: [] for name in runs}
    with neighbours(asked.neighbours):
        for _ in range(asked.rounds):
            for name, run in runs.items():
                start = perf_counter()
                run()
                spent[name].append(perf_counter() - start)
    print(f"{STEPS} steps, {asked.neighbours} busy neighbours")
    for name, seconds in spent.items():
        print(
            f"{name:12} best {min(seconds):6.3f} s, median {median(seconds):6.3f}, "
            f"worst {max(seconds):6.3f}; last loss {losses[name]:.5f}"
        )


if __name__ == "__main__":
    main()
