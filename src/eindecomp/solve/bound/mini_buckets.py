"""A lower bound by elimination whose tables stay small: mini-buckets with matched marginals.

Where the tables that a variable is in would join to one beyond the cap, they are joined in groups,
and each group takes the least over its own copy of the variable. Copies may disagree, so the result
is a bound; before they part, costs are shifted between the groups until they agree on what each
choice costs at least, which is what makes the bound tight. Without a split it is the optimum.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from math import inf, prod
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.solve.problem.cost_network import Table, spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eindecomp.solve.bound.cost_shifting import Term
    from eindecomp.solve.problem.arrays import Floats, Ints

KEPT = 1 << 30  # the most bytes of tables that are kept to find a choice
_TOGETHER = 1 << 27  # the most cells of the tables that one variable's terms join to
_LATE = 0.8  # the part of the time after which tables are joined no further than is quick
_QUICK = 1 << 18  # cells of such tables
_AXES = 30  # of an array: variables with one choice cost no cells, but some of NumPy takes 32 axes


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """What no choice undercuts; a choice that comes near it, if it could be kept."""

    value: float
    choice: Ints | None
    exact: bool
    """Whether nothing was split: the value is then the optimum."""


def bound_by_mini_buckets(
    sizes: list[int], terms: Sequence[Term], cells: int, deadline: float, *, integral: bool
) -> Bound | None:
    """Eliminate with joined tables of at most `cells`, as far as single tables allow.

    Where time runs short, the tables of the variables that are left are smaller; None if it ends
    all the same. With `integral` costs every shift is an integer, so that nothing is rounded.

    >>> square = np.array([[0.0, 1.0], [2.0, 0.0]])
    >>> terms = [(((0, 1), square),), (((0,), np.array([5.0, 0.0])),)]
    >>> found = bound_by_mini_buckets([2, 2], terms, 4, inf, integral=True)
    >>> found.value, found.choice.tolist(), found.exact
    (0.0, [1, 1], True)
    """
    started = monotonic()
    late = started + _LATE * (deadline - started)
    buckets = _Buckets.of(sizes, terms)
    taken: list[tuple[int, list[Term]]] | None = []
    kept, exact, offset = 0, True, 0.0
    space: list[Floats] = []  # new memory costs about as much as what is computed in it
    while (v := buckets.cheapest()) is not None:
        now = monotonic()
        if now > deadline:
            return None
        cells = min(cells, _QUICK) if now > late else cells
        own = buckets.take(v)
        if taken is not None:
            taken.append((v, own))
            kept += sum(term[0][1].nbytes for term in own if len(term) == 1)
            taken = taken if kept <= KEPT else None
        joined: list[Table] = []
        for group in _spacious(own, sizes, cells):
            if monotonic() > deadline:
                return None
            joined.append(_joined(v, group, sizes, space, len(joined)))
        exact = exact and len(joined) <= 1
        _match(joined, integral)
        for scope, table in joined:
            least = table.min(axis=0)
            if least.ndim:
                buckets.put(((scope[1:], least),))
            else:
                offset += float(least)
        buckets.weigh({t for scope, _ in joined for t in scope[1:]})
    choice = None if taken is None else _decoded(taken, sizes)
    return Bound(offset, choice, exact)


@dataclass(slots=True)
class _Buckets:
    """The terms that each variable is in, and which variable's terms join to the least."""

    weight: list[float]
    terms: list[dict[int, Term]]
    loads: list[float]
    heap: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    made: int = 0

    @staticmethod
    def of(sizes: list[int], terms: Sequence[Term]) -> _Buckets:
        weight: list[float] = np.log2(np.array(sizes, dtype=np.float64)).tolist()
        buckets = _Buckets(weight, [{} for _ in weight], [-1.0] * len(weight))
        for term in terms:
            buckets.put(term)
        buckets.weigh(range(len(weight)))
        return buckets

    def put(self, term: Term) -> None:
        for v in term[0][0]:
            self.terms[v][self.made] = term
        self.made += 1

    def take(self, v: int) -> list[Term]:
        """Take out the terms that a variable is in, and the variable."""
        own = self.terms[v]
        for number, ((scope, _), *_) in own.items():
            for t in scope:
                if t != v:
                    del self.terms[t][number]
        self.terms[v], self.loads[v] = {}, inf
        return list(own.values())

    def weigh(self, variables: Iterable[int]) -> None:
        """Note what eliminating these variables takes now."""
        for v in variables:
            around = {v}.union(*(term[0][0] for term in self.terms[v].values()))
            load = sum(self.weight[t] for t in sorted(around))
            if load != self.loads[v]:
                self.loads[v] = load
                heapq.heappush(self.heap, (load, v))

    def cheapest(self) -> int | None:
        while self.heap:
            load, v = heapq.heappop(self.heap)
            if load == self.loads[v]:
                return v
        return None


