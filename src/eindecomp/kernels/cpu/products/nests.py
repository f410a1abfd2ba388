"""Nests: ways to compute a sum of products of several tensors two at a time, block by block.

A nest says which two tensors come next, and along which label in blocks. Temporaries that have the
blocked label are made one block at a time, so that they stay in the cache and are never whole. What
has no such label is computed once before; a product that sums the blocked label is added up block
by block, and what needs that sum comes after.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from itertools import product as combinations
from math import prod

import numpy as np
from numpy.lib.stride_tricks import as_strided

from eindecomp.graph.orders import Contraction, Order, steps_of
from eindecomp.kernels.cpu.loops.launch import Arrays
from eindecomp.kernels.cpu.products.gemm import Gemm, price
from eindecomp.kernels.library import TileKernel
from eindecomp.kernels.tile_arrays import sizes_of
from eindecomp.lang.dtypes import Array, DType, Types
from eindecomp.lang.einsum import EinSum, Labels, Sizes, product
from eindecomp.lang.monoid import SUM

PairKernel = Callable[[EinSum, Types, DType], TileKernel]
"""Gives the kernel of a product of two tensors."""

BEFORE, INSIDE, AFTER = range(3)
"""When a step is taken: before the blocks, for each of them, or after them."""
_BUDGET = 2**19
"""Bytes of temporaries in a block: half of the cache that a core usually has to itself."""
_UNIT = 8
"""Blocks of more indices than this are multiples of it, as rows of vector kernels are."""


@dataclass(frozen=True, slots=True)
class PairStep:
    """The product of two tensors, by their numbers: inputs come first, then results of steps."""

    first: int
    second: int
    labels: Labels
    """Of the result, in the order in which it lies in memory."""


@dataclass(frozen=True, slots=True)
class BlockedNest:
    """Steps, and the label that is cut into blocks (or none)."""

    steps: tuple[PairStep, ...]
    blocked: str = ""

    def times(self, inputs: Sequence[Labels]) -> list[int]:
        """When each step is taken."""
        labels = [*inputs, *(step.labels for step in self.steps)]
        # When a tensor is made: before, within or after the blocks; inputs with the label are cut.
        when = [INSIDE if self.blocked in own else BEFORE for own in inputs]
        for step in self.steps:
            operands = (step.first, step.second)
            at = max(when[k] for k in operands)
            if at == INSIDE and not any(self.blocked in labels[k] for k in operands):
                at = AFTER  # it reads what was added up
            when.append(at)
        return when[len(inputs) :]

    def block(self, inputs: Sequence[Labels], sizes: Sizes, itemsize: int) -> int:
        """How many indices of the blocked label are taken at a time."""
        size = sizes.get(self.blocked, 1)
        each = itemsize * sum(
            prod(sizes[label] for label in step.labels if label != self.blocked)
            for step, when in zip(self.steps[:-1], self.times(inputs), strict=False)
            if when == INSIDE and self.blocked in step.labels
        )
        most = max(1, min(size, _BUDGET // max(each, 1)))
        block = -(-size // -(-size // most))  # blocks of about the same size
        return min(size, -(-block // _UNIT) * _UNIT) if block > _UNIT else block

    def temporaries(self, inputs: Sequence[Labels], sizes: Sizes, itemsize: int) -> list[list[int]]:
        """The shapes of what all steps but the last make, of one block if made block by block."""
        short = {**sizes, self.blocked: self.block(inputs, sizes, itemsize)}
        return [
            [(short if at == INSIDE else sizes)[label] for label in step.labels]
            for step, at in zip(self.steps[:-1], self.times(inputs), strict=False)
        ]

    def to_text(self) -> str:
        """A text that `nest_of` reads."""
        steps = [[step.first, step.second, list(step.labels)] for step in self.steps]
        return json.dumps([steps, self.blocked])


def nest_of(text: str) -> BlockedNest | None:
    """The nest that a text describes; None if it is another text."""
    try:
        steps, blocked = json.loads(text)
        made = tuple(PairStep(first, second, tuple(own)) for first, second, own in steps)
    except (ValueError, TypeError):
        return None
    return BlockedNest(made, blocked)


class NestCall:
    """A nest for arrays of given sizes."""

    def __init__(
        self, op: EinSum, nest: BlockedNest, sizes: Sizes, of: DType, kernel_of: PairKernel
    ) -> None:
        self._type, self._steps, self._times = of, nest.steps, nest.times(op.inputs)
        self._size = sizes.get(nest.blocked, 1)
        self._block = nest.block(op.inputs, sizes, of.itemsize)
        self.temporaries = nest.temporaries(op.inputs, sizes, of.itemsize)
        self._blocked = nest.blocked
        self._labels = labels = [*op.inputs, *(step.labels for step in nest.steps)]
        self._kernels = [
            kernel_of(_pair(labels[step.first], labels[step.second], step.labels), (of, of), of)
            for step in nest.steps
        ]
        self._is_sum = [nest.blocked not in step.labels for step in nest.steps]
        whens = [*[BEFORE] * len(op.inputs), *self._times[:-1], BEFORE]
        self._is_short = [when == INSIDE for when in whens]
        """Whether a tensor is only as long as a block."""

    def launch(self, inputs: Sequence[Array], outputs: Sequence[Array], _: object = ()) -> None:
        """Compute the result of arrays of these sizes."""
        made = [np.empty(shape, self._type) for shape in self.temporaries]
        tensors = [*inputs, *made, *outputs]
        self._take(BEFORE, tensors)
        if INSIDE in self._times:
            for start in range(0, self._size, self._block):
                self._take(INSIDE, self._blocks(tensors, start), is_first=not start)
        self._take(AFTER, tensors)

    def _take(self, when: int, tensors: Sequence[Array], *, is_first: bool = True) -> None:
        """Take all steps of a time; a sum over blocks is added to that of earlier ones."""
        before = len(tensors) - len(self._steps)
        for k, (step, at) in enumerate(zip(self._steps, self._times, strict=True)):
            if at == when:
                operands, out = [tensors[step.first], tensors[step.second]], tensors[before + k]
                if is_first or not self._is_sum[k]:
                    self._kernels[k].whole(operands, out)
                else:
                    more = np.empty(out.shape, self._type)
                    self._kernels[k].whole(operands, more)
                    np.add(out, more, out=out)

    def _blocks(self, tensors: Sequence[Array], start: int) -> list[Array]:
        """One block of each tensor that has the blocked label."""
        size = min(self._block, self._size - start)
        short, long = slice(size), slice(start, start + size)
        return [
            cut(array, labels, {self._blocked: short if is_short else long})
            for array, labels, is_short in zip(tensors, self._labels, self._is_short, strict=True)
        ]


def cut(array: Array, labels: Labels, windows: Mapping[str, slice]) -> Array:
    """The part of a tensor within windows along some labels."""
    return array[tuple(windows.get(label, slice(None)) for label in labels)] if labels else array


def _pair(first: Labels, second: Labels, out: Labels) -> EinSum:
    return EinSum((first, second), out, product(2), SUM)


# Which nests are worth measuring

_ORDERS = 12
"""How many of the cheapest orders are looked at; layouts decide between those of equal work."""
_MORE = 1.6
"""An order is looked at if it takes at most this many times the cheapest one's operations."""
_ARRANGEMENTS = 27
"""Arrangements of temporaries that are looked at for each order."""
_MEASURED = 8
"""Nests that are measured."""
_LARGEST = 2**25
"""Bytes of temporaries beyond which no nest is offered as long as another needs less."""
# Rough seconds of a call, of a point of a loop, and of a byte of a temporary that is too large for
# the caches near a core: to rank nests.
_CALL, _LOOP, _BYTE = 1e-6, 5e-10, 1e-10
_SCATTERED = 4  # times as long, where a loop has no vectors to read
_NEAR = 2**20  # bytes


