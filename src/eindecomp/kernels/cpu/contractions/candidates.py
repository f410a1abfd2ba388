"""The nests that are worth measuring for a sum of products, by about how long they take."""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from eindecomp.kernels.cpu.contractions.build import (
    INSIDE,
    BlockedNest,
    PairStep,
    block_of,
    pairs_of,
)
from eindecomp.kernels.cpu.contractions.parts import Placed, compact_strides
from eindecomp.kernels.cpu.contractions.script import Address
from eindecomp.kernels.cpu.products.gemm import Gemm
from eindecomp.kernels.trees import cheapest_trees
from eindecomp.lang.einsum import EinSum, Labels, product
from eindecomp.lang.monoid import SUM

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eindecomp.kernels.cpu.contractions.parts import Placed
    from eindecomp.kernels.trees import Tree
    from eindecomp.lang.dtypes import DType
    from eindecomp.lang.einsum import EinSum, Labels


_TREES = 12
"""Trees that are looked at, the cheapest ones; layouts decide between those of the same work."""
_MORE = 1.6
"""Times as many operations as the cheapest tree's that one may take to be looked at."""
_ORDERS = 27
"""Orders of temporaries that are looked at for each tree."""
_BUDGETS = (2**18, 2**20)
"""Bytes of temporaries in a block: within what every core has to itself, or a bit more."""
_MEASURED = 8
"""Nests that are measured, and about as many variants of the first of them."""
_LARGEST = 2**25
"""Bytes of temporaries beyond which no nest is offered as long as another needs less."""


def candidates(
    op: EinSum, inputs: Sequence[Placed], out: Placed, sizes: Mapping[str, int]
) -> list[BlockedNest]:
    """The most promising nests, the best of them first as far as one can tell."""
    prices = Prices(op, inputs, out)
    nests = dict.fromkeys(
        nest
        for tree in _trees(op, sizes)
        for steps in _orders(op, tree)
        for nest in _blockings(op, steps, sizes, out.type.itemsize)
    )
    taken = {nest: _temporaries(op, nest, sizes, out.type.itemsize) for nest in nests}
    room = [nest for nest in nests if taken[nest] <= _LARGEST]
    ranked = sorted(
        room or [min(nests, key=lambda nest: taken[nest])],
        key=lambda nest: prices.seconds(nest, sizes),
    )
    found: list[BlockedNest] = []
    for nest in ranked[:_MEASURED]:
        found.append(nest)
        if nest.blocked and len(found) <= _MEASURED:
            found.append(replace(nest, budget=_BUDGETS[1]))
    return found


def _trees(op: EinSum, sizes: Mapping[str, int]) -> list[Tree]:
    ranked = cheapest_trees(op.inputs, op.output, sizes, _TREES)
    return [tree for work, tree in ranked if work <= _MORE * ranked[0][0]]


def _orders(op: EinSum, tree: Tree) -> Iterator[tuple[PairStep, ...]]:
    """The steps of a tree, with the labels of temporaries in several orders."""
    pairs = pairs_of(tree, len(op.inputs))
    for orders in itertools.islice(itertools.product(range(3), repeat=len(pairs) - 1), _ORDERS):
        labels = [*op.inputs]
        alive = set(range(len(op.inputs)))
        steps: list[PairStep] = []
        for (first, second), order in zip(pairs, (*orders, 0), strict=True):
            alive -= {first, second}
            needed = {*op.output, *(label for k in alive for label in labels[k])}
            own = _arranged(labels[first], labels[second], order)
            alive.add(len(labels))
            labels.append(tuple(label for label in own if label in needed))
            if len(alive) == 1:
                labels[-1] = op.output
            steps.append(PairStep(first, second, labels[-1]))
        yield tuple(steps)


def _arranged(first: Labels, second: Labels, order: int) -> Labels:
    """The labels of a product: either factor's before the other's, or those of both last."""
    shared = [label for label in first if label in second] if order == 2 else []
    both = (*second, *first) if order == 1 else (*first, *second)
    return (*(label for label in dict.fromkeys(both) if label not in shared), *shared)


