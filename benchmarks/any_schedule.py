"""The best grids of one contraction, and our plans, beside the least that any schedule of it moves.

Inputs are stored once over all devices ("sharded"), elements have four bytes. "least" is what no
schedule undercuts that divides the work as evenly as the grid and stores inputs and result once
(`planner/costs/least_of_any.py`). Its best box may have any real sides; a grid has whole numbers of
pieces, so the bound is met only where the best box divides all sizes. "grid" is the best of all
grids: every way to write p as a product of pieces for the labels. "boxes" are the best boxes of
equal volume that come of cutting in two again and again, 3 : 4 for seven devices: no plan of ours,
but a schedule; they are sought for few devices. "plan / grid" is above 1 where the search is to
blame.

Verdicts: "met"; "grid": other boxes move less than the best grid, so that the gap is proved to be
the grid's fault; "grid or bound": nothing better than the grid is known.

    python benchmarks/any_schedule.py [seconds for each plan]

With 3 seconds it takes four minutes on a busy core; with 0, nothing is planned.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import product
from math import inf, prod
from typing import NamedTuple

import eindecomp as ed
from eindecomp.planner.any_schedule import contraction_of
from eindecomp.planner.costs.least_of_any import even_points, least_moved

ITEM = 4
MET = 1.0005  # times the bound
FEW = 12  # devices for which other boxes are sought


class Case(NamedTuple):
    """A contraction as a spec, the sizes of its labels, and numbers of devices."""

    spec: str
    sizes: dict[str, int]
    devices: tuple[int, ...]

    @property
    def tensors(self) -> tuple[str, ...]:
        """The labels of the inputs and of the result."""
        inputs, _, output = self.spec.partition("->")
        return (*inputs.split(","), output)

    @property
    def name(self) -> str:
        return f"{self.spec} {'×'.join(map(str, self.sizes.values()))}"

    def graph(self) -> ed.Graph:
        graph = ed.Graph()
        names = [
            graph.input(f"T{k}", {label: self.sizes[label] for label in labels}).name
            for k, labels in enumerate(self.tensors[:-1])
        ]
        graph.output(graph.einsum(self.spec, *names, name="Z"))
        return graph


def matrices(m: int, n: int, k: int, *devices: int) -> Case:
    return Case("ik,kj->ij", {"i": m, "j": n, "k": k}, devices)


def mttkrp(side: int, rank: int, *devices: int) -> Case:
    return Case("ijk,jr,kr->ir", {**dict.fromkeys("ijk", side), "r": rank}, devices)


CASES = [
    matrices(1000, 1000, 1000, 2, 3, 4, 6, 7, 8, 11, 16, 27, 32, 64),
    matrices(9600, 2400, 600, 3, 36),
    matrices(65536, 256, 256, 64, 256),
    matrices(4096, 4096, 64, 16, 64, 256),
    matrices(128, 11008, 4096, 8, 64),
    matrices(1, 8192, 8192, 16, 32),
    Case("bik,bkj->bij", {"b": 4, "i": 1024, "j": 1024, "k": 64}, (8, 64)),
    mttkrp(512, 32, 8, 64),
    mttkrp(1024, 24, 27, 64),
    Case("ijkl,jr,kr,lr->ir", {**dict.fromkeys("ijkl", 128), "r": 16}, (8, 16)),
    Case("ijk,kr->ijr", {**dict.fromkeys("ijk", 256), "r": 32}, (8,)),
    mttkrp(512, 32, 512),
    Case("ijkl,jr,kr,lr->ir", {**dict.fromkeys("ijkl", 128), "r": 16}, (256,)),
    matrices(9600, 2400, 600, 512),
    matrices(4096, 4096, 4096, 64, 512, 1024, 4096),
]


def grids(sizes: tuple[int, ...], devices: int) -> Iterator[tuple[int, ...]]:
    """Every way to cut sizes into so many boxes by a grid."""
    if not sizes:
        yield from [()] * (devices == 1)
        return
    for pieces in range(1, min(sizes[0], devices) + 1):
        if devices % pieces == 0:
            for rest in grids(sizes[1:], devices // pieces):
                yield (pieces, *rest)


def grid_bytes(case: Case, pieces: dict[str, int]) -> int:
    """What a grid moves: each tensor goes to all pieces of the labels that it lacks."""
    return sum(
        ITEM
        * prod(case.sizes[label] for label in own)
        * (prod(n for label, n in pieces.items() if label not in own) - 1)
        for own in case.tensors
    )


def best_grid(case: Case, devices: int) -> dict[str, int]:
    every = grids(tuple(case.sizes.values()), devices)
    named = (dict(zip(case.sizes, grid, strict=True)) for grid in every)
    return min(named, key=lambda pieces: grid_bytes(case, pieces))


def best_boxes(case: Case, devices: int) -> float:
    """What the best boxes of equal volume move that cutting in two again and again makes."""
    places = [[k for k, label in enumerate(case.sizes) if label in own] for own in case.tensors]

    @cache
    def touched(sides: tuple[float, ...], count: int) -> float:
        if count == 1:
            return sum(ITEM * prod(sides[k] for k in own) for own in places)
        cuts = (
            touched(cut(sides, k, one / count), one)
            + touched(cut(sides, k, 1 - one / count), count - one)
            for k in range(len(sides))
            for one in range(1, count // 2 + 1)
            if sides[k] * one >= count  # a label has no half values
        )
        return min(cuts, default=inf)

    whole = tuple(map(float, case.sizes.values()))
    return touched(whole, devices) - touched(whole, 1)


def cut(sides: tuple[float, ...], at: int, part: float) -> tuple[float, ...]:
    return tuple(round(side * part, 6) if k == at else side for k, side in enumerate(sides))


def grid_points(case: Case, pieces: dict[str, int]) -> dict[int, int]:
    """By how many points a box of a grid has, how many such boxes there are."""
    sides = [even_points(size, pieces[label]) for label, size in case.sizes.items()]
    boxes: Counter[int] = Counter()
    for box in product(*(own.items() for own in sides)):
        boxes[prod(size for size, _ in box)] += prod(count for _, count in box)
    return boxes


def row(case: Case, devices: int, seconds: float) -> str:
    """One line of the table."""
    graph, pieces = case.graph(), best_grid(case, devices)
    contraction = contraction_of(graph, graph["Z"])
    assert contraction is not None
    grid, least = grid_bytes(case, pieces), least_moved(contraction, grid_points(case, pieces))
    boxes = best_boxes(case, devices) if devices <= FEW else None
    planned = ""
    if seconds:
        asked = {"inputs": "sharded", "rewrite": False, "work": None, "time_limit": seconds}
        plan = ed.plan(graph, devices, **asked)
        assert plan.least_of_any is not None
        assert plan.least_of_any <= plan.cost >= grid
        planned = f"{plan.cost / grid:.3f}"
    if grid / least < MET:
        verdict = "met"
    else:
        verdict = "grid" if boxes is not None and boxes < grid * 0.999 else "grid or bound"
    other = "" if boxes is None else f"{boxes / least:.3f}"
    way = " ".join(f"{label}/{n}" for label, n in pieces.items() if n > 1)
    return (
        f"| `{case.name}` | {devices} | {way} | {grid / 2**20:.2f} | {least / 2**20:.2f} | "
        f"{grid / least:.3f} | {other} | {planned} | {verdict} |"
    )


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    print(
        "| contraction | p | best grid | grid, MiB | least, MiB | grid / least | boxes / least | "
        "plan / grid | verdict |"
    )
    print("| --- | ---: | --- |" + " ---: |" * 5 + " --- |")
    for case in CASES:
        for devices in case.devices:
            print(row(case, devices, seconds), flush=True)


if __name__ == "__main__":
    main()