def candidates(op: EinSum, operands: Arrays, out: Array, sizes: Sizes) -> list[BlockedNest]:
    """The most promising nests, the one that seems best first."""
    contraction = Contraction(op.inputs, op.output, sizes, paired=False)
    orders = contraction.cheapest_within(_MORE, _ORDERS)
    found = (steps for order in orders for steps in _arrangements(op, order))
    blocked = (nest for steps in found for nest in _blockings(op, steps, sizes, out.itemsize))
    nests = dict.fromkeys(blocked)
    taken = {nest: _bytes(op, nest, sizes, out.itemsize) for nest in nests}
    room = [nest for nest in nests if taken[nest] <= _LARGEST]
    offered = room or [min(nests, key=lambda nest: taken[nest])]
    known: dict[object, float] = {}
    prices = {nest: _seconds(op, nest, operands, out, sizes, known) for nest in offered}
    return sorted(offered, key=lambda nest: prices[nest])[:_MEASURED]


def _arrangements(op: EinSum, order: Order) -> Iterator[tuple[PairStep, ...]]:
    """The steps of an order, with the labels of temporaries arranged in several ways."""
    pairs: list[tuple[int, int]] = []
    count = len(op.inputs)
    left = [*range(count)]
    for number, step in enumerate(steps_of(order, count), start=count):
        first, second = (left[k] for k in step)
        pairs.append((first, second))
        left = [k for k in left if k not in (first, second)] + [number]
    for ways in islice(combinations(range(3), repeat=len(pairs) - 1), _ARRANGEMENTS):
        labels = [*op.inputs]
        alive = set(range(len(op.inputs)))
        for (first, second), way in zip(pairs, (*ways, 0), strict=True):
            alive -= {first, second}
            needed = {*op.output, *(label for k in alive for label in labels[k])}
            own = _arranged(labels[first], labels[second], way)
            alive.add(len(labels))
            labels.append(tuple(label for label in own if label in needed))
        labels[-1] = op.output
        made = labels[len(op.inputs) :]
        yield tuple(PairStep(*pair, own) for pair, own in zip(pairs, made, strict=True))


