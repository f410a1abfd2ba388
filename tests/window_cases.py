"""Random computations that read at computed places, and what they mean, in plain loops.

A statement reads one or two tensors at sums of labels; what lies outside is a number, ⊕'s identity,
the nearest element, or what comes round again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import product
from math import inf
from typing import Any

import numpy as np

import eindecomp as ed


@dataclass
class Place:
    """(Σ times · label + offset) / divisor along a dimension."""

    terms: dict[str, int]
    offset: int = 0
    divisor: int = 1
    outside: str | None = None
    is_plain: bool = False
    """Whether it is written as a label, whose size the dimension has."""

    def __str__(self) -> str:
        told = " + ".join(f"{times}*{label}" for label, times in self.terms.items() if times > 0)
        told = told or "0"
        told += "".join(f" - {-n}*{label}" for label, n in self.terms.items() if n < 0)
        told += f" {'-' if self.offset < 0 else '+'} {abs(self.offset)}"
        told = told if self.divisor == 1 else f"({told}) / {self.divisor}"
        told = next(iter(self.terms)) if self.is_plain else told
        return told if self.outside is None else f"{told} else {self.outside}"

    def at(self, numbers: dict[str, int]) -> int:
        """The sum."""
        return self.offset + sum(times * numbers[label] for label, times in self.terms.items())

    def read(self, numbers: dict[str, int], size: int, identity: float) -> tuple[int | None, float]:
        """The element there, or none and what stands for it."""
        total = self.at(numbers)
        place = total // self.divisor
        if total % self.divisor == 0 and 0 <= place < size:
            return place, 0.0
        match self.outside:
            case "clamp":
                return min(max(place, 0), size - 1), 0.0
            case "wrap":
                return place % size, 0.0
            case "identity":
                return None, identity
            case None:
                raise AssertionError("nothing says what lies outside")
            case number:
                return None, float(number)


@dataclass
class Read:
    """A tensor at places."""

    name: str
    places: list[Place]

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.places))}]"

    def value(self, numbers: dict[str, int], array: Any, identity: float) -> float:
        """What stands there."""
        index: list[int] = []
        for place, size in zip(self.places, array.shape, strict=True):
            at, beyond = place.read(numbers, size, identity)
            if at is None:
                return beyond
            index.append(at)
        return array[tuple(index)]


@dataclass
class Statement:
    """What is joined of what is read, and how it is aggregated."""

    name: str
    output: dict[str, int]
    summed: dict[str, int]
    reads: list[Read]
    join: str
    agg: str

    def __str__(self) -> str:
        target = ", ".join(f"{label}: {size}" for label, size in self.output.items())
        over = ", ".join(f"{label}: {size}" for label, size in self.summed.items())
        value = f" {self.join} ".join(map(str, self.reads))
        value = f"{self.agg}[{over}] ({value})" if over else value
        return f"{self.name}[{target}] <- {value}"

    def run(self, arrays: dict[str, Any]) -> Any:
        """The result, one number after another."""
        identity = -inf if self.summed and self.agg == "max" else 0.0
        made = np.empty(tuple(self.output.values()))
        for at in product(*map(range, made.shape)):
            total = identity
            for more in product(*map(range, self.summed.values())):
                numbers = dict(zip([*self.output, *self.summed], [*at, *more], strict=True))
                own = [read.value(numbers, arrays[read.name], identity) for read in self.reads]
                value = own[0]
                if len(own) > 1:
                    value = own[0] * own[1] if self.join == "*" else own[0] + own[1]
                total = (
                    np.maximum(total, value) if self.agg == "max" and self.summed else total + value
                )
            made[at] = total
        return made


@dataclass
class Case:
    """Inputs, and statements one after another; the last one is the output."""

    shapes: dict[str, tuple[int, ...]]
    statements: list[Statement] = field(default_factory=list[Statement])

    @property
    def text(self) -> str:
        """As it is written."""
        given = [f"input {_sized(name, shape)} float64" for name, shape in self.shapes.items()]
        lines = [*given, *map(str, self.statements), f"output {self.statements[-1].name}"]
        return "\n".join(lines)

    @property
    def graph(self) -> ed.Graph:
        """As a graph."""
        return ed.parse(self.text)

    def arrays(self, seed: int = 0) -> dict[str, Any]:
        """Values of the inputs."""
        rng = np.random.default_rng(seed)
        return {name: rng.standard_normal(shape) for name, shape in self.shapes.items()}

    def run(self, arrays: dict[str, Any]) -> Any:
        """The output, by plain loops."""
        arrays = dict(arrays)
        with np.errstate(all="ignore"):
            for statement in self.statements:
                arrays[statement.name] = statement.run(arrays)
        return arrays[self.statements[-1].name]


def _sized(name: str, shape: tuple[int, ...]) -> str:
    return f"{name}[{', '.join(f'{name.lower()}{k}: {n}' for k, n in enumerate(shape))}]"


def random_case(seed: int, *, most: int = 3, largest: int = 7, calm: bool = False) -> Case:
    """One to three statements over one to three dimensions; a `calm` one neither wraps nor divides
    nor clamps."""
    rng = random.Random(seed)
    shape = tuple(rng.randint(1, largest) for _ in range(rng.randint(1, 2)))
    case = Case({"X": shape})
    name = "X"
    for k in range(rng.randint(1, most)):
        statement = _random_statement(rng, case, f"Z{k}", name, shape, largest, calm)
        case.statements.append(statement)
        name, shape = statement.name, tuple(statement.output.values())
    return case


def _random_statement(
    rng: random.Random, case: Case, name: str, source: str, shape: tuple[int, ...],
    largest: int, calm: bool,
) -> Statement:  # fmt: skip
    output: dict[str, int] = {}
    summed: dict[str, int] = {}
    agg = rng.choice(["sum", "max"])
    places: list[Place] = []
    for k, size in enumerate(shape):
        kind = rng.choice(["plain", "moved", "window", "window", "moved", "diagonal", "fixed"])
        label, times = f"w{k}", rng.choice([1, 1, 1, 2, 3, -1, -2])
        if kind == "fixed" and len(shape) > 1 and output:
            places.append(Place({}, rng.randrange(size)))
            continue
        if kind == "plain" or (kind == "diagonal" and not output):
            output[label] = size
            places.append(Place({label: 1}, is_plain=True))
            continue
        if kind == "diagonal":
            label = rng.choice([*output])
        else:
            output[label] = rng.randint(1, largest)
        place = Place({label: times}, rng.randint(-3, 3))
        if kind == "window":
            more = f"r{k}"
            (summed if rng.random() < 0.75 or len(output) > 2 else output)[more] = rng.randint(1, 3)
            place.terms[more] = rng.choice([1, 1, 2, -1])
        if times < 0:
            place.offset += size
        _limit(rng, place, {**output, **summed}, size, calm)
        places.append(place)
    if not output:
        output["u"] = rng.randint(1, 3)
        places[0] = Place({"u": 1}, 0, 1, "0")
    reads, join = [Read(source, places)], "*"
    if rng.random() < 0.6:
        reads, join = _with_second(rng, case, name, reads[0], {**output, **summed}, calm)
    for read in reads:
        for place in read.places:
            is_whole = {"sum": "*", "max": "+"}[agg if summed else "sum"] == join or len(reads) == 1
            if place.outside == "identity" and not is_whole:
                place.outside = "-1"
    used = {label for read in reads for place in read.places for label in place.terms}
    summed = {label: n for label, n in summed.items() if label in used}
    order = rng.sample([*output], len(output))
    return Statement(name, {x: output[x] for x in order}, summed, reads, join, agg)


def _limit(rng: random.Random, place: Place, sizes: dict[str, int], size: int, calm: bool) -> None:
    """Say what lies outside, if anything can."""
    if not calm and rng.random() < 0.15:
        place.divisor = rng.randint(2, 3)
    every = product(*(range(sizes[label]) for label in place.terms))
    found = [place.at(dict(zip(place.terms, at, strict=True))) for at in every]
    if place.divisor == 1 and all(0 <= at < size for at in found) and rng.random() < 0.7:
        return
    ways = ["0", "identity", "2.5", "-1"]
    if place.divisor == 1 and not calm:
        ways += ["clamp", "clamp", "wrap"]
    place.outside = rng.choice(ways)


def _with_second(
    rng: random.Random, case: Case, name: str, read: Read, sizes: dict[str, int], calm: bool
) -> tuple[list[Read], str]:
    """Another read of the tensor, shifted, or a kernel over some of the labels."""
    join = rng.choice("*+")
    if rng.random() < 0.5:
        moved: list[Place] = []
        for place, size in zip(read.places, _shape(case, read.name), strict=True):
            own = Place(dict(place.terms), place.offset + rng.randint(-1, 1), 1)
            own = own if place.outside is not None and place.terms else place
            if own is not place:
                _limit(rng, own, sizes, size, calm)
            moved.append(own)
        return [read, Read(read.name, moved)], join
    labels = rng.sample([*sizes], rng.randint(1, len(sizes)))
    kernel = f"K{name[1:]}"
    case.shapes[kernel] = tuple(sizes[label] for label in labels)
    return [read, Read(kernel, [Place({label: 1}, is_plain=True) for label in labels])], join


def _shape(case: Case, name: str) -> tuple[int, ...]:
    made = {s.name: tuple(s.output.values()) for s in case.statements}
    return made[name] if name in made else case.shapes[name]
