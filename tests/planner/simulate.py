"""Carries a plan out element by element: who holds what, and what each device must receive.

Tensors are masks over their elements, one per device, made from the plan's decisions and the
meaning of each operation alone. Whatever a device needs and does not hold is received.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp import EinSum
from eindecomp.graph.ops import Concat, Fill, Gather, Input, Reshape, ScatterAdd, Window
from eindecomp.lang.scalar import used_args

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eindecomp import Vertex
    from eindecomp.lang.index import Index
    from eindecomp.planner.plan import Plan

    Mask = NDArray[np.bool_]
    Masks = list[Mask]

WHOLE = slice(None)
Ranges = dict[str, slice]
"""Which indices of each label a device computes."""


@dataclass
class Moved:
    """Bytes, by vertex and by edge."""

    join: dict[str, int] = field(default_factory=dict[str, int])
    aggregate: dict[str, int] = field(default_factory=dict[str, int])
    repartition: dict[str, int] = field(default_factory=dict[str, int])
    edges: dict[tuple[str, str, int], int] = field(default_factory=dict[Any, int])

    @property
    def total(self) -> int:
        parts = (self.join, self.aggregate, self.repartition)
        return sum(sum(part.values()) for part in parts)


def simulate(plan: Plan) -> Moved:
    """What all devices receive when the plan is carried out."""
    moved = Moved()
    sites = {name: Site(plan, plan.graph[name]) for name in plan.decisions}
    stored = {name: Stored(plan, plan.graph[name]) for name in plan.given}
    for name, lies in stored.items():
        lies.check(sites)
        if lies.second is not None:
            item = lies.vertex.dtype.itemsize
            moved.join[name] = item * lacking(lies.second, lies.home)
    for site in sites.values():
        site.check()
        name, item = site.vertex.name, site.vertex.dtype.itemsize
        moved.join[name] = 0
        moved.aggregate[name] = site.reduced()
        moved.repartition[name] = (
            0 if site.second is None else item * lacking(site.second, site.home)
        )
        for k, source in enumerate(site.vertex.inputs):
            need, origin = site.needs[k], plan.graph[source]
            if need is None or isinstance(origin.op, Fill):
                continue
            if source not in sites and source not in stored:
                assert plan.inputs == "free", f"{source} has no home"
                continue
            lies = sites[source] if source in sites else stored[source]
            received = min(
                lacking(need, own)
                for own in (lies.home, lies.second)
                if own is not None and has_all(own, need)
            )
            kind = moved.repartition if source in sites else moved.join
            moved.edges[source, name, k] = received * origin.dtype.itemsize
            kind[name] += received * origin.dtype.itemsize
    return moved


def has_all(held: Masks, need: Masks) -> bool:
    """Whether the devices together hold all that is needed: a slice's layout is but a part."""
    return bool((np.logical_or.reduce(need) <= np.logical_or.reduce(held)).all())


def lacking(need: Masks, held: Masks) -> int:
    """The elements that devices need and do not hold."""
    return sum(int((wanted & ~own).sum()) for wanted, own in zip(need, held, strict=True))


def devices_of(plan: Plan) -> list[tuple[int, ...]]:
    """The coordinates of every device; the last axis runs fastest."""
    return list(product(*map(range, plan.mesh.sizes)))


