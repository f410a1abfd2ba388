"""A bound by prices: what vertices and tensors pay at the least if each chooses for itself.

A vertex chooses how it is cut and where its result lies; a tensor, where it lies, a second layout,
and from which of the two each reader fetches. Each of these problems is small. That a vertex and a
tensor must agree on a layout is left out; instead, every layout has a price that one of them pays
and the other receives. Whatever the prices, the sum of what all pay at the least is a bound. Sweeps
over the graph raise it: each vertex takes what its tensors charge for every layout, and shares out
what remains. In the end, one vertex after the other chooses what is cheapest by the prices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, fsum, inf, log2
from typing import NamedTuple

import numpy as np

from eindecomp.planner import budgets
from eindecomp.planner.space.choices import Choices
from eindecomp.solve.clock import has_passed
from eindecomp.solve.problem.arrays import Floats, Ints

Chosen = dict[str, tuple[int, int]]
"""The assignment and the home of each vertex."""
Usage = dict[str, tuple[Ints, Ints]]
"""What each assignment and each home of a vertex makes a device hold at the fullest step."""


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Numbers that belong to groups, and the least of each group."""

    of: Ints
    """The group of each number."""
    order: Ints
    starts: Ints
    which: Ints
    """The groups that have any numbers."""
    count: int

    @staticmethod
    def by(of: Ints, count: int) -> Groups:
        """From the group of each number."""
        order = np.argsort(of, kind="stable")
        which, starts = np.unique(of[order], return_index=True)
        return Groups(of, order, starts, which, count)

    def least(self, numbers: Floats) -> Floats:
        """The least number of each group; ∞ where it has none."""
        found = np.full(self.count, inf)
        found[self.which] = np.minimum.reduceat(numbers[self.order], self.starts)
        return found


@dataclass(slots=True, eq=False)
class Reader:
    """What it costs to fetch a tensor for a vertex, and the price of each thing it may need."""

    from_home: Floats
    """Homes × needs."""
    from_second: Floats
    """Second layouts × needs."""
    prices: Floats
    _least: tuple[Floats, Floats] | None = field(default=None, init=False)

    def set(self, prices: Floats) -> None:
        """Change the prices."""
        self.prices, self._least = prices, None

    @property
    def least(self) -> tuple[Floats, Floats]:
        """What the cheapest need costs from each home, and from each second layout."""
        from eindecomp.solve.exact.least_sums import least_of_rows

        if self._least is None:
            home = least_of_rows(self.from_home, self.prices)
            self._least = home, least_of_rows(self.from_second, self.prices)
        return self._least


@dataclass(slots=True, eq=False)
class Tensor:
    """Where a tensor may lie, its second layouts, and who reads it."""

    move: Floats
    """Homes × second layouts."""
    readers: list[Reader]
    prices: Floats
    """Of each home."""

    def set(self, prices: Floats) -> None:
        """Change the prices of homes."""
        self.prices = prices

    @property
    def homes(self) -> Floats:
        """What it pays at the least for each home."""
        return self._least(self.readers)[0]

    def needs(self, reader: Reader) -> Floats:
        """What it pays at the least for each thing that one of its readers may need."""
        from eindecomp.solve.exact.least_sums import least_of_columns

        home, second = self._least([each for each in self.readers if each is not reader])
        found = least_of_columns(reader.from_home, home)
        found = np.minimum(found, least_of_columns(reader.from_second, second))
        return found + reader.prices

    def _least(self, readers: list[Reader]) -> tuple[Floats, Floats]:
        """The same for each home, and for each second layout, with some of the readers."""
        from eindecomp.solve.exact.least_sums import least_of_pairs

        ours, theirs = (np.empty((len(readers), n)) for n in self.move.shape)
        for k, reader in enumerate(readers):
            ours[k], theirs[k] = reader.least
        return least_of_pairs(self.prices, self.move, (ours, theirs))


