"""The least bytes of plans whose partial results may wait, by brute force, element by element.

Written from the definitions alone. Along a mesh axis a vertex cuts a label, or it waits: it is not
cut and reads some operands in parts of an aggregation ⊕ that its join passes on. Its result is in
parts along axes that wait or cut what it aggregates; each of them reduces it, replicating it or
cutting it further, or stays pending, which all readers must be able to read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations, product
from math import inf, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from brute_ops import ElementMasks, cuttable, packed, unpacked
from nested_layouts import dealt, fits
from simulate import label_sizes, touch
from tabulated_plans import Oracle, Row

from eindecomp import EinSum
from eindecomp.graph.ops import Input, Window
from eindecomp.lang.homomorphism import IDEMPOTENT, carried
from eindecomp.lang.monoid import MAX, MIN, PROD, SUM
from eindecomp.lang.scalar import Arg, used_args

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from brute_bytes import Axes, Layout
    from nested_layouts import Floats

    from eindecomp import Graph, Vertex
    from eindecomp.lang.monoid import Monoid

Masks = bytes
"""The elements that each device has, packed."""


class Wait(NamedTuple):
    """How a vertex waits along an axis."""

    agg: Monoid
    """What operands are in parts of."""
    operands: frozenset[int]
    result: Monoid
    """What its result is in parts of."""


class Made(NamedTuple):
    """What an assignment computes: for each dimension the axes that cut it, and along which axes
    it is in parts, of what."""

    tile: Layout
    parts: tuple[int, ...]
    agg: Monoid | None


class Held(NamedTuple):
    """Where a tensor lies, and along which axes it is still in parts, of what."""

    masks: Masks
    pending: frozenset[int]
    agg: Monoid | None


class Need(NamedTuple):
    """What a reader's devices need of a tensor, and along which axes they read it in parts."""

    masks: Masks
    waits: frozenset[tuple[int, Monoid]]
    pending: frozenset[int] = frozenset()
    """Along which of them it must be pending."""
    is_seen: bool = False
    """Whether it is what windows show, which is not kept."""