def _arranged(first: Labels, second: Labels, way: int) -> Labels:
    """The labels of a product: either factor's before the other's, or those of both last."""
    shared = [label for label in first if label in second] if way == 2 else []
    both = (*second, *first) if way == 1 else (*first, *second)
    return (*(label for label in dict.fromkeys(both) if label not in shared), *shared)


def _blockings(
    op: EinSum, steps: tuple[PairStep, ...], sizes: Sizes, itemsize: int
) -> Iterator[BlockedNest]:
    """A nest as a whole, and in blocks along each label that temporaries have."""
    whole = BlockedNest(steps)
    yield whole
    if _bytes(op, whole, sizes, itemsize) > _BUDGET:
        for label in dict.fromkeys(label for step in steps[:-1] for label in step.labels):
            if sizes[label] > 1:
                yield BlockedNest(steps, label)


def _bytes(op: EinSum, nest: BlockedNest, sizes: Sizes, itemsize: int) -> int:
    """How many bytes the temporaries of a nest take."""
    return itemsize * sum(prod(shape) for shape in nest.temporaries(op.inputs, sizes, itemsize))


def _seconds(
    op: EinSum,
    nest: BlockedNest,
    operands: Arrays,
    out: Array,
    sizes: Sizes,
    known: dict[object, float],
) -> float:
    """About how long a nest takes; `known` has the parts that were priced for other nests."""
    block = nest.block(op.inputs, sizes, out.itemsize)
    blocks = -(-sizes.get(nest.blocked, 1) // block)
    labels = [*op.inputs, *(step.labels for step in nest.steps)]
    shapes = nest.temporaries(op.inputs, sizes, out.itemsize)
    tensors = [*operands, *(_unseen(shape, out.dtype) for shape in shapes), out]
    total = 0.0
    for k, (step, when) in enumerate(zip(nest.steps, nest.times(op.inputs), strict=True)):
        turns = blocks if when == INSIDE else 1
        if k < len(shapes) and out.itemsize * prod(shapes[k]) > _NEAR:
            total += turns * out.itemsize * prod(shapes[k]) * _BYTE
        numbers = (step.first, step.second, len(operands) + k)
        own = [labels[number] for number in numbers]
        windows = {nest.blocked: slice(block)} if when == INSIDE else {}
        arrays = [cut(tensors[number], labels[number], windows) for number in numbers]
        key = (*own, *((array.shape, array.strides) for array in arrays))
        if key not in known:
            known[key] = _pair_seconds(own, arrays)
        total += turns * known[key]
    return total


def _pair_seconds(labels: Sequence[Labels], arrays: Sequence[Array]) -> float:
    x, y, out = arrays
    gemm = Gemm(_pair(labels[0], labels[1], labels[2]), (x.dtype, y.dtype), out.dtype)
    matrices = gemm.arranged([x, y], out)
    if matrices is not None:
        return price(matrices)
    last = [own[-1] for own in labels if own]
    scattered = 1 if len(set(last)) < len(last) else _SCATTERED
    return _CALL + prod(sizes_of(labels, arrays).values()) * _LOOP * scattered


def _unseen(shape: Sequence[int], of: DType) -> Array:
    """A compact array of which only the layout is read."""
    strides = [of.itemsize * prod(shape[k + 1 :]) for k in range(len(shape))]
    return as_strided(np.empty(1, of), shape, strides)
