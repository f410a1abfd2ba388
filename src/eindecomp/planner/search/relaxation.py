"""The relaxation: a lower bound on real movement, by numbers of pieces alone.

Each vertex chooses how many pieces every label is cut into, and everything costs the least that any
choice of mesh axes allows. No plan costs less than the cheapest such choice. For seconds, pieces
are counted on each level of the mesh: a row of `level_vectors` gives, for each label and each
level, into how many pieces the axes of that level cut the label. Where all axes are alike, the
whole mesh is one level.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import comb, inf, prod
from typing import Any

import numpy as np

from eindecomp.errors import PlanError, UnsolvedError
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Input
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.work import partial_bytes
from eindecomp.layout.view import View, dim_parts, planned_views, view_of
from eindecomp.planner import budgets
from eindecomp.planner.costs.least_prices import LeastBytes, LeastSeconds
from eindecomp.planner.costs.price import PriceInBytes, PriceInSeconds
from eindecomp.planner.model.layout_prices import Chosen, LayoutPrices
from eindecomp.planner.model.movement import MovementModel
from eindecomp.planner.model.priced_layouts import layout_prices
from eindecomp.planner.model.tables import choices_of_all, widest_read
from eindecomp.planner.search.least_memory import Eliminated, Priced, limited, usage_of
from eindecomp.planner.search.search import Search, part_of_time
from eindecomp.planner.space.choices import Choices
from eindecomp.planner.space.layout_rules import Groups, alike_vertices, interchangeable_labels
from eindecomp.planner.space.pieces import (
    Levels,
    Pieces,
    Vector,
    level_vectors,
    piece_choices,
    pieces_of,
)
from eindecomp.planner.space.viable import most_pieces, vectors_of
from eindecomp.solve.budgets import BUCKET_CELLS
from eindecomp.solve.clock import has_passed, planning_time
from eindecomp.solve.exact.bounding import Bounding
from eindecomp.solve.minimize import rank
from eindecomp.solve.problem.arrays import Ints

Vectors = dict[str, tuple[Vector, ...]]


@dataclass(frozen=True)
class Relaxed:
    """A bound that no plan undercuts, and the vectors of pieces that come closest to it."""

    bound: float
    vectors: Vectors | None = None
    """For each vertex the pieces to begin with, several where memory is limited."""
    pieces: dict[str, Pieces] = field(default_factory=dict[str, Pieces])
    """For each vertex those of one choice, with its home, where there are vectors."""
    levels: Levels = ()
    solved: bool = False
    """Whether the vectors reach the bound."""
    is_light: bool = False
    """Whether, among all that do, they make devices read and hold the least."""
    model: MovementModel | None = None
    """What was relaxed, if it is small enough to be eliminated."""
    prices: LayoutPrices | None = None
    """Otherwise, by which layouts its bound can be raised further."""

    @property
    def parts(self) -> dict[str, tuple[int, ...]] | None:
        """Into how many pieces to cut every label of every vertex."""
        if self.vectors is None:
            return None
        return {
            name: tuple(prod(pieces) for pieces in rows[0]) for name, rows in self.vectors.items()
        }

    def tightened(self, goal: float, deadline: float) -> Relaxed:
        """The same with a higher bound, as far as the goal and time allow."""
        if self.prices is None:
            return self
        self.prices.raise_bound(goal, deadline, budgets.LAST_GAIN)
        bound = max(self.bound, self.prices.bound)
        if not self.pieces:
            return replace(self, bound=bound)
        return replace(_priced(self.prices, self.levels), bound=bound)

    def otherwise(self, deadline: float) -> Relaxed:
        """The same with any vectors that reach the bound, not those that read the least."""
        if not self.is_light or self.model is None:
            return self
        bounding = Bounding.begin(self.model.problem(), deadline)
        other = _by_tables(self.model, self.levels, bounding, deadline)
        return other if other is not None and other.solved else self


@dataclass(frozen=True)
class Relaxation:
    """What is relaxed: what a search asks for, at the least that it can cost."""

    search: Search
    price: LeastBytes | LeastSeconds

    @cached_property
    def alike(self) -> dict[str, Groups]:
        """The labels of each vertex that are interchangeable."""
        return interchangeable_labels(self.search.graph, self.search.rules)

    def choices_of(self, most: int) -> Callable[[Vertex, View], Choices | None]:
        """What a vertex can choose; None if there are more than `most` vectors."""
        known: dict[object, tuple[Ints, Choices | None]] = {}

        def of(vertex: Vertex, view: View) -> Choices | None:
            try:
                rows = self.rows(vertex, view, most)
            except PlanError:
                return None  # too many to list
            pinned = self.search.rules.pinned.get(vertex.name)
            key = (view, id(rows), pinned)
            if len(rows) > most:
                return None
            if key not in known:
                known[key] = rows, self._made(view, rows, pinned)
            return known[key][1]

        return of

    def rows(self, vertex: Vertex, view: View, most: int) -> Ints:
        """The pieces that a vertex may be cut into."""
        mesh, levels, alike = self.price.mesh, self.price.levels, self.alike[vertex.name]
        if isinstance(self.price, LeastBytes):
            rows = self.search.vectors(vertex, view)
            if rows is not None:
                return rows
            return vectors_of(view, mesh.sizes, alike, even=mesh.cuts_evenly)
        # A restriction may tell apart labels that are otherwise interchangeable.
        restriction = self.search.restriction
        alike = alike if restriction is None else ()
        rows = level_vectors(view.sizes, levels, alike, most, mesh.pieces)
        if restriction is not None:
            mask = restriction(vertex, view, rows.prod(axis=2), mesh)
            rows = rows[mask]
        if isinstance(vertex.op, Input) and vertex.name not in self.search.rules.pinned:
            pieces = rows.prod(axis=(1, 2))
            return rows[pieces == pieces.max()]
        return rows

    def _made(self, view: View, rows: Ints, pinned: Any) -> Choices | None:
        mesh, levels = self.price.mesh, self.price.levels
        listed: list[list[list[int]]] = (rows[:, :, None] if rows.ndim == 2 else rows).tolist()
        vectors = tuple(tuple(map(tuple, row)) for row in listed)
        try:
            own = piece_choices(view, mesh, levels, vectors)
        except PlanError:
            return None
        if pinned is None:
            return own
        pieces = {pieces_of(mesh, levels, (span.axes for span in cut)) for cut in pinned}
        homes: Any = own.homes
        kept = [tuple(side.levels for side in cut) in pieces for cut in homes]
        return own.left_in(np.array(kept, dtype=bool))


def relaxed_of(search: Search, seconds: float) -> Relaxed:
    """A lower bound on every plan, and numbers of pieces to begin with, where there are any."""
    if type(search.price) is PriceInBytes:  # a user's own prices may be below these
        return relax(Relaxation(search, LeastBytes(search.mesh)), seconds)
    if not isinstance(search.price, PriceInSeconds):
        return Relaxed(0)
    least = LeastSeconds(search.price)
    relaxed = relax(Relaxation(search, least), seconds)
    graph = search.graph
    computing = 0.0  # at the least, however vertices are cut
    for name, view in planned_views(graph):
        items = tuple(graph[source].dtype.itemsize for source in graph[name].inputs)
        computing += search.price.least(graph[name], view, items)
    computing *= 1 - budgets.SUM_ROUNDING
    return replace(relaxed, bound=max(relaxed.bound, computing))


def relax(asked: Relaxation, seconds: float) -> Relaxed:
    """Solve the relaxed problem, or bound it if it is too large.

    Vertices that can be cut in too many ways are left out; the bound stays valid.
    """
    deadline = planning_time() + seconds
    if isinstance(asked.price, LeastSeconds) and asked.search.memory is None:
        asked = replace(asked, price=_finest(asked.search.graph, asked.price))
    relaxed = None
    sizes = budgets.RELAXED_VECTORS
    for most in sizes[1:] if seconds < budgets.LEAST_RELAX_SECONDS else sizes:
        if relaxed is not None or has_passed(deadline):
            break
        relaxed = _relax(asked, most, deadline)
    relaxed = Relaxed(0) if relaxed is None else relaxed
    if relaxed.pieces or not isinstance(asked.price, LeastBytes):
        return relaxed
    return replace(relaxed, bound=max(relaxed.bound, _each_alone(asked, asked.price)))


def _each_alone(asked: Relaxation, price: LeastBytes) -> int:
    """What all vertices pay at the least if each were alone: a bound that needs no tables.

    Each reduces its result and receives what it reads of inputs that are stored once, beyond what
    devices have of those. Of an input that is read n times, each pays an n-th: one second layout
    may suit all. Those of few labels, which take the least time, come first: once that is up, the
    others are left out.
    """
    until = planning_time() + budgets.ALONE_SECONDS
    graph, rules, mesh = asked.search.graph, asked.search.rules, asked.search.mesh
    choices_of = asked.choices_of(budgets.RELAXED_VECTORS[0])
    given = {*rules.tie, *rules.pinned}
    stored: dict[str, int] = {}
    for vertex in graph.inputs:
        if rules.has_home(vertex) and vertex.name not in given:
            sizes = view_of(graph, vertex).sizes
            pieces = most_pieces(sizes, mesh.sizes, even=mesh.cuts_evenly)
            stored[vertex.name] = vertex.elements * mesh.devices // pieces
    views = [(name, rules.view_of(graph, graph[name])) for name, _ in planned_views(graph)]
    readers = Counter(name for vertex, _ in views for name in graph[vertex].inputs)
    total = 0
    for name, view in sorted(views, key=lambda each: len(each[1].labels)):
        if has_passed(until):
            break
        vertex, own = graph[name], choices_of(graph[name], view)
        if own is None:
            total += _least_of_vectors(asked, vertex, view, stored, readers)
            continue
        item = vertex.dtype.itemsize
        scatter = price.reduce_scatter(own, vertex.elements, partial_bytes(graph, vertex), item)
        cost: Any = scatter.min(axis=1)
        for source, reads in zip(vertex.inputs, own.reads, strict=True):
            if source in stored and reads is not None and view.named is None:
                cuts: Any = reads.cuts
                lacks = np.maximum(price.needed(cuts) - stored[source], 0).astype(np.int64)
                item = graph[source].dtype.itemsize
                cost = cost + (item * lacks)[reads.of] // readers[source]
        total += int(cost.min())
    return total


def _least_of_vectors(
    asked: Relaxation, vertex: Vertex, view: View, stored: dict[str, int], readers: Counter[str]
) -> int:
    """The same of one vertex with more vectors and homes than tables hold: any home may be had."""
    graph, devices = asked.search.graph, asked.search.mesh.devices
    if view.ways or view.stays or view.named is not None:
        return 0
    try:
        rows = asked.rows(vertex, view, budgets.RELAXED_VECTORS[0])
    except PlanError:
        return 0
    summed = rows[:, list(view.aggregated)].prod(axis=1)
    moved = (devices // rows.prod(axis=1)) * (summed - 1)
    cost = vertex.elements * partial_bytes(graph, vertex) * moved
    for source, dims in zip(vertex.inputs, view.reads, strict=True):
        if source in stored and dims and len({dim.label for dim in dims}) == len(dims):
            whole = prod(dim.stop - dim.start for dim in dims) * devices
            lacks = whole // dim_parts(view, dims, rows).prod(axis=1) - stored[source]
            cost += graph[source].dtype.itemsize * np.maximum(lacks, 0) // readers[source]
    return int(cost.min())


def _finest(graph: Graph, price: LeastSeconds) -> LeastSeconds:
    """The prices by which outer axes are told apart, unless that leaves too many vectors."""
    fine = replace(price, fine=True)
    for _, view in planned_views(graph):
        labels = sum(size > 1 for size in view.sizes)
        if prod(comb(len(axes) + labels, labels) for axes in fine.levels) > budgets.FINE_VECTORS:
            return price
    return fine


def _relax(asked: Relaxation, most: int, deadline: float) -> Relaxed | None:
    """The relaxed problem over vertices with at most `most` vectors; None if it is too large."""
    least: Any = asked.price
    search, levels = asked.search, asked.price.levels
    by_levels, graph, rules = len(levels) > 1, search.graph, search.rules
    found: Relaxed | None = None
    if (known := prices_of(search)) is not None:
        return _by_prices(asked, known, deadline)
    try:
        own = choices_of_all(graph, rules, asked.choices_of(most), {}, deadline)
        if widest_read(graph, rules, own, by_needs=by_levels) <= budgets.RELAXED_CELLS:
            model = MovementModel.of(
                graph, least, lambda vertex, _: own.get(vertex.name), rules,
                needs=by_levels, deadline=deadline,
            )  # fmt: skip
            found = _exactly(model, search.memory, levels, deadline)
            if found is not None and (found.solved or search.memory is not None):
                return found
    except UnsolvedError:
        return None
    prices = layout_prices(graph, rules, least, own, deadline)
    if prices is None:
        return Relaxed(0)
    if search.restriction is None:
        search.priced[:] = [(search, prices)]
    prices.begin(alike_vertices(graph, rules, budgets.FAR_STEPS), deadline)
    relaxed = _by_prices(asked, prices, deadline)
    if found is None or found.bound <= relaxed.bound:
        return relaxed
    return replace(found, prices=prices)


def prices_of(search: Search) -> LayoutPrices | None:
    """The prices that are known of the same relaxed problem, but for a limit on memory."""
    for other, prices in search.priced:
        same = search.graph is other.graph and search.rules is other.rules
        same = same and search.restriction is other.restriction and search.price == other.price
        if same and search.redundant == other.redundant:
            return prices
    return None


def _by_prices(asked: Relaxation, prices: LayoutPrices, deadline: float) -> Relaxed:
    """The bound by prices and, if nothing is left out, the pieces that are chosen by them."""
    least: Any = asked.price
    search, levels = asked.search, asked.price.levels
    is_whole = all(vertex.name in prices.own for vertex in search.rules.chosen(search.graph))
    if search.memory is not None:
        search.priced.clear()  # what is charged for memory does not hold without a limit
        usage = usage_of(search.graph, search.rules, least, prices.own)
        bound, met = limited(Priced(prices, usage), search.memory, deadline)
        vectors = _vectors(prices.own, met) if is_whole else None
        return Relaxed(max(bound, 0), vectors, levels=levels, prices=prices)
    if prices.bound == -inf:
        prices.raise_bound(inf, deadline, budgets.FIRST_GAIN)
    return _priced(prices, levels) if is_whole else Relaxed(max(prices.bound, 0), prices=prices)


def _priced(prices: LayoutPrices, levels: Levels) -> Relaxed:
    """The bound by prices, and the pieces of what is chosen by them."""
    chosen = prices.choose()
    solved = prices.cost_of(chosen) <= prices.bound
    relaxed = _relaxed(prices.own, chosen, prices.bound, levels)
    return replace(relaxed, solved=solved, prices=prices)


def _exactly(
    model: MovementModel, memory: int | None, levels: Levels, deadline: float
) -> Relaxed | None:
    """The relaxed problem by elimination, or its bound by tables; None if neither is affordable."""
    if has_passed(deadline - budgets.RELAX_CELL_SECONDS * model.tables.used):
        return None
    problem, until = model.problem(), part_of_time(deadline, budgets.EXACT_SHARE)
    work = (budgets.FOLDED_WORK,) if len(levels) > 1 else ()
    bounding = Bounding.begin(problem, until, *work)
    own = {name: site.choices for name, site in model.sites.items()}
    if not bounding.is_narrow:
        if memory is not None or len(own) > budgets.LARGE_GRAPH:
            return None
    elif memory is not None:
        # The bound within the limit, and the vectors of all choices met around it.
        bound, met = limited(Eliminated(model), memory, deadline)
        return Relaxed(max(bound, 0), _vectors(own, met), levels=levels)
    elif len(levels) == 1 and (ranked := rank(problem, model.load)) is not None:
        lightest = Bounding.of(ranked, deadline)
        if lightest.solved and lightest.choice is not None:
            cost, chosen = problem.cost_of(lightest.choice), model.chosen(lightest.choice)
            relaxed = _relaxed(own, chosen, cost, levels)
            return replace(relaxed, solved=True, is_light=True, model=model)
        return None
    return _by_tables(model, levels, bounding, until)


def _by_tables(
    model: MovementModel, levels: Levels, bounding: Bounding, deadline: float
) -> Relaxed | None:
    """What elimination finds or, where it is not affordable, what mini-buckets do."""
    if bounding.is_narrow:
        bounding.eliminate(deadline)
    else:
        # What is left of folded layers is small enough for large tables.
        folded = "fold" in bounding.run.stages
        bounding.tighten(inf, deadline, levels=len(BUCKET_CELLS) if folded else 1)
    if bounding.choice is None:
        return None
    own = {name: site.choices for name, site in model.sites.items()}
    bound = max(bounding.value, 0)
    bound = int(bound) if bounding.run.problem.integral else bound
    relaxed = _relaxed(own, model.chosen(bounding.choice), bound, levels)
    return replace(relaxed, solved=bounding.solved, model=model)


def _relaxed(own: Mapping[str, Choices], chosen: Chosen, bound: float, levels: Levels) -> Relaxed:
    """A bound, and the pieces of everything that is chosen, and of its home."""
    pieces: dict[str, Pieces] = {}
    for name, (row, home) in chosen.items():
        vector: Any = own[name].assignments[row]
        lies: Any = own[name].homes[home]
        pieces[name] = Pieces(vector, tuple(side.levels for side in lies))
    return Relaxed(max(bound, 0), _vectors(own, [chosen]), pieces, levels)


def _vectors(own: Mapping[str, Choices], met: Sequence[Chosen]) -> Vectors | None:
    """The pieces of everything that is chosen, the first ones first."""
    if not met:
        return None
    each: list[dict[str, Any]] = [
        {name: own[name].assignments[row] for name, (row, _) in chosen.items()} for chosen in met
    ]
    return {name: tuple(dict.fromkeys(one[name] for one in each)) for name in each[0]}