def _spacious(terms: list[Term], sizes: list[int], cells: int) -> list[list[Term]]:
    """Groups that can all be held at once."""
    groups = _groups(terms, sizes, cells)
    while len(groups) * cells > _TOGETHER and len(groups) < len(terms):
        cells //= 2
        groups = _groups(terms, sizes, cells)
    return groups


def _groups(terms: list[Term], sizes: list[int], cells: int) -> list[list[Term]]:
    """The terms, largest first, each put where it makes the joined table grow least."""
    groups: list[tuple[set[int], list[Term]]] = []

    def joint(scope: Iterable[int]) -> int:
        return prod(sizes[t] for t in scope)

    for term in sorted(terms, key=lambda term: -term[0][1].size):
        scope = term[0][0]
        unions = [own.union(scope) for own, _ in groups]
        joins = [(joint(every), k) for k, every in enumerate(unions) if len(every) <= _AXES]
        fits = [(size / joint(groups[k][0]), k) for size, k in joins if size <= cells]
        if fits:
            own, members = groups[min(fits)[1]]
            own.update(scope)
            members.append(term)
        else:
            groups.append((set(scope), [term]))
    return [members for _, members in groups]


def _joined(v: int, terms: list[Term], sizes: list[int], space: list[Floats], number: int) -> Table:
    """The sum of the terms, `v` first, in space that each join of that number uses again."""
    rest = {t for term in terms for t in term[0][0]} - {v}
    scope = (v, *sorted(rest, key=lambda t: (sizes[t], t)))  # long rows make short work
    shape = tuple(sizes[t] for t in scope)
    parts = [spread(own, table, scope) for term in terms for own, table in term]
    while len(space) <= number:
        space.append(np.empty(0))
    if space[number].size < prod(shape):
        space[number] = np.empty(prod(shape))
    joined = space[number][: prod(shape)].reshape(shape)
    total = np.zeros([1] * len(scope))
    # Small ones are added up first: only the last additions run over much.
    for part in sorted(parts, key=lambda part: part.size):
        whole = np.broadcast_shapes(total.shape, part.shape) == shape
        total = np.add(total, part, out=joined if whole else None)
    if total is not joined:
        joined[...] = total
    return scope, joined


def _match(joined: list[Table], integral: bool) -> None:
    """Shift costs, in place, until all agree on the least of each choice that they share."""
    if len(joined) < 2:
        return
    common = set[int].intersection(*(set(scope) for scope, _ in joined))
    least = [
        table.min(axis=tuple(a for a, t in enumerate(scope) if t not in common), keepdims=True)
        for scope, table in joined
    ]
    scope, table = joined[0]
    shape = [n for n, t in zip(table.shape, scope, strict=True) if t in common]
    inner = np.stack([row.reshape(shape) for row in least])
    mean = inner.mean(axis=0)
    shifts = (np.floor(mean) if integral else mean) - inner
    shifts[0] = -shifts[1:].sum(axis=0)  # whatever was rounded: nothing is lost or made
    for (_, table), shift, row in zip(joined, shifts, least, strict=True):
        table += shift.reshape(row.shape)


def _decoded(taken: list[tuple[int, list[Term]]], sizes: list[int]) -> Ints:
    """The choice that takes, last variable first, the least given those already chosen."""
    choice = np.zeros(len(sizes), dtype=np.int64)
    for v, terms in reversed(taken):
        # Shifts between the groups of one variable cancel out.
        total = np.zeros(sizes[v])
        for scope, table in (entry for term in terms for entry in term):
            total += table[tuple(slice(None) if t == v else choice[t] for t in scope)]
        choice[v] = int(np.argmin(total))
    return choice