@dataclass(frozen=True)
class PendingMasks(ElementMasks):
    """What EinSums and windows can choose on a mesh if results may stay pending."""

    outputs: frozenset[str] = frozenset()
    monoids: tuple[Monoid, ...] = (SUM, PROD, MAX, MIN)
    """What operands may be read in parts of."""
    waiting: bool = True
    """Whether vertices may wait and results stay pending at all."""
    contractions: bool = False
    """Whether vertices with several operands that aggregate may wait."""
    idle: bool = True
    """Whether a vertex may wait along an axis on which nothing that it reads is pending."""
    seconds: str = "first"
    """What a second layout is: what one reader needs, "first", or needs where it does not wait,
    "whole", or what one needs that reads nothing in parts, "read"."""
    _of: dict[Any, Any] = field(default_factory=dict[Any, Any], compare=False)

    def waits(self, vertex: Vertex) -> list[Wait]:
        """The ways to wait along an axis."""
        op = vertex.op
        assert isinstance(op, EinSum | Window)
        join, agg = (op.join, op.agg) if isinstance(op, EinSum) else (Arg(0), None)
        aggregates = isinstance(op, EinSum) and bool(op.aggregated)
        if not self.waiting or (aggregates and len(vertex.inputs) > 1 and not self.contractions):
            return []
        used = used_args(join)
        found: list[Wait] = []
        for size in range(1, len(used) + 1):
            for own in map(frozenset, combinations(used, size)):
                for of in self.monoids:
                    result = carried(join, own, of)
                    if result is not None and (not aggregates or result == agg):
                        found.append(Wait(of, own, result))
        return found

    def choices(self, vertex: Vertex) -> Iterator[tuple[Layout, dict[int, Wait]]]:
        """For each label the axes that cut it, and how the others wait, if they do."""
        sizes = label_sizes(vertex, [self.graph[name].shape for name in vertex.inputs])
        cut = [sizes[label] for label in cuttable(vertex)]
        ways: list[Wait | None] = [None, *self.waits(vertex)]
        for picked in product(ways, repeat=len(self.axes)):
            wait = {axis: way for axis, way in enumerate(picked) if way is not None}
            if len({way.result for way in wait.values()}) <= 1:
                left = tuple(axis for axis in range(len(self.axes)) if axis not in wait)
                for layout in cut_by(tuple(cut), left, self.axes):
                    yield layout, wait

    def rows(self, vertex: Vertex) -> Iterator[Row]:
        """What is made and read, for every choice."""
        for layout, wait in self.choices(vertex):
            if self.idle:
                yield self.row(vertex, layout, wait)
                continue
            for pending in product(*(sorted(way.operands) for way in wait.values())):
                must = dict(zip(wait, pending, strict=True))
                if not any(isinstance(self.graph[vertex.inputs[k]].op, Input) for k in pending):
                    yield self.row(vertex, layout, wait, must)

    def row(
        self,
        vertex: Vertex,
        layout: Layout,
        wait: dict[int, Wait],
        must: Mapping[int, int] | None = None,
    ) -> Row:
        """What is made and read; `must` says for axes which operand must be pending there."""
        axes_of = dict(zip(cuttable(vertex), layout, strict=True))
        gone = [axis for label, own in axes_of.items() if label not in vertex.op.output
                for axis in own]  # fmt: skip
        agg = getattr(vertex.op, "agg", None) if gone else None
        for way in wait.values():
            agg = way.result
        tile = tuple(axes_of.get(label, ()) for label in vertex.op.output)
        made = Made(tile, tuple(sorted([*gone, *wait])), agg)
        needs: list[Need | None] = []
        for k, masks in enumerate(self.read(vertex, layout)):
            waits = ((axis, way.agg) for axis, way in wait.items() if k in way.operands)
            of = frozenset(axis for axis, operand in (must or {}).items() if operand == k)
            needs.append(
                None
                if masks is None
                else Need(masks, frozenset(waits), of, self.is_seen(vertex, layout, k))
            )
        return Row(made, tuple(needs))

    def read(self, vertex: Vertex, layout: Layout) -> list[Masks | None]:
        """What the devices need of each operand to compute their tiles."""
        key = vertex.name, layout
        if key not in self._of:
            shapes = [self.graph[name].shape for name in vertex.inputs]
            sizes = label_sizes(vertex, shapes)
            labels = list(zip(cuttable(vertex), layout, strict=True))
            each: list[list[Any]] = []
            for at in product(*map(range, self.axes)):
                ranges = {x: piece(sizes[x], own, self.axes, at) for x, own in labels if own}
                each.append(touch(vertex, shapes, ranges)[0])
            columns = zip(*each, strict=True)
            self._of[key] = [None if own[0] is None else packed(list(own)) for own in columns]
        return self._of[key]

    def homes(self, vertex: Vertex, made: Made) -> dict[Held, float]:
        """Where a result can be left, and the bytes that reducing it there moves."""
        tile = self.elements(vertex, self.pack(vertex, made.tile))
        found: dict[Held, float] = {}
        may = self.waiting and vertex.name not in self.outputs
        for count in range(len(made.parts) + 1 if may else 1):
            for pending in combinations(made.parts, count):
                left = tuple(axis for axis in made.parts if axis not in pending)
                together = prod(self.axes[axis] for axis in left)
                for inner in dealt(left, len(made.tile), self.order):
                    home = tuple(a + b for a, b in zip(made.tile, inner, strict=True))
                    placed = {axis for own in inner for axis in own}
                    if not fits_where(vertex.shape, home, inner, self.axes):
                        continue
                    copies = prod(self.axes[axis] for axis in left if axis not in placed)
                    item = vertex.dtype.itemsize
                    partial = 4 if vertex.dtype.name == "float16" else item
                    moved = tile / together * (together - 1) * partial
                    moved += tile / together * (copies - 1) * (partial if pending else item)
                    masks = self.pack(vertex, home)
                    key = Held(masks, frozenset(pending), made.agg if pending else None)
                    found[key] = min(moved, found.get(key, inf))
        return found

    def stored(self, vertex: Vertex) -> list[Held]:
        """The layouts that cut an input as far as its sizes allow."""
        return [Held(masks, frozenset(), None) for masks in super().stored(vertex)]

    def elements(self, vertex: Vertex, masks: Masks) -> float:
        """How many all devices have."""
        size = (prod(self.axes), prod(vertex.shape))
        return float(unpacked((masks,), size).sum())

    def first(self, vertex: Vertex, need: Need, along: Iterable[int]) -> Masks:
        """What is needed if along some axes only the first device needs anything.

        All do of parts of what leaves a value combined with itself as it is.
        """
        size = (prod(self.axes), prod(vertex.shape))
        alone = sorted(
            axis for axis, agg in need.waits if axis in along and agg.name not in IDEMPOTENT
        )
        return first_only(need.masks, tuple(alone), self.axes, size)

    def received(self, vertex: Vertex, held: Sequence[Any], needed: Sequence[Any]) -> Floats:
        """The elements that devices receive; ∞ if what is pending cannot be read so."""
        every = range(len(self.axes))
        wanted = [self.first(vertex, need, every) for need in needed]
        own = [
            self.first(vertex, held, every)
            if isinstance(held, Need) and self.seconds == "first"
            else held.masks
            for held in held
        ]
        found = super().received(vertex, own, wanted)
        for h, lies in enumerate(held):
            for n, need in enumerate(needed):
                if isinstance(lies, Held) and lies.pending:
                    found[h, n] = inf if self.lacks(vertex, lies, need) else 0
                elif need.pending:
                    found[h, n] = inf
        return found

    def moved(self, vertex: Vertex, held: Sequence[Any], needed: Sequence[Any]) -> Floats:
        """The elements that devices receive to keep what they need; what is pending stays."""
        waits = frozenset[Any]()
        needed = [need._replace(pending=waits) for need in needed]
        if self.seconds == "whole":
            needed = [need._replace(waits=waits) for need in needed]
        found = self.received(vertex, held, needed)
        if self.seconds == "read":
            found[:, [bool(need.waits) for need in needed]] = inf
        found[[isinstance(lies, Held) and bool(lies.pending) for lies in held]] = inf
        found[:, [need.is_seen for need in needed]] = inf
        return found

    def held(self, vertex: Vertex, layouts: Sequence[Any]) -> Floats:
        """Nothing is asked for besides bytes."""
        del vertex
        return np.zeros(len(layouts))

    def lacks(self, vertex: Vertex, lies: Held, need: Need) -> bool:
        """Whether a reader cannot read what is pending as and where it lies."""
        in_parts = {axis for axis, agg in need.waits if agg == lies.agg}
        if not need.pending <= lies.pending <= in_parts:
            return True
        size = (prod(self.axes), prod(vertex.shape))
        wanted = self.first(vertex, need, set(range(len(self.axes))) - lies.pending)
        return bool((unpacked((wanted,), size) > unpacked((lies.masks,), size)).any())