class Link(NamedTuple):
    """A layout on which a vertex and a tensor must agree: a home, or what a reader needs."""

    tensor: Tensor
    reader: Reader | None
    groups: Groups
    """Assignments by what they need, or pairs by their home."""

    @property
    def charged(self) -> Floats:
        """What the tensor pays at the least for each layout."""
        return self.tensor.homes if self.reader is None else self.tensor.needs(self.reader)

    @property
    def payer(self) -> Tensor | Reader:
        """Who has prices on the side of the tensor."""
        return self.tensor if self.reader is None else self.reader

    def pay(self, more: Floats) -> None:
        """Change them."""
        self.payer.set(self.payer.prices + more)


@dataclass(slots=True, eq=False)
class Maker:
    """A vertex: pairs of an assignment and a home that it can reach."""

    costs: Floats
    """Of each pair."""
    rows: Groups
    """Pairs by assignment."""
    homes: Groups
    """Pairs by home."""
    assigned: Floats
    """The price of each assignment."""
    placed: Floats
    """The price of each home."""
    needs: list[Link] = field(default_factory=list[Link])
    kept: list[Link] = field(default_factory=list[Link])
    """With who holds the result: the tensor itself, and what is tied to it."""

    @property
    def each(self) -> Floats:
        """What each pair costs, with prices."""
        return self.costs + self.assigned[self.rows.of] + self.placed[self.homes.of]

    def visit(self, step: float) -> None:
        """Take what tensors charge, and share out what remains, in multiples of a step."""
        for link in self.needs:
            charged = link.charged
            link.pay(-_finite(charged))
            self.assigned += charged[link.groups.of]
        for link in self.kept:
            charged = link.charged
            link.pay(-_finite(charged))
            self.placed += charged
        among = len(self.needs) + len(self.kept)
        reached = self.rows.least(self.costs + self.placed[self.homes.of])
        for link in self.needs:
            share = _share(link.groups.least(self.assigned + reached), among, step)
            link.pay(share)
            self.assigned -= _finite(share)[link.groups.of]
            among -= 1
        for link in self.kept:
            share = _share(self.homes.least(self.each), among, step)
            link.pay(share)
            self.placed -= _finite(share)
            among -= 1

    def follow(self, other: Maker) -> None:
        """Take over the prices of an equal vertex."""
        for link, like in zip((*self.needs, *self.kept), (*other.needs, *other.kept), strict=False):
            if like.payer.prices.shape == link.payer.prices.shape:
                more = _finite(like.payer.prices - _finite(link.payer.prices))
                link.pay(more)
                if link.reader is None:
                    self.placed -= more
                else:
                    self.assigned -= more[link.groups.of]

    def choose(self) -> tuple[int, int]:
        """Choose what is cheapest, and let tensors agree to it: an assignment and a home."""
        each = self.each
        for link in self.needs:
            each = each + link.charged[link.groups.of][self.rows.of]
        for link in self.kept:
            each = each + link.charged[self.homes.of]
        pair = int(each.argmin())
        row, home = int(self.rows.of[pair]), int(self.homes.of[pair])
        for link in (*self.needs, *self.kept):
            others = np.full(link.groups.count, inf)
            others[home if link.reader is None else link.groups.of[row]] = 0.0
            link.pay(others)
        return row, home


def _finite(costs: Floats) -> Floats:
    return np.where(np.isfinite(costs), costs, 0.0)


def _share(costs: Floats, among: int, step: float) -> Floats:
    return np.floor(costs / (among * step)) * step if step else costs / among


