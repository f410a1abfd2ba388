"""EinSums whose windows show what lies outside of a tensor: only borders need copies of tiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from eindecomp.graph.shown import Range, Shown
from eindecomp.kernels.convolutions import Seen
from eindecomp.kernels.cpu.einsum import EinSumKernel
from eindecomp.kernels.cpu.loops.launch import KEPT
from eindecomp.kernels.cpu.windows import view
from eindecomp.kernels.library import Scalars, Tile
from eindecomp.lang.dtypes import Array
from eindecomp.lang.einsum import EinSum

Block = tuple[Range, ...]
"""A range of each label of a result."""


class BorderKernel:
    """An EinSum over what windows show, computed apart where that lies outside."""

    window = Seen

    def __init__(self, op: EinSum, plain: EinSumKernel) -> None:
        self._op, self._plain, self.state = op, plain, plain.state
        self._known: dict[Any, tuple[Block, ...]] = {}

    def whole(self, operands: Any, out: Array, scalars: Scalars = ()) -> None:
        """Compute the finished result into `out`."""
        for views, (block,) in self._blocks(operands, [out]):
            self._plain.whole(views, block, scalars)

    def wholes(self, tiles: Sequence[Tile], scalars: Scalars = ()) -> None:
        """Compute several tiles at once."""
        parts = (part for operands, out in tiles for part in self._blocks(operands, [out]))
        self._plain.wholes([(views, block) for views, (block,) in parts], scalars)

    def partial(self, operands: Any, state: Sequence[Array], scalars: Scalars = ()) -> None:
        """Compute the unfinished states of this tile into the given arrays."""
        for views, block in self._blocks(operands, state):
            self._plain.partial(views, block, scalars)

    def combine(self, into: Sequence[Array], other: Sequence[Array]) -> None:
        """Combine two tiles' states, element by element, into the first."""
        self._plain.combine(into, other)

    def finish(self, state: Sequence[Array], out: Array) -> None:
        """Turn states into the result."""
        self._plain.finish(state, out)

    def _blocks(
        self, operands: Sequence[Any], outs: Sequence[Array]
    ) -> Iterator[tuple[list[Any], list[Array]]]:
        """Views of the operands, and the block of the results that is computed from them."""
        op, shape = self._op, outs[0].shape
        key = (shape, *(x.shown if isinstance(x, Seen) else None for x in operands))
        if 0 in shape:
            return
        if key not in self._known:
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[key] = tuple(_cut(op, key[1:], shape))
        for block in self._known[key]:
            ranges = dict(zip(op.output, block, strict=True))
            views: list[Any] = []
            for x, labels in zip(operands, op.inputs, strict=True):
                if isinstance(x, Seen):
                    pairs = zip(labels, x.shown.shape, strict=True)
                    where, shown = x.shown.part([ranges.get(t, (0, n)) for t, n in pairs])
                    views.append(view(x.tile[where], shown))
                else:
                    cuts = (slice(*ranges[t]) if t in ranges else slice(None) for t in labels)
                    views.append(None if x is None else x[tuple(cuts)])
            where = (*(slice(*each) for each in block), ...)
            yield views, [out[where] for out in outs]


def _cut(op: EinSum, seen: Sequence[Shown | None], shape: Sequence[int]) -> Iterator[Block]:
    """What lies inside for all operands, then the borders around it."""
    inner: list[Range] = [(0, size) for size in shape]
    for labels, shown in zip(op.inputs, seen, strict=True):
        for k, label in enumerate(labels if shown is not None else ()):
            if shown is not None and label in op.output:
                low, high = shown.inside(k)
                at = op.output.index(label)
                inner[at] = max(inner[at][0], low), min(inner[at][1], high)
    if not prod(max(high - low, 0) for low, high in inner):
        yield tuple((0, size) for size in shape)
        return
    yield tuple(inner)
    for k, (size, (low, high)) in enumerate(zip(shape, inner, strict=True)):
        rest, ends = [(0, n) for n in shape[k + 1 :]], [(0, low), (high, size)]
        yield from ((*inner[:k], end, *rest) for end in ends if end[0] < end[1])