def piece(size: int, cut_by: Sequence[int], axes: Axes, at: Sequence[int]) -> slice:
    """A device's piece of a dimension: piece i of k is [i·n//k, (i+1)·n//k)."""
    i, k = 0, 1
    for axis in cut_by:
        i, k = i * axes[axis] + at[axis], k * axes[axis]
    return slice(i * size // k, (i + 1) * size // k)


@lru_cache(maxsize=1 << 12)
def cut_by(sizes: tuple[int, ...], left: tuple[int, ...], axes: Axes) -> list[Layout]:
    """The ways to give these axes to labels that make the most pieces."""
    every = [own for own in dealt(left, len(sizes), "any") if fits(sizes, own, axes)]
    made = [prod(axes[axis] for own in layout for axis in own) for layout in every]
    return [layout for layout, n in zip(every, made, strict=True) if n == max(made)]


def fits_where(sizes: Sequence[int], home: Layout, inner: Layout, axes: Axes) -> bool:
    """Whether what a result is cut into further are no more pieces than elements."""
    cut = tuple(own if more else () for own, more in zip(home, inner, strict=True))
    return fits(sizes, cut, axes)


@lru_cache(maxsize=1 << 14)
def first_only(masks: Masks, alone: tuple[int, ...], axes: Axes, size: tuple[int, int]) -> Masks:
    """The same with nothing on devices that are not the first along some axes."""
    if not alone:
        return masks
    bits = unpacked((masks,), size)[0].copy()
    for device, at in enumerate(product(*map(range, axes))):
        if any(at[axis] for axis in alone):
            bits[device] = 0
    return np.packbits(bits.astype(bool)).tobytes()


def pending_oracle(graph: Graph, axes: Axes, inputs: str, **asked: Any) -> Oracle:
    """All plans in which results may stay pending."""
    outputs = frozenset(vertex.name for vertex in graph.outputs)
    return Oracle(graph, PendingMasks(graph, axes, outputs=outputs, **asked), inputs)


def brute_pending(graph: Graph, axes: Axes, inputs: str = "free", **asked: Any) -> int:
    """The least bytes of all plans in which results may stay pending."""
    return pending_oracle(graph, axes, inputs, **asked).least()