@dataclass(slots=True, eq=False)
class LayoutPrices:
    """The vertices and tensors of a graph, in its order, and what they pay."""

    own: dict[str, Choices]
    makers: dict[str, Maker]
    tensors: list[Tensor]
    step: float = 0.0
    """What prices are multiples of, so that sums are exact; 0 if they are not."""
    offset: float = 0.0
    """What is given back, whatever is chosen."""
    bound: float = -inf
    """What no choice undercuts."""

    def begin(self, alike: Mapping[str, str], deadline: float) -> None:
        """Sweep over the first and the last of equal layers; all others take over their prices."""
        ends, kinds = budgets.LAYERS_AT_ENDS, dict[str, list[Maker]]()
        for name, maker in self.makers.items():
            kinds.setdefault(alike.get(name, name), []).append(maker)
        inner = {id(m): like[1] for like in kinds.values() for m in like[ends:-ends]}
        outer = [maker for maker in self.makers.values() if id(maker) not in inner]
        if len(outer) < len(inner):
            for _ in range(budgets.FIRST_SWEEPS):
                self._sweep(outer, deadline)
            for maker in self.makers.values():
                if id(maker) in inner:
                    maker.follow(inner[id(maker)])
            self.bound = self._least()

    def _sweep(self, makers: Sequence[Maker], deadline: float) -> None:
        for maker in (*makers, *reversed(makers)):
            if has_passed(deadline):
                break
            maker.visit(self.step)

    def raise_bound(self, goal: float, deadline: float, gain: float) -> None:
        """Sweep until the goal is met, time is up, or a sweep gains less than this share."""
        while self.bound < goal and not has_passed(deadline):
            before = self.bound
            self._sweep([*self.makers.values()], deadline)
            self.bound = max(before, self._least())
            if self.bound - before <= gain * abs(self.bound):
                break

    def _least(self) -> float:
        """What all pay at the least."""
        each = [float(maker.each.min()) for maker in self.makers.values()]
        each += [float(tensor.homes.min()) for tensor in self.tensors]
        found = fsum(each) - self.offset
        if self.step and self._largest < self.step * 2.0**52:
            return ceil(found)  # costs are whole
        return found - budgets.SUM_ROUNDING * fsum(map(abs, each))

    @property
    def _largest(self) -> float:
        """The largest price: below some size, sums of them are exact."""
        prices = [p for m in self.makers.values() for p in (m.assigned, m.placed)]
        prices += [t.prices for t in self.tensors]
        prices += [reader.prices for t in self.tensors for reader in t.readers]
        return max((float(np.abs(_finite(p)).max(initial=0.0)) for p in prices), default=0.0)

    def charge(self, usage: Usage, more: float, limit: float) -> None:
        """Charge for what assignments and homes use, and give back what a limit would cost."""
        for name, (assigned, placed) in usage.items():
            self.makers[name].assigned += more * assigned
            self.makers[name].placed += more * placed
        self.offset += more * limit
        self.step, self.bound = 0.0, -inf

    def choose(self) -> Chosen:
        """Choices that all agree to, by the prices."""
        payers = [*self.tensors, *(reader for each in self.tensors for reader in each.readers)]
        before = [payer.prices for payer in payers]
        chosen = {name: maker.choose() for name, maker in self.makers.items()}
        for payer, prices in zip(payers, before, strict=True):
            payer.set(prices)
        return chosen

    def cost_of(self, chosen: Chosen) -> float:
        """What choices cost, with what is charged and given back."""
        total: list[float] = []
        needed: dict[int, int] = {}
        home_of: dict[int, int] = {}
        for name, (row, home) in chosen.items():
            maker = self.makers[name]
            pair = np.flatnonzero((maker.rows.of == row) & (maker.homes.of == home))
            total.append(float(maker.each[pair].min(initial=inf)))
            home_of |= {id(link.tensor): home for link in maker.kept}
            needed |= {id(link.reader): int(link.groups.of[row]) for link in maker.needs}
        for tensor in self.tensors:
            # What only has to agree has no home of its own: it is what readers need.
            home = home_of.get(id(tensor), needed[id(tensor.readers[0])])
            direct, second = 0.0, tensor.move[home].copy()
            for reader in tensor.readers:
                need = needed[id(reader)]
                alone = reader.from_home[home, need]
                prices = float(reader.prices[need])
                direct += alone + prices
                second += np.minimum(alone, reader.from_second[:, need]) + prices
            total.append(float(tensor.prices[home]) + min(direct, second.min(initial=inf)))
        return fsum(total) - self.offset


def exact_step(largest: float) -> float:
    """The finest power of two in whose multiples sums of a few such numbers are exact floats."""
    return 2.0 ** (int(log2(max(largest, 1.0))) - budgets.EXACT_BITS)