def piece(plan: Plan, size: int, axes: Sequence[int], at: tuple[int, ...]) -> slice:
    """A device's part of so many elements, cut by the plan's rule, outer axes first."""
    sizes = plan.mesh.sizes
    if plan.pieces == "ceil":
        left = range(size)
        for axis in axes:
            chunk = -(-len(left) // sizes[axis])
            left = left[at[axis] * chunk : (at[axis] + 1) * chunk]
        return slice(left.start, left.stop)
    index, parts = 0, 1
    for axis in axes:
        index, parts = index * sizes[axis] + at[axis], parts * sizes[axis]
    return slice(index * size // parts, (index + 1) * size // parts)


def decoded(plan: Plan, vertex: Vertex, cut: Any) -> Masks:
    """The masks of a layout that the plan gives."""
    found: Masks = []
    for at in devices_of(plan):
        box: list[slice] = []
        for span in cut:
            part = piece(plan, span.units, span.axes, at)
            ends = span.start + part.start * span.scale, span.start + part.stop * span.scale
            box.append(slice(*ends))
        found.append(boxed(vertex.shape, box))
    return found


@dataclass
class Stored:
    """An input that has a home, on all devices."""

    plan: Plan
    vertex: Vertex

    @cached_property
    def home(self) -> Masks:
        """What each device keeps."""
        return decoded(self.plan, self.vertex, self.plan.given[self.vertex.name].home)

    @cached_property
    def second(self) -> Masks | None:
        """What each device keeps besides."""
        cut = self.plan.given[self.vertex.name].second
        return None if cut is None else decoded(self.plan, self.vertex, cut)

    def check(self, sites: dict[str, Site]) -> None:
        """It lies where the result lies that it is tied to, or is stored once over all devices."""
        plan, name = self.plan, self.vertex.name
        if name in plan.tie:
            same = zip(self.home, sites[plan.tie[name]].home, strict=True)
            assert all((own == other).all() for own, other in same)
        elif name not in plan.pin:
            pieces = {prod(c) for c in self._ways_to_cut()}
            copies = np.sum(self.home, axis=0)
            assert (copies == prod(plan.mesh.sizes) // max(pieces)).all(), f"{name} is replicated"
        assert np.logical_or.reduce(self.home).all(), f"{name} is not kept everywhere"

    def _ways_to_cut(self) -> list[list[int]]:
        """For all ways to give axes to dimensions, into how many pieces these are cut."""
        sizes, shape = self.plan.mesh.sizes, self.vertex.shape
        ways: list[list[int]] = []
        for row in product(range(-1, len(shape)), repeat=len(sizes)):
            cut = [
                prod(n for n, d in zip(sizes, row, strict=True) if d == k)
                for k in range(len(shape))
            ]
            pairs = list(zip(cut, shape, strict=True))
            if self.plan.pieces == "even" and any(size % n for n, size in pairs):
                continue
            if all(n <= max(size, 1) for n, size in pairs):
                ways.append(cut)
        return ways


@dataclass
class Site:
    """A vertex on all devices."""

    plan: Plan
    vertex: Vertex

    @cached_property
    def devices(self) -> list[tuple[int, ...]]:
        """The coordinates of every device."""
        return devices_of(self.plan)

    @cached_property
    def axes_of(self) -> dict[str, Sequence[int]]:
        """The mesh axes that cut each label, outermost first."""
        labels = list(self.plan.parts[self.vertex.name])
        given = self.plan.decisions[self.vertex.name].assignment
        return dict(zip(labels, given, strict=True))

    @cached_property
    def kept(self) -> list[str | None]:
        """The label along each dimension of the result, None where it cannot be cut."""
        op = self.vertex.op
        uncut = op.row_label if isinstance(op, ScatterAdd) else None
        return [None if label == uncut else label for label in op.output]

    @cached_property
    def summed(self) -> list[int]:
        """The axes along which partial results lie."""
        kept = self.vertex.op.groups if isinstance(self.vertex.op, Reshape) else [self.kept]
        labels = {label for group in kept for label in group}
        return [a for label, axes in self.axes_of.items() if label not in labels for a in axes]

    @cached_property
    def touched(self) -> list[tuple[list[Mask | None], Mask]]:
        """For every device what it reads of each input and what it computes."""
        graph = self.plan.graph
        shapes = [graph[name].shape for name in self.vertex.inputs]
        sizes = label_sizes(self.vertex, shapes)
        return [
            touch(
                self.vertex,
                shapes,
                {
                    label: piece(self.plan, sizes[label], axes, at)
                    for label, axes in self.axes_of.items()
                },
            )
            for at in self.devices
        ]

    @cached_property
    def tile(self) -> Masks:
        """What each device computes, if only partly."""
        return [made for _, made in self.touched]

    @cached_property
    def needs(self) -> list[Masks | None]:
        """What each device reads of each input; None if it is not read."""
        rows = [reads for reads, _ in self.touched]
        columns = [list(column) for column in zip(*rows, strict=True)]
        return [None if column[0] is None else column for column in columns]

    @cached_property
    def home(self) -> Masks:
        """What each device keeps: its tile, cut further along the axes that are summed over."""
        if not self.summed:
            return self.tile
        places = self.plan.decisions[self.vertex.name].places
        found: Masks = []
        for at in self.devices:
            box: list[slice] = []
            for k, (label, size) in enumerate(zip(self.kept, self.vertex.shape, strict=True)):
                outer = () if label is None else self.axes_of[label]
                box.append(piece(self.plan, size, (*outer, *places[k]), at))
            found.append(boxed(self.vertex.shape, box))
        return found

    @cached_property
    def second(self) -> Masks | None:
        """What each device keeps besides."""
        cut = self.plan.decisions[self.vertex.name].second
        return None if cut is None else decoded(self.plan, self.vertex, cut)

    def check(self) -> None:
        """What any plan must hold, whatever it costs."""
        plan, name = self.plan, self.vertex.name
        for label, axes in self.axes_of.items():
            assert plan.parts[name][label] == prod(plan.mesh.sizes[a] for a in axes)
        given = [axis for axes in self.axes_of.values() for axis in axes]
        assert len(set(given)) == len(given), f"{name} is cut twice by an axis"
        self._check_pieces()
        assert np.logical_or.reduce(self.tile).all(), f"{name} is not computed everywhere"
        assert np.logical_or.reduce(self.home).all(), f"{name} is not kept everywhere"
        assert all((own <= tile).all() for own, tile in zip(self.home, self.tile, strict=True))
        places = plan.decisions[name].places if self.summed else ()
        placed = [axis for own in places for axis in own]
        assert len(set(placed)) == len(placed)
        assert set(placed) <= set(self.summed), f"{name} is cut by axes that are not summed over"
        given = decoded(plan, self.vertex, plan.decisions[name].home)
        assert all((a == b).all() for a, b in zip(self.home, given, strict=True))

    def _check_pieces(self) -> None:
        """Where only equal pieces are allowed, no device has more than another.

        What windows reach is more for some than for others.
        """
        if self.plan.pieces == "even":
            seen = isinstance(self.vertex.op, Window | Concat) or self.vertex.windows
            for masks in (self.tile, self.home, *([] if seen else self.needs)):
                if masks is not None:
                    assert len({int(own.sum()) for own in masks}) == 1, "pieces are not equal"

    def reduced(self) -> int:
        """The bytes that reducing moves, group by group of devices with partial results.

        An element is reduced where one device keeps it, which receives the other partial states;
        all others that keep it receive the result.
        """
        groups: dict[tuple[int, ...], list[int]] = {}
        for device, at in enumerate(self.devices):
            key = tuple(c for a, c in enumerate(at) if a not in self.summed)
            groups.setdefault(key, []).append(device)
        total = 0
        for group in groups.values():
            partial = np.sum([self.tile[d] for d in group], axis=0)
            keep = np.sum([self.home[d] for d in group], axis=0)
            assert ((keep > 0) == (partial > 0)).all()
            made = partial > 0
            total += int((partial - 1)[made].sum()) * partial_bytes(self.vertex)
            total += int((keep - 1)[made].sum()) * self.vertex.dtype.itemsize
        return total


def partial_bytes(vertex: Vertex) -> int:
    """The bytes of a partial result: numbers of the result's type, float16's in float32."""
    agg = getattr(vertex.op, "agg", None)
    item = 4 if vertex.dtype.name == "float16" else vertex.dtype.itemsize
    return item * (1 if agg is None else agg.width)


def label_sizes(vertex: Vertex, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """The size of every label that an operation can be cut along."""
    found = dict(zip(vertex.op.output, vertex.shape, strict=True))
    match vertex.op:
        case EinSum(inputs=inputs):
            windows = vertex.windows or [None] * len(shapes)
            for labels, shape, window in zip(inputs, shapes, windows, strict=True):
                found |= zip(labels, shape if window is None else window.sizes, strict=True)
        case ScatterAdd(source=source, index=index):
            found |= zip(source, shapes[0], strict=True)
            found |= zip(index, shapes[1], strict=True)
        case Reshape(sizes=sizes):
            found = dict(sizes)
        case _:
            pass
    return found


def boxed(shape: tuple[int, ...], box: Sequence[slice]) -> Mask:
    """A mask with a box of a tensor's elements."""
    mask = np.zeros(shape, dtype=bool)
    mask[tuple(box)] = True
    return mask


def reached(index: Index, size: int, every: dict[str, range]) -> slice:
    """From the first to the last element that lies between the places of some labels' numbers."""
    sums = {index.offset}
    for label, times in index.terms:
        sums = {own + times * at for own in sums for at in every[label]}
    if index.outside == "clamp":
        sums = {min(max(own, 0), size - 1) for own in sums}
    if not sums:
        return slice(0, 0)
    between = [at for at in range(size) if min(sums) <= at * index.divisor <= max(sums)]
    return slice(between[0], between[-1] + 1) if between else slice(0, 0)


def touch(
    vertex: Vertex, shapes: Sequence[tuple[int, ...]], ranges: Ranges
) -> tuple[list[Mask | None], Mask]:
    """The elements of each input that are read, and those that are made, for some label indices."""

    def box(shape: tuple[int, ...], labels: Sequence[str]) -> Mask:
        return boxed(shape, [ranges.get(label, WHOLE) for label in labels])

    def seen(shape: tuple[int, ...], window: Window) -> Mask:
        every = {x: range(n)[ranges.get(x, WHOLE)] for x, n in window.by_label.items()}
        pairs = zip(window.index, shape, strict=True)
        return boxed(shape, [reached(index, size, every) for index, size in pairs])

    op = vertex.op
    reads: list[Mask | None]
    match op:
        case EinSum():
            used = used_args(op.join)
            windows = vertex.windows or [None] * len(shapes)
            reads = [
                None if k not in used else box(shape, op.inputs[k]) if own is None
                else seen(shape, own)
                for k, (shape, own) in enumerate(zip(shapes, windows, strict=True))
            ]  # fmt: skip
        case Gather():
            # Which rows are looked up is known only when it runs.
            table = [ranges.get(label, WHOLE) for label in op.table]
            table.insert(op.axis, WHOLE)
            reads = [boxed(shapes[0], table), box(shapes[1], op.index)]
        case ScatterAdd():
            reads = [box(shapes[0], op.source), box(shapes[1], op.index)]
            rows = [ranges.get(label, WHOLE) for label in op.table]
            rows.insert(op.axis, WHOLE)
            return reads, boxed(vertex.shape, rows)
        case Concat():
            # What is after all that comes before it, as far as a device has places there.
            own = range(vertex.shape[op.axis])[ranges.get(op.along, WHOLE)]
            reads, before = [], 0
            for shape in shapes:
                some = [ranges.get(label, WHOLE) for label in op.output]
                here = [at - before for at in own if 0 <= at - before < shape[op.axis]]
                some[op.axis] = slice(here[0], here[-1] + 1) if here else slice(0, 0)
                reads.append(boxed(shape, some))
                before += shape[op.axis]
        case Window():
            reads = [seen(shapes[0], op)]
        case Reshape():
            before = [label for group in op.input for label in group]
            after = [label for group in op.groups for label in group]
            units = box(tuple(size for _, size in op.sizes), before)
            order = [before.index(label) for label in after]
            return [units.reshape(shapes[0])], units.transpose(order).reshape(vertex.shape)
        case Input() | Fill():
            raise AssertionError("inputs and fills are not computed by tiles")
    return reads, box(vertex.shape, op.output)
