"""The nests that are worth measuring for a sum of products of given sizes and layouts."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, product
from math import prod
from typing import TYPE_CHECKING

from eindecomp.kernels.cpu.contractions.nest import INSIDE, BlockedNest, PairStep, pairs_of
from eindecomp.kernels.cpu.contractions.price import Prices
from eindecomp.kernels.trees import cheapest_trees

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eindecomp.kernels.cpu.contractions.parts import Placed
    from eindecomp.kernels.trees import Tree
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
    for orders in islice(product(range(3), repeat=len(pairs) - 1), _ORDERS):
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
