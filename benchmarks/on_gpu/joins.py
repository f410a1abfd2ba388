"""Table 5: distances of all pairs of rows, as products with another join and another sum."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from shutil import which
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import torch
from peers.race import race

from eindecomp.api.compile import compile as compile_plan
from eindecomp.experiments.measure import Contender, Lapse
from eindecomp.experiments.record import OURS
from eindecomp.graph.text.elaborate import parse
from eindecomp.planner.make import plan as make_plan
from on_gpu.record import Measured
from on_gpu.setting import floor, noted
from on_gpu.speeds import properties

if TYPE_CHECKING:
    from peers.race import Peer

    from eindecomp.experiments.measure import Way
    from on_gpu.setting import Setting

    Tensor = torch.Tensor
    Distance = Callable[[], Tensor]

TABLE = "Distances of all pairs of rows"
GRAPHS = {
    "L-infinity": "Z[i,j] <- max abs(A[i,k] - B[j,k])",
    "squared L2": "Z[i,j] <- sum (A[i,k] - B[j,k]) ** 2",
}
_LANES = 128  # float32 lanes of a multiprocessor, Hopper's and those before it
_ROWS = 64
"""Broadcasting is timed on so many rows, and scaled: it takes a hundred times as long as ours."""
_CLOCK = 1980.0  # MHz, of an H200


def distances(setting: Setting, name: str) -> Measured:
    """Ours against torch.cdist, broadcasting, and what the card's float32 lanes allow."""
    size = setting.sizes.join
    graph = parse(f"input A[i: {size}, k: {size}], B[j: {size}, k]\n{GRAPHS[name]}\noutput Z")
    generator = torch.Generator(setting.device).manual_seed(0)
    a, b = (torch.randn(size, size, device=setting.device, generator=generator) for _ in range(2))
    case = f"{name}, {size}³"
    plan = make_plan(graph, 1)
    peers: dict[str, Peer] = {
        who: setting.peer(partial(_ready, work)) for who, work in peers_of(name, a, b).items()
    }
    peers[f"broadcasting, {min(_ROWS, size)} rows, scaled to all"] = partial(
        _broadcasting, setting, name, a, b
    )
    with compile_plan(plan, "torch", device=str(setting.device)) as executable:
        inputs = executable.place({"A": a, "B": b})
        way = setting.finished(lambda: executable(inputs).tensor("Z").array())
        way()  # tries which configuration of the kernel is fastest
        rows = race(case, [Contender(OURS, "ours", way, plan)], peers, setting.sizes.repeats)
    if setting.on_gpu:
        seconds = pipes(size, setting.device)
        rows.append(floor(case, "floor: float32 lanes at the highest clock", seconds, rows))
    return Measured(tuple(noted(rows, TABLE, {})))


@contextmanager
def _ready(work: Distance) -> Generator[Way]:
    yield work


def peers_of(name: str, a: Tensor, b: Tensor) -> dict[str, Distance]:
    """Torch's own distances."""
    if name == "L-infinity":
        return {"torch.cdist": lambda: torch.cdist(a, b, p=float("inf"))}
    exact, product = "donot_use_mm_for_euclid_dist", "use_mm_for_euclid_dist"
    return {
        "torch.cdist": lambda: torch.cdist(a, b, compute_mode=exact).square_(),
        "torch.cdist by a matrix product": lambda: torch.cdist(
            a, b, compute_mode=product
        ).square_(),
    }


@contextmanager
def _broadcasting(setting: Setting, name: str, a: Tensor, b: Tensor) -> Generator[Way]:
    """Some rows are computed and timed; the others of the result are torch.cdist's."""
    rows = min(_ROWS, len(a))
    whole = peers_of(name, a, b)["torch.cdist"]().cpu()

    def some() -> Tensor:
        return broadcast(name, a[:rows], b)

    def way() -> Lapse:
        start = perf_counter()
        found = setting.finished(some)()
        spent = perf_counter() - start
        whole[:rows] = torch.from_numpy(np.asarray(found))
        return Lapse(spent * len(a) / rows, whole)

    yield way


def broadcast(name: str, a: Tensor, b: Tensor) -> Tensor:
    """Distances of rows, four at a time: all differences of a chunk are in memory at once."""
    chunks: tuple[Tensor, ...] = torch.split(a, 4)
    return torch.cat([_distance(name, rows[:, None] - b) for rows in chunks])


def _distance(name: str, gaps: Tensor) -> Tensor:
    return gaps.abs().amax(2) if name == "L-infinity" else gaps.square().sum(2)


def pipes(size: int, device: torch.device) -> float:
    """Seconds of two instructions for each point on all float32 lanes."""
    card = properties(device)
    lanes = _LANES * int(card.multi_processor_count)
    return 2 * size**3 / (lanes * top_clock() * 1e6)


def top_clock() -> float:
    """The highest clock of the multiprocessors, in MHz."""
    command = [which("nvidia-smi") or "nvidia-smi", "--query-gpu=clocks.max.sm"]
    try:
        found = subprocess.run(  # noqa: S603
            [*command, "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True
        )
        return float(found.stdout.split()[0])
    except (OSError, ValueError, IndexError, subprocess.CalledProcessError):
        return _CLOCK
