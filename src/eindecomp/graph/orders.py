"""The orders in which a contraction of several tensors can be computed.

An `Order` is the set of the subsets of operands, as bit masks, that are contracted to one tensor:
`{0b011, 0b111}` contracts the first two of three operands and then the third one, and `{0b111}`
leaves all three to one fused vertex. Any two of the subsets are disjoint or nested, and the set of
all operands is one of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, islice, permutations
from math import prod
from operator import itemgetter
from typing import Any, cast

from eindecomp.graph.work import (
    MOST_OPERANDS,
    halves,
    kept_labels,
    least_of_subsets,
    least_operations,
    pair_operations,
)
from eindecomp.lang.einsum import Labels, Sizes

Order = frozenset[int]
Step = tuple[int, ...]
"""Which of the tensors that are left are contracted next; what they make goes to the end."""


def steps_of(order: Order, operands: int) -> list[Step]:
    """An order as steps, small subsets first.

    >>> steps_of(frozenset({0b110, 0b111}), 3)
    [(1, 2), (0, 1)]
    """
    queue = [1 << k for k in range(operands)]
    steps: list[Step] = []
    for mask in sorted(order, key=lambda mask: (mask.bit_count(), mask)):
        step = tuple(k for k, part in enumerate(queue) if part & mask == part)
        queue = [part for k, part in enumerate(queue) if k not in step] + [mask]
        steps.append(step)
    return steps


def order_of(steps: Iterable[Step], operands: int) -> Order:
    """The order that steps amount to."""
    queue = [1 << k for k in range(operands)]
    made: set[int] = set()
    for step in steps:
        mask = sum(queue[k] for k in step)
        queue = [part for k, part in enumerate(queue) if k not in step] + [mask]
        made.add(mask)
    return frozenset(made)


def path_of(
    inputs: Sequence[Labels], output: Labels, sizes: Sizes, optimize: str = "auto"
) -> list[Step]:
    """The pairwise steps that opt_einsum finds."""
    import opt_einsum  # here, because few graphs have an n-ary sum and importing it takes time

    symbols: dict[str, str] = {}
    for labels in inputs:
        for label in labels:
            symbols.setdefault(label, opt_einsum.get_symbol(len(symbols)))
    terms = ",".join("".join(symbols[label] for label in labels) for labels in inputs)
    result = "".join(symbols[label] for label in output if label in symbols)
    shapes = [tuple(sizes[label] for label in labels) for labels in inputs]
    spec, how = f"{terms}->{result}", cast("Any", optimize)
    path, _ = opt_einsum.contract_path(spec, *shapes, shapes=True, optimize=how)
    return [tuple(step) for step in path]


@dataclass(frozen=True)
class Contraction:
    """What is contracted: the labels of operands and result, and their sizes."""

    inputs: tuple[Labels, ...]
    output: Labels
    sizes: Sizes
    paired: bool
    """Whether a fused vertex works pair by pair, as kernels do for products of plain tensors."""

    def kept(self, mask: int) -> frozenset[str]:
        """The labels of what a subset of the operands is contracted to."""
        return kept_labels(self.inputs, self.output, mask)

    def operations(self, order: Order) -> dict[int, int]:
        """The scalar operations of each vertex of an order, if none is repeated for any tile."""
        return {mask: self._operations(order, mask) for mask in order}

    def work(self, order: Order) -> int:
        """All scalar operations of an order."""
        return sum(self.operations(order).values())

    def stored(self, order: Order) -> int:
        """The elements of all tensors that lie between operands and result."""
        every = (1 << len(self.inputs)) - 1
        inner = (self.kept(mask) for mask in order if mask != every)
        return sum(prod(self.sizes[label] for label in labels) for labels in inner)

    def _operations(self, order: Order, mask: int) -> int:
        parts = self.children(order, mask)
        labels = [self.kept(part) for part in parts]
        if len(parts) == 2:
            return pair_operations(labels[0], labels[1], self.kept(mask), self.sizes)
        if self.repeats(order, mask):
            own = [tuple(each) for each in labels]
            return least_operations(own, tuple(self.kept(mask)), self.sizes)
        points = frozenset[str]().union(*labels)
        each = len(parts) - 1 + (not points <= self.kept(mask))
        return each * prod(self.sizes[label] for label in points)

    def children(self, order: Order, mask: int) -> list[int]:
        """What is contracted to a subset: single operands and smaller subsets of the order."""
        inner = [other for other in order if other != mask and other & mask == other]
        top = [one for one in inner if not any(one != o and one & o == one for o in inner)]
        left = mask ^ sum(top)
        return [*top, *(1 << k for k in range(len(self.inputs)) if left >> k & 1)]

    def repeats(self, order: Order, mask: int) -> bool:
        """Whether cutting a vertex of an order can make tiles repeat some of its operations."""
        return self.paired and 2 < len(self.children(order, mask)) <= MOST_OPERANDS

    @cached_property
    def _least(self) -> dict[int, int]:
        return least_of_subsets(self.inputs, self.output, self.sizes)

    @cached_property
    def least(self) -> int:
        """The operations of the order that takes the fewest, or of the best that is known."""
        count = len(self.inputs)
        if count <= MOST_OPERANDS:
            return self._least[(1 << count) - 1]
        return min(self.work(order) for order in self.opt_einsum_orders)

    @property
    def cheapest(self) -> Order:
        """A pairwise order of the least operations; that of opt_einsum for many operands."""
        if len(self.inputs) > MOST_OPERANDS:
            return order_of(path_of(self.inputs, self.output, self.sizes), len(self.inputs))
        _, order = next(self._pairwise((1 << len(self.inputs)) - 1, self.least))
        return order

    def cheapest_within(self, factor: float, most: int) -> list[Order]:
        """Pairwise orders of at most `factor` times the least operations, the cheapest first."""
        if len(self.inputs) > MOST_OPERANDS:
            return [self.cheapest]
        within = self._pairwise((1 << len(self.inputs)) - 1, factor * self.least)
        ranked = sorted(islice(within, MOST_RANKED), key=itemgetter(0))
        return list(dict.fromkeys((self.cheapest, *(order for _, order in ranked))))[:most]

    @cached_property
    def opt_einsum_orders(self) -> tuple[Order, ...]:
        """The pairwise orders that opt_einsum finds in different ways, each once."""
        count = len(self.inputs)
        ways = ("auto", "greedy", "dp", "branch-2") if count <= 2 * MOST_OPERANDS else ("greedy",)
        paths = (path_of(self.inputs, self.output, self.sizes, way) for way in ways)
        return tuple(dict.fromkeys(order_of(path, count) for path in paths))

    def within(self, limit: float, most: int) -> list[Order] | None:
        """All orders whose operations are at most `limit`; None if there are more than `most`."""
        if len(self.inputs) > MOST_OPERANDS:
            return None
        orders: dict[Order, None] = {}
        for _, pairs in self._pairwise((1 << len(self.inputs)) - 1, limit):
            for order in coarser(pairs):
                if order == pairs or order in orders or self.paired or self.work(order) <= limit:
                    orders[order] = None
            if len(orders) > most:
                return None
        return list(orders)

    def _pairwise(self, mask: int, limit: float) -> Iterator[tuple[int, Order]]:
        """The pairwise orders of a subset that stay within a limit, with their operations."""
        if limit < self._least[mask]:
            return
        if mask.bit_count() == 1:
            yield 0, frozenset()
            return
        for one in halves(mask):
            other = mask ^ one
            step = pair_operations(self.kept(one), self.kept(other), self.kept(mask), self.sizes)
            for first, left in self._pairwise(one, limit - step - self._least[other]):
                for second, right in self._pairwise(other, limit - step - first):
                    if (total := first + second + step) <= limit:
                        yield total, left | right | {mask}

    def near(self, order: Order, limit: float) -> list[Order]:
        """The orders within the limit that differ from another by one subset."""
        every = (1 << len(self.inputs)) - 1
        others: dict[Order, None] = {}
        for mask in sorted(order):
            if mask != every:
                others[order - {mask}] = None  # fused with what reads it
            parts = self.children(order, mask)
            if len(parts) > 2:
                for one, other in combinations(parts, 2):
                    others[order | {one | other}] = None
            for inner in (part for part in parts if part in order):
                for gone in self.children(order, inner):
                    for taken in parts:
                        if taken != inner:
                            others[order - {inner} | {inner ^ gone | taken}] = None
        return [each for each in others if self.is_order(each) and self.work(each) <= limit]

    def is_order(self, masks: Order) -> bool:
        """Whether subsets are nested or disjoint, have two members or more, and end in all."""
        every = (1 << len(self.inputs)) - 1
        return every in masks and all(
            one.bit_count() > 1 and (one & other) in (0, one, other)
            for one in masks
            for other in masks
        )

    def symmetries(self, kinds: Sequence[Hashable], fixed: bool) -> list[list[int]]:
        """The permutations of operands that leave the contraction as it is, as maps of masks.

        Only operands of one kind may change places; with `fixed`, labels of the result may not.
        """
        if len(self.inputs) > MOST_PERMUTED:
            return []
        twice = any(len(set(labels)) < len(labels) for labels in self.inputs)
        tables: list[list[int]] = []
        for order in permutations(range(len(self.inputs))):
            if not twice and all(kinds[k] == kinds[to] for k, to in enumerate(order)):
                table = [0] * (1 << len(order))
                for mask in range(1, len(table)):
                    rest = mask & (mask - 1)
                    table[mask] = table[rest] | 1 << order[(mask ^ rest).bit_length() - 1]
                if self._labels_by_use(None, fixed) == self._labels_by_use(table, fixed):
                    tables.append(table)
        return tables

    def _labels_by_use(self, table: list[int] | None, fixed: bool) -> list[tuple[object, ...]]:
        """For each label its size, the operands that have it, and whether the result has it."""
        uses: list[tuple[object, ...]] = []
        for label, size in self.sizes.items():
            mask = sum(1 << k for k, labels in enumerate(self.inputs) if label in labels)
            is_output = label in self.output
            shown = label if is_output and fixed else ""
            uses.append((size, mask if table is None else table[mask], is_output, shown))
        return sorted(uses, key=str)


MOST_RANKED = 1000
"""The most orders among which the cheapest are looked for."""
MOST_PERMUTED = 6
"""The most operands whose permutations are tried."""


def coarser(order: Order) -> Iterator[Order]:
    """An order, and all those that fuse some of its vertices."""
    every = max(order)
    inner = sorted(order - {every})
    for chosen in range(1 << len(inner)):
        kept = (mask for k, mask in enumerate(inner) if not chosen >> k & 1)
        yield frozenset((every, *kept))


def one_of_each(orders: Sequence[Order], tables: Sequence[Sequence[int]]) -> list[Order]:
    """The first of all orders that a permutation of operands turns into one another."""
    left = dict.fromkeys(orders)
    firsts: list[Order] = []
    while left:
        first = next(iter(left))
        firsts.append(first)
        for alike in {first, *(frozenset(table[mask] for mask in first) for table in tables)}:
            left.pop(alike, None)
    return firsts
