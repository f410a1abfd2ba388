"""A lower bound that is raised step by step: by elimination, then by larger mini-buckets."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.solve import budgets
from eindecomp.solve.clock import has_passed, planning_time
from eindecomp.solve.exact.eliminate import eliminate, elimination_order, without_single
from eindecomp.solve.exact.fold import fold_all
from eindecomp.solve.problem.arrays import Floats, Ints
from eindecomp.solve.problem.cost_network import CostNetwork, Table, spread
from eindecomp.solve.problem.problem import Problem
from eindecomp.solve.run import Lift, Run

if TYPE_CHECKING:
    from eindecomp.solve.exact.table_loops import Term


_HUGE = 2.0**44  # stands for ∞ among integers: sums of hundreds of these are exact


@dataclass(slots=True)
class Bounding:
    """A bound on a problem, and the best choice met on the way; mutable: `tighten` raises it."""

    run: Run
    network: CostNetwork
    unfold: Lift
    levels: list[int] = field(default_factory=lambda: list(budgets.BUCKET_CELLS))
    terms: list[Term] | None = None

    @staticmethod
    def begin(problem: Problem, deadline: float, work: int = budgets.WORK) -> Bounding:
        """Fold only: with few choices, mini-buckets often prove the optimum at once."""
        run = Run(problem, planning_time(), deadline, None)
        run.raise_bound(problem.least)
        return Bounding(run, *fold_all(run, work))

    @staticmethod
    def of(problem: Problem, deadline: float) -> Bounding:
        """Fold, and eliminate if that is affordable."""
        bounding = Bounding.begin(problem, deadline)
        bounding.eliminate(deadline)
        return bounding

    @property
    def _work(self) -> int:
        """What elimination may spend: networks that fold are narrow, so that it succeeds then."""
        return budgets.WORK if "fold" in self.run.stages else budgets.QUICK_WORK

    @property
    def is_narrow(self) -> bool:
        """Whether elimination is affordable."""
        network, _ = without_single(self.network)
        return elimination_order(network, (), self._work) is not None

    def eliminate(self, deadline: float) -> None:
        """Solve what is left by elimination, if that is affordable."""
        choice = eliminate(self.network, deadline, self._work)
        if choice is not None:
            self.run.offer(self.unfold(choice))
            self.run.bound = self.run.solution(proved=True, summed=True).bound
            self.levels = []

    @property
    def value(self) -> float:
        """The bound: no choice costs less."""
        return self.run.bound

    @property
    def choice(self) -> Ints | None:
        """The cheapest choice met on the way, if any."""
        return self.run.choice

    @property
    def solved(self) -> bool:
        """Whether that choice is optimal."""
        return self.run.bound == self.run.cost

    def tighten(
        self, goal: float, deadline: float, levels: int = len(budgets.BUCKET_CELLS)
    ) -> None:
        """Raise the bound with larger and larger tables, until the goal is met or time is up."""
        run = self.run
        problem = run.problem
        goal = min(goal, run.cost)
        whole = problem.exact_in_floats and self._largest <= _HUGE
        while self.levels and levels and run.bound < goal and not has_passed(deadline):
            if self.terms is None:
                # Its compiled loops take a while to load, and elimination needs none.
                from eindecomp.solve.exact.table_loops import shift_costs

                huge = min(problem.magnitude + 1, _HUGE if whole else inf)
                self.terms = shift_costs(_finite(self.network, huge), integral=whole)
                largest = max((term[0][1].size for term in self.terms), default=0)
                # A cap below the largest given table joins nothing, so the bound would not rise.
                self.levels[1:] = [cells for cells in self.levels[1:] if cells > largest]
            cells = self.levels.pop(0)
            sizes = self.network.sizes
            bound = bound_by_mini_buckets(sizes, self.terms, cells, deadline, integral=whole)
            if bound is None:
                return
            if bound.choice is not None:
                run.offer(self.unfold(bound.choice))
            run.raise_bound(bound.value - (0 if whole else budgets.ROUNDING * problem.magnitude))
            if bound.exact:
                self.levels.clear()
            goal, levels = min(goal, run.cost), levels - 1

    @property
    def _largest(self) -> float:
        """The largest finite cost."""
        tables = {id(table): table for _, table in self.network.tables}.values()
        return max((t[np.isfinite(t)].max(initial=0) for t in tables), default=0.0)


def _finite(network: CostNetwork, huge: float) -> CostNetwork:
    """The network with all costs above `huge`, among them ∞, lowered to it."""
    kept: dict[int, Floats] = {}
    for _, table in network.tables:
        if id(table) not in kept:
            kept[id(table)] = np.minimum(table, huge)
    return CostNetwork(network.sizes, [(scope, kept[id(table)]) for scope, table in network.tables])


_AXES = 30  # of a joined table: some of NumPy takes no more than 32


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """A lower bound on all choices, and a choice that comes near it unless memory ran out."""

    value: float
    choice: Ints | None
    exact: bool
    """Whether nothing was split, so that the value is the optimum."""


def bound_by_mini_buckets(
    sizes: list[int], terms: Sequence[Term], cells: int, deadline: float, *, integral: bool
) -> Bound | None:
    """Eliminate with joined tables of at most `cells` cells, unless a given table is larger.

    If time runs short, smaller tables are used for the remaining variables; None if it runs out all
    the same. If costs are `integral`, so is every shift, and nothing is rounded.

    >>> square = np.array([[0.0, 1.0], [2.0, 0.0]])
    >>> terms = [(((0, 1), square),), (((0,), np.array([5.0, 0.0])),)]
    >>> bound = bound_by_mini_buckets([2, 2], terms, 4, inf, integral=True)
    >>> bound.value, bound.choice.tolist(), bound.exact
    (0.0, [1, 1], True)
    """
    started = planning_time()
    late = started + budgets.LATE_SHARE * (deadline - started)
    buckets = _Buckets.of(sizes, terms)
    taken: list[tuple[int, list[Term]]] | None = []
    kept, exact, offset = 0, True, 0.0
    space: list[Floats] = []  # reused: fresh memory takes about as long as computing in it
    while (v := buckets.cheapest()) is not None:
        if has_passed(deadline):
            return None
        cells = min(cells, budgets.LATE_CELLS) if has_passed(late) else cells
        own = buckets.take(v)
        if taken is not None:
            taken.append((v, own))
            kept += sum(term[0][1].nbytes for term in own if len(term) == 1)
            taken = taken if kept <= budgets.DECODED_BYTES else None
        joined: list[Table] = []
        for group in _groups_in_memory(own, sizes, cells):
            if has_passed(deadline):
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
    """The terms that each variable is in, and which variable is cheapest to eliminate next."""

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
        """Remove a variable, and return the terms that it was in."""
        own = self.terms[v]
        for number, ((scope, _), *_) in own.items():
            for t in scope:
                if t != v:
                    del self.terms[t][number]
        self.terms[v], self.loads[v] = {}, inf
        return list(own.values())

    def weigh(self, variables: Iterable[int]) -> None:
        """Update what it takes to eliminate these variables."""
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


def _groups_in_memory(terms: list[Term], sizes: list[int], cells: int) -> list[list[Term]]:
    """Groups whose joined tables fit in memory at the same time."""
    groups = _groups(terms, sizes, cells)
    while len(groups) * cells > budgets.BUCKETS_TOGETHER and len(groups) < len(terms):
        cells //= 2
        groups = _groups(terms, sizes, cells)
    return groups


def _groups(terms: list[Term], sizes: list[int], cells: int) -> list[list[Term]]:
    """Put the terms, largest first, each into the group whose joined table grows least."""
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
    """The sum of the terms with `v` as its first axis, in `space[number]`, which is reused."""
    rest = {t for term in terms for t in term[0][0]} - {v}
    scope = (v, *sorted(rest, key=lambda t: (sizes[t], t)))  # long rows are fast
    shape = tuple(sizes[t] for t in scope)
    parts = [spread(own, table, scope) for term in terms for own, table in term]
    while len(space) <= number:
        space.append(np.empty(0))
    if space[number].size < prod(shape):
        space[number] = np.empty(prod(shape))
    joined = space[number][: prod(shape)].reshape(shape)
    total = np.zeros([1] * len(scope))
    # Small parts first: only the last additions run over the whole table.
    for part in sorted(parts, key=lambda part: part.size):
        whole = np.broadcast_shapes(total.shape, part.shape) == shape
        total = np.add(total, part, out=joined if whole else None)
    if total is not joined:
        joined[...] = total
    return scope, joined


def _match(joined: list[Table], integral: bool) -> None:
    """Shift costs, in place, so that all agree on the least cost of each choice they share."""
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
    shifts[0] = -shifts[1:].sum(axis=0)  # so that the shifts add up to 0, whatever was rounded
    for (_, table), shift, row in zip(joined, shifts, least, strict=True):
        table += shift.reshape(row.shape)


def _decoded(taken: list[tuple[int, list[Term]]], sizes: list[int]) -> Ints:
    """Fix variables, last eliminated first, each to its best given those already fixed."""
    choice = np.zeros(len(sizes), dtype=np.int64)
    for v, terms in reversed(taken):
        # Shifts between the groups of one variable cancel out.
        total = np.zeros(sizes[v])
        for scope, table in (entry for term in terms for entry in term):
            total += table[tuple(slice(None) if t == v else choice[t] for t in scope)]
        choice[v] = int(np.argmin(total))
    return choice
