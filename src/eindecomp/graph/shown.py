"""What a tile shows through a window: where its elements stand, and what stands beside them.

A tile holds the elements that lie within its tensor. Along each dimension they stand among `count`
places, at every `step`-th one; all other places have what lies outside. What a window shows is a
view of these places, in which the labels of a vertex walk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

from eindecomp.graph.ops import Window
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.index import CLAMP, Outside
from eindecomp.lang.scalar import used_args

Range = tuple[int, int]
Box = tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Places:
    """The places of a dimension that a tile needs, and where its elements stand among them."""

    count: int
    start: int
    """The place of the first element; before the first place where only a later one is needed."""
    size: int
    step: int
    outside: Outside

    @property
    def is_filled(self) -> bool:
        """Whether the elements of the tile are all that is needed."""
        return (self.start, self.size, self.step) == (0, self.count, 1)

    @property
    def slice(self) -> slice:
        """Where the elements stand."""
        end = self.start + (self.size - 1) * self.step + 1
        return slice(self.start, end if self.size else self.start, self.step)


@dataclass(frozen=True, slots=True)
class Shown:
    """The places that a tile needs, and how labels walk through them."""

    places: tuple[Places, ...]
    starts: tuple[int, ...]
    """The place along each dimension where every label is at its first number."""
    walks: tuple[tuple[int, ...], ...]
    """For each label how many places it moves along each dimension."""
    shape: tuple[int, ...]
    """How many numbers each label has."""

    @property
    def is_filled(self) -> bool:
        """Whether nothing stands beside the elements of the tile."""
        return all(own.is_filled for own in self.places)

    def strides(self, steps: Sequence[int]) -> tuple[int, ...]:
        """The stride of each label, for an array of places with these strides."""
        return tuple(sum(n * s for n, s in zip(own, steps, strict=True)) for own in self.walks)

    def part(self, ranges: Sequence[Range]) -> tuple[tuple[slice, ...], Shown]:
        """The elements shown where labels have these numbers, and what is shown of them."""
        taken, places, starts = list[slice](), list[Places](), list[int]()
        for axis, (own, at) in enumerate(zip(self.places, self.starts, strict=True)):
            walks = [walk[axis] for walk in self.walks]
            pairs = list(zip(walks, ranges, strict=True))
            first = at + sum(min(n * low, n * (high - 1)) for n, (low, high) in pairs)
            last = at + sum(max(n * low, n * (high - 1)) for n, (low, high) in pairs)
            low = min(max(-(-(first - own.start) // own.step), 0), own.size)
            high = max(min((last - own.start) // own.step + 1, own.size), low)
            if low == high and own.outside == CLAMP and own.size:  # the nearest one is shown
                low = min(low, own.size - 1)
                high = low + 1
            taken.append(slice(low, high))
            start = own.start + low * own.step - first if low < high else 0
            places.append(Places(last + 1 - first, start, high - low, own.step, own.outside))
            starts.append(at + sum(n * low for n, (low, _) in pairs) - first)
        shape = tuple(high - low for low, high in ranges)
        return tuple(taken), Shown(tuple(places), tuple(starts), self.walks, shape)

    def inside(self, label: int) -> Range:
        """For which numbers of a label no other shows what lies outside."""
        low, high = 0, self.shape[label]
        for axis, own in enumerate(self.places):
            n = self.walks[label][axis]
            if own.is_filled or not n:
                continue
            if own.step > 1:
                return 0, 0
            ends = [
                (walk[axis], size - 1) for walk, size in zip(self.walks, self.shape, strict=True)
            ]
            del ends[label]
            least = self.starts[axis] + sum(min(0, walk * last) for walk, last in ends) - own.start
            most = self.starts[axis] + sum(max(0, walk * last) for walk, last in ends) - own.start
            # 0 <= least + n * number, and most + n * number < own.size
            bounds = -least / n, (own.size - 1 - most) / n
            low, high = max(low, ceil(min(bounds))), min(high, floor(max(bounds)) + 1)
        return (low, high) if low < high else (0, 0)

    def start(self, steps: Sequence[int]) -> int:
        """Where it begins, for an array of places with these strides."""
        return sum(n * s for n, s in zip(self.starts, steps, strict=True))


def numbered(vertex: Vertex) -> dict[str, int]:
    """The labels that only windows have, with their sizes: no block of a tile tells its numbers."""
    op = vertex.op
    if not isinstance(op, EinSum) or not vertex.windows:
        return {}
    told, sizes = {*op.output}, dict[str, int]()
    used = used_args(op.join)
    for k, (labels, window) in enumerate(zip(op.inputs, vertex.windows, strict=True)):
        if k in used and window is None:
            told.update(labels)
        elif window is not None:
            sizes |= window.by_label
    return {label: size for label, size in sizes.items() if label not in told}


def shown_to(
    vertex: Vertex, reads: Sequence[Box | None], out: Box, numbers: Box = ()
) -> tuple[Shown | None, ...]:
    """For each operand of a tile what it shows through its window; nothing if there is none.

    `reads` are the blocks of the operands, `out` is that of the result, and `numbers` are those of
    the labels that only windows have, by default all.
    """
    windows = (vertex.op,) if isinstance(vertex.op, Window) else vertex.windows
    if not windows:
        return ()
    ranges = dict(zip(vertex.labels, out, strict=True))
    ranges.update(zip(numbered(vertex), numbers, strict=False))
    if isinstance(vertex.op, EinSum):
        for labels, box, window in zip(vertex.op.inputs, reads, windows, strict=True):
            if window is None and box is not None:
                ranges.update(zip(labels, box, strict=True))
    for window, box in zip(windows, reads, strict=True):
        if window is not None and box is not None:
            for index, reach in zip(window.index, box, strict=True):
                ranges.setdefault(index.alone or "", reach)
    return tuple(
        None if window is None or box is None else _shown(window, ranges, box)
        for window, box in zip(windows, reads, strict=True)
    )


def _shown(window: Window, ranges: dict[str, Range], box: Box) -> Shown:
    own = {label: ranges.get(label, (0, size)) for label, size in window.by_label.items()}
    shape = {label: high - low for label, (low, high) in own.items()}
    places, starts = list[Places](), list[int]()
    for index, (low, high) in zip(window.index, box, strict=True):
        is_empty = not all(shape[label] for label in index.labels)
        first, last = (0, -1) if is_empty else index.within(own)
        at = index.offset + sum(times * own[label][0] for label, times in index.terms)
        starts.append(0 if is_empty else at - first)
        start = low * index.divisor - first if low < high else 0
        place = Places(last + 1 - first, start, high - low, index.divisor, index.outside)
        places.append(place)
    walks = tuple(tuple(dict(i.terms).get(label, 0) for i in window.index) for label in own)
    return Shown(tuple(places), tuple(starts), walks, tuple(shape.values()))


def see(
    library: Any,
    kernel: Any,
    operands: Sequence[Any],
    shown: Sequence[Shown | None],
) -> Sequence[Any]:
    """The operands of a tile as its kernel takes them: what windows show, all else as it is.

    A kernel that has a `window` of its own takes what that makes of a tile, instead of a view.
    """
    if not shown:
        return operands
    window = getattr(kernel, "window", library.window)
    pairs = zip(operands, shown, strict=True)
    return [x if x is None or own is None else window(x, own) for x, own in pairs]