def _blockings(
    op: EinSum, steps: tuple[PairStep, ...], sizes: Mapping[str, int], itemsize: int
) -> Iterator[BlockedNest]:
    """A nest as a whole, and in blocks along each label that temporaries have."""
    whole = BlockedNest(steps)
    yield whole
    if _temporaries(op, whole, sizes, itemsize) <= _BUDGETS[0]:
        return
    for label in dict.fromkeys(label for step in steps[:-1] for label in step.labels):
        if sizes[label] > 1:
            yield BlockedNest(steps, label, _BUDGETS[0])


def _temporaries(op: EinSum, nest: BlockedNest, sizes: Mapping[str, int], itemsize: int) -> int:
    """About how many bytes the temporaries of a nest take."""
    total = 0
    for step, when in zip(nest.steps[:-1], nest.times(op.inputs), strict=False):
        own = [sizes[label] for label in step.labels if label != nest.blocked or when != INSIDE]
        total += itemsize * prod(own)
    return total


# About what a call costs, a copied element, a multiply-add of a product and one of a loop, and a
# byte of a temporary that is too large for the caches near a core: to tell nests apart.
_CALL, _COPY, _PRODUCT, _LOOP, _BYTE = 3e-7, 1.5e-9, 2e-11, 5e-10, 1e-10
_SCATTERED = 4  # times as long, where a loop has no vectors to read
_NEAR = 2**20  # bytes


class Prices:
    """The prices of nests over tensors of one layout; parts that nests share are priced once."""

    def __init__(self, op: EinSum, inputs: Sequence[Placed], out: Placed) -> None:
        self._op, self._inputs, self._out = op, inputs, out
        self._known: dict[object, float] = {}

    def seconds(self, nest: BlockedNest, sizes: Mapping[str, int]) -> float:
        """About how long a nest takes."""
        of = self._out.type
        block = block_of(nest, self._op.inputs, sizes, of.itemsize)
        blocks = -(-sizes[nest.blocked] // block) if nest.blocked else 1
        short = {**sizes, nest.blocked: block}
        tensors = list(self._inputs)
        total = 0.0
        for k, (step, when) in enumerate(zip(nest.steps, nest.times(self._op.inputs), strict=True)):
            own, turns = (short, blocks) if when == INSIDE else (sizes, 1)
            made = self._out
            if k < len(nest.steps) - 1:
                made = Placed(of, Address(-1), compact_strides(step.labels, own, of))
                nbytes = of.itemsize * prod(own[label] for label in step.labels)
                total += turns * nbytes * _BYTE if nbytes > _NEAR else 0.0
            tensors.append(made)
            total += turns * self._part(tensors[step.first], tensors[step.second], made, own)
        return total

    def _part(self, x: Placed, y: Placed, out: Placed, sizes: Mapping[str, int]) -> float:
        labels = {*x.labels, *y.labels, *out.labels}
        key = (
            *(tuple(each.strides.items()) for each in (x, y, out)),
            tuple(sorted((label, sizes[label]) for label in labels)),
        )
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _seconds(x, y, out, sizes)
        return found


def _seconds(x: Placed, y: Placed, out: Placed, sizes: Mapping[str, int]) -> float:
    op = EinSum((x.labels, y.labels), out.labels, product(2), SUM)
    types: tuple[DType, DType, DType] = (x.type, y.type, out.type)
    gemm = Gemm(op, types[:2], out.type)
    classed = gemm.classed([x.array(sizes), y.array(sizes)], out.array(sizes))
    found = None if classed is None else gemm.arrange(*classed, types)
    points = prod(sizes[label] for label in {*x.labels, *y.labels, *out.labels})
    if found is None:
        last = [each.labels[-1] for each in (x, y, out) if each.labels]
        return _CALL + points * _LOOP * (1 if len(set(last)) < len(last) else _SCATTERED)
    extents = found.layout.sizes
    m, n, k = (
        prod(extents[label] for label in part) for part in (found.rows, found.columns, found.summed)
    )
    calls = prod(extents[label] for label in found.batch)
    slow = (1 + 8 / m) * (1 + 8 / n) * (1 + 8 / k)
    seconds = calls * (_CALL + m * n * k * _PRODUCT * slow * out.type.itemsize / 4)
    for own, copied in zip(found.layout.arrays, found.copied, strict=True):
        if copied:
            seconds += _COPY * prod(extents[label] for label in own)
    return seconds
