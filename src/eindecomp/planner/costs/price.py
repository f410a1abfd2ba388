"""Objectives: what plans minimize, and the `Price` that each charges for what a plan does.

In seconds, kernel calls take what the roofline says, and movement what `collectives.py` says, which
the simulator follows too. Bytes are those of the fullest device. Each kernel call and each message
takes the machine's overhead of a task as well; where messages were measured, that is part of their
curve.

Where communication can run beside computing, a vertex's fetches and its reduction each run beside
an equal share of its own kernel calls, and only what they take beyond that counts. What really runs
beside them is whatever is computed between the time when their source is ready and the time when
they are waited for; that depends on the whole plan, a share of the vertex's own calls only on its
choice and its sources'. Moving a tensor to its second layout is never hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from math import inf, prod
from typing import Any, Protocol

import numpy as np

from eindecomp.errors import PlanError
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.work import tile_operations
from eindecomp.lang.dtypes import widen
from eindecomp.layout.cut import Cut, combined, largest_side, pending_in
from eindecomp.layout.mesh import ROWS, Mesh
from eindecomp.layout.overlaps import covers, moved
from eindecomp.layout.view import View, dim_parts, tile_sides
from eindecomp.planner.costs.collectives import (
    Level,
    crossed,
    fetched_by,
    levels_of,
    received,
    rounds_of,
)
from eindecomp.planner.costs.machine import (
    Collective,
    Machine,
    best_rate,
    function_seconds,
    rate,
)
from eindecomp.planner.costs.named_rows import reduced
from eindecomp.planner.costs.parts import fetched_in_parts
from eindecomp.planner.space.choices import Choices
from eindecomp.solve.problem.arrays import Costs, Floats, infinite_where


class Price(Protocol):
    """An objective: the price of everything that a plan does."""

    @property
    def mesh(self) -> Mesh:
        """The mesh that things move on."""
        ...

    def on(self, mesh: Mesh) -> Price:
        """The same prices on another mesh."""
        ...

    def fetch(self, held: Sequence[Cut], needed: Sequence[Cut], item: int) -> Costs:
        """The price from each held cut to each needed one; ∞ where it cannot be had."""
        ...

    def reduce_scatter(self, choices: Choices, elements: int, partial: int, item: int) -> Costs:
        """The price from each assignment's partial results to each home; ∞ if it is out of reach.

        `partial` is the item size of partial results, `item` that of results.
        """
        ...

    def compute(self, vertex: Vertex, choices: Choices, items: tuple[int, ...]) -> Costs:
        """The price of each assignment's kernel calls; `items` are the inputs' item sizes."""
        ...

    def held(self, cuts: Sequence[Cut], item: int) -> Costs:
        """The bytes of each cut on all devices, as if each had the largest piece."""
        ...


def hidden(
    price: object, vertex: Vertex, choices: Choices, items: tuple[int, ...], fetches: int
) -> Costs | None:
    """How much less each fetch, and the reduction, costs under each assignment; None for nothing.

    That is what `hides` of the prices says, where communication can run beside computing; `fetches`
    is the number of inputs that are fetched.
    """
    hides: Any = getattr(price, "hides", None)
    return None if hides is None else hides(vertex, choices, items, fetches)


def beyond(costs: Any, hides: Any | None) -> Any:
    """The part of costs that is not hidden."""
    return costs if hides is None else np.maximum(costs - hides, 0.0)


@dataclass(frozen=True)
class PriceInBytes:
    """The bytes that devices receive; computing is free."""

    mesh: Mesh

    @property
    def by_rows(self) -> bool:
        """Whether lookups and scatters move only rows that an index names."""
        return self.mesh.lookups == ROWS

    def on(self, mesh: Mesh) -> PriceInBytes:
        """The same prices on another mesh."""
        return PriceInBytes(mesh)

    def fetch(self, held: Sequence[Cut], needed: Sequence[Cut], item: int) -> Costs:
        """What each device needs, less what it holds."""

        def whole(held: Sequence[Cut], needed: Sequence[Cut], first: int) -> Costs:
            receives = item * moved(self.mesh, held, needed, first)
            return infinite_where(~covers(held, needed), receives)

        return fetched_in_parts(self.mesh, held, needed, whole)

    def reduce_scatter(self, choices: Choices, elements: int, partial: int, item: int) -> Costs:
        """The elements of partial results, then those of results, as often as they move."""
        moved = partial * elements * choices.reduced
        moved = reduced(choices, moved, partial) if self.by_rows else moved
        items = np.array([item if pending_in(home) is None else partial for home in choices.homes])
        return infinite_where(choices.reduced < 0, moved + items * elements * choices.gathered)

    def compute(self, vertex: Vertex, choices: Choices, items: tuple[int, ...]) -> Costs:
        """Nothing."""
        del vertex, items
        return np.zeros(len(choices.assignments), dtype=np.int64)

    def held(self, cuts: Sequence[Cut], item: int) -> Costs:
        """The largest piece of each cut, times the number of devices."""
        tiles = [prod(largest_side(self.mesh, span) for span in cut) for cut in cuts]
        return item * self.mesh.devices * np.array(tiles, dtype=np.int64)


@dataclass(frozen=True)
class PriceInSeconds:
    """The seconds that everything takes, one thing after another."""

    mesh: Mesh
    machine: Machine
    deadline: float = field(default=inf, compare=False)
    """When large tables are given up: those of uneven pieces can take seconds each."""

    def on(self, mesh: Mesh) -> PriceInSeconds:
        """The same prices on another mesh."""
        return PriceInSeconds(mesh, self.machine)

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The levels of the mesh."""
        return levels_of(self.mesh, self.machine)

    def fetch(self, held: Sequence[Cut], needed: Sequence[Cut], item: int) -> Any:
        """Bytes over bandwidth, level by level, and a latency for each round."""
        if all(pending_in(cut) is None for cut in (*held, *needed)):
            return self._fetch(held, needed, item)
        # Cuts that differ only in where parts lie move alike.
        own = dict(zip(dict.fromkeys(map(combined, held)), count(), strict=False))
        other = dict(zip(dict.fromkeys(map(combined, needed)), count(), strict=False))
        table = self._fetch([*own], [*other], item)

        def whole(held: Sequence[Cut], needed: Sequence[Cut], first: int) -> Any:
            seconds = table[np.ix_([own[cut] for cut in held], [other[cut] for cut in needed])]
            return np.where(moved(self.mesh, held, needed, first) > 0, seconds, 0.0)

        return fetched_in_parts(self.mesh, held, needed, whole)

    def _fetch(self, held: Sequence[Cut], needed: Sequence[Cut], item: int) -> Any:
        """The same between cuts without parts."""
        seconds = np.zeros((len(held), len(needed)))
        amounts = received(self.mesh, self.levels, held, needed, self.deadline)
        for level, elements in zip(self.levels, amounts, strict=True):
            sizes = [self.mesh.sizes[axis] for axis in level.axes]
            along = [crossed(held, needed, axis) for axis in level.axes]
            rounds = np.maximum(rounds_of(self.machine.rounds, sizes, along), 1)
            kinds: Mapping[Collective, Any] = {"point_to_point": True}
            if level.curves:  # it has one axis
                kinds = fetched_by(held, needed, level.axes[0])
            for kind, mask in kinds.items():
                takes = level.seconds(kind, elements * item, rounds)
                seconds += np.where(mask & (elements > 0), takes, 0.0)
        return infinite_where(~covers(held, needed), seconds)

    def reduce_scatter(self, choices: Choices, elements: int, partial: int, item: int) -> Any:
        """Reduce-scatters from the innermost level out, then all-gathers over replicating axes."""
        seconds = np.zeros(choices.reduced.shape)
        aggregated = set(choices.view.aggregated)
        out = [i for i in range(len(choices.view.labels)) if i not in aggregated]
        for (a, h), places in choices.places.items():
            size = elements * partial / max(int(choices.parts[a, out].prod()), 1)
            left = pending_in(choices.homes[h])
            pending = set(() if left is None else left.axes)
            summed = {x for i in aggregated for x in choices.assignments[a][i]} - pending
            for level, along in self._used(reversed(self.levels), summed):
                ways = prod(along)
                seconds[a, h] += self._collective(level, "reduce_scatter", size / ways, along)
                size /= ways
            size *= 1 if pending else item / partial
            scattered = {axis for own in places for axis in own}
            for level, along in self._used(self.levels, summed - scattered):
                seconds[a, h] += self._collective(level, "all_gather", size, along)
                size *= prod(along)
        return infinite_where(choices.reduced < 0, seconds)

    def _used(self, levels: Iterable[Level], axes: Set[int]) -> Iterator[tuple[Level, list[int]]]:
        """The levels that have some of these axes, with the sizes of those."""
        for level in levels:
            if along := [self.mesh.sizes[axis] for axis in level.axes if axis in axes]:
                yield level, along

    def _collective(self, level: Level, kind: Collective, own: float, along: Sequence[int]) -> Any:
        """The seconds in which all devices along axes of one level have each other's bytes."""
        rounds = rounds_of(self.machine.rounds, along)
        return level.seconds(kind, own * (prod(along) - 1), rounds)

    def compute(self, vertex: Vertex, choices: Choices, items: tuple[int, ...]) -> Any:
        """The longer of computing the largest tile and of reading and writing its memory."""
        return self._kernel(vertex, choices, items) + self.machine.task_overhead

    def _kernel(self, vertex: Vertex, choices: Choices, items: tuple[int, ...]) -> Floats:
        """What is computed, without the overhead of a task."""
        view, parts = choices.view, choices.parts
        sizes = np.array(view.cut_sizes, dtype=np.int64)
        sides = (-(-sizes // parts[:, : len(sizes)])).astype(np.float64)
        touched = tile_sides(view.output, dim_parts(view, view.output, parts)).prod(axis=1)
        touched = touched.astype(np.float64)
        is_partial = parts[:, list(view.aggregated)].prod(axis=1) > 1
        item = vertex.dtype.itemsize
        traffic = touched * np.where(is_partial, widen(vertex.dtype).itemsize, item)
        for dims, own in zip(view.reads, items, strict=True):
            if dims is not None:
                tile = tile_sides(dims, dim_parts(view, dims, parts)).prod(axis=1)
                touched, traffic = touched + tile, traffic + tile.astype(np.float64) * own
        tile = {label: sides[:, k] for k, label in enumerate(view.cut_labels)}
        work = tile_operations(vertex.op, tile)
        intensity = work / np.maximum(touched, 1.0)
        flops = self.machine.flops
        computing = work / rate(flops, vertex.op, intensity, item)
        computing = computing + function_seconds(flops, vertex.op, tile, item)
        return np.maximum(computing, traffic / self.machine.memory_bandwidth)

    def hides(
        self, vertex: Vertex, choices: Choices, items: tuple[int, ...], fetches: int
    ) -> Any | None:
        """The seconds of each fetch, and of the reduction, that each assignment computes beside."""
        if not self.machine.overlap:
            return None
        aggregated = list(choices.view.aggregated)
        reduces = choices.parts[:, aggregated].prod(axis=1) > 1
        shares = np.maximum(fetches + reduces, 1)
        return self.machine.overlap * self._kernel(vertex, choices, items) / shares

    def held(self, cuts: Sequence[Cut], item: int) -> Any:
        """The same as for bytes."""
        return PriceInBytes(self.mesh).held(cuts, item)

    def least(self, vertex: Vertex, view: View, items: tuple[int, ...]) -> float:
        """The least seconds that computing a vertex can take: devices share it equally."""
        sizes = dict(zip(view.cut_labels, view.cut_sizes, strict=True))
        work = float(tile_operations(vertex.op, sizes))
        traffic = float(vertex.elements * vertex.dtype.itemsize)
        for dims, item in zip(view.reads, items, strict=True):
            labels = [label for dim in dims or () for label in dim.labels]
            if dims is not None and len(set(labels)) == len(labels):  # little is read of a diagonal
                traffic += float(prod(dim.stop - dim.start for dim in dims)) * item
        flops, item = self.machine.flops, vertex.dtype.itemsize
        computing = work / best_rate(flops, vertex.op, item)
        computing += float(function_seconds(flops, vertex.op, sizes, item))
        most = max(computing, traffic / self.machine.memory_bandwidth)
        return most / self.mesh.devices + self.machine.task_overhead

    def link(self, axis: int, size: Any, kind: Collective) -> Any:
        """The seconds in which every device receives so many bytes along an axis."""
        level = next(each for each in self.levels if axis in each.axes)
        return level.seconds(kind, size, rounds_of(self.machine.rounds, (self.mesh.sizes[axis],)))


OBJECTIVES = ("bytes", "bound", "time")


@dataclass(frozen=True, repr=False)
class Objective:
    """An objective of the user's own: a name, the prices on a mesh, and their unit.

    Args:
        name: What it is called, such as `"energy"`.
        price: Makes the prices on a mesh, such as `lambda mesh: Joules(mesh)`; see "write an
            objective" in the documentation.
        unit: What costs are shown in, such as `"J"`.
        redundant: Whether several devices may compute the same piece, `True` only if computing has
            a price.

    Raises:
        PlanError: The name is that of a built-in objective.

    Examples:
        >>> from eindecomp.planner.costs.price import PriceInBytes
        >>> Objective("traffic", PriceInBytes, unit="bytes")
        <Objective 'traffic' in bytes>
    """

    name: str
    price: Callable[[Mesh], Price]
    unit: str = ""
    redundant: bool = False

    def __post_init__(self) -> None:
        if self.name in OBJECTIVES:
            raise PlanError(f"objective {self.name!r} is built in: give yours another name")

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<Objective {self.name!r}{f' in {self.unit}' if self.unit else ''}>"


def price_of(objective: str | Objective, mesh: Mesh, machine: Machine | None) -> Price:
    """Seconds on the machine for "time", the user's own prices, else the bytes that really move."""
    if isinstance(objective, Objective):
        return objective.price(mesh)
    if objective == "time" and machine is not None:
        return PriceInSeconds(mesh, machine)
    return PriceInBytes(mesh)


def may_repeat(objective: str | Objective) -> bool:
    """Whether plans may compute the same piece on several devices."""
    return objective.redundant if isinstance(objective, Objective) else objective == "time"
