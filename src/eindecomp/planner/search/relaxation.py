"""The relaxation: a lower bound on real movement, by numbers of pieces alone.

Each vertex chooses how many pieces every label is cut into, and everything costs the least that any
choice of mesh axes allows. No plan costs less than the cheapest such choice. For seconds, pieces
are counted on each level of the mesh: a row of `level_vectors` gives, for each label and each
level, into how many pieces the axes of that level cut the label. Where all axes are alike, the
whole mesh is one level.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate, combinations_with_replacement, pairwise
from math import comb, inf, prod
from typing import Any

import numpy as np

from eindecomp.errors import PlanError, UnsolvedError
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Input
from eindecomp.graph.vertex import Vertex
from eindecomp.layout.cut import Axes
from eindecomp.layout.mesh import BALANCED, Mesh, can_cut
from eindecomp.layout.view import Dims, View, dim_parts, planned_views
from eindecomp.planner import budgets
from eindecomp.planner.costs.least_prices import LeastBytes, LeastSeconds, PieceCount, PieceCounts
from eindecomp.planner.model.movement import MovementModel
from eindecomp.planner.search.least_memory import limited
from eindecomp.planner.space.choices import Choices, Reads
from eindecomp.planner.space.layout_rules import Groups, LayoutRules, interchangeable_labels
from eindecomp.planner.space.viable import Restriction, viable_parts
from eindecomp.solve.budgets import BUCKET_CELLS
from eindecomp.solve.clock import has_passed, planning_time
from eindecomp.solve.exact.bounding import Bounding
from eindecomp.solve.minimize import rank
from eindecomp.solve.problem.arrays import Ints

Levels = tuple[tuple[int, ...], ...]
"""The sizes of the axes of each level, outermost first."""
Vector = tuple[tuple[int, ...], ...]
"""For each label, into how many pieces the axes of each level cut it."""
Vectors = dict[str, tuple[Vector, ...]]


@dataclass(frozen=True)
class Relaxed:
    """A bound that no plan undercuts, and the vectors of pieces that come closest to it."""

    bound: float
    vectors: Vectors | None = None
    """For each vertex the pieces to begin with, several where memory is limited."""
    levels: Levels = ()
    solved: bool = False
    """Whether the vectors reach the bound."""
    is_light: bool = False
    """Whether, among all that do, they make devices read and hold the least."""
    model: MovementModel | None = None
    """What was relaxed."""
    bounding: Bounding | None = None
    """What is known of it, if its bound can be raised further."""

    @property
    def parts(self) -> dict[str, tuple[int, ...]] | None:
        """Into how many pieces to cut every label of every vertex."""
        if self.vectors is None:
            return None
        return {
            name: tuple(prod(pieces) for pieces in rows[0]) for name, rows in self.vectors.items()
        }

    def tightened(self, goal: float, deadline: float) -> Relaxed:
        """The same with a higher bound, as far as the goal, time and memory allow."""
        if self.model is None or self.bounding is None:
            return self
        self.bounding.tighten(goal, deadline)
        return _relaxed(self.model, self.bounding, self.levels)

    def otherwise(self, deadline: float) -> Relaxed:
        """The same with any vectors that reach the bound, not those that read the least."""
        if not self.is_light or self.model is None:
            return self
        relaxed = _relaxed(self.model, Bounding.of(self.model.problem(), deadline), self.levels)
        return relaxed if relaxed.solved else self


Rows = Callable[[Vertex, View], Ints | None]
"""The partition vectors that a vertex may take; None for all viable ones."""


@dataclass(frozen=True)
class Relaxation:
    """What is relaxed: a graph, its prices, and what is asked of layouts."""

    graph: Graph
    price: LeastBytes | LeastSeconds
    rules: LayoutRules
    rows_of: Rows
    """The vectors of bytes; those of seconds are what the restriction allows."""
    restriction: Restriction | None = None

    @cached_property
    def alike(self) -> dict[str, Groups]:
        """The labels of each vertex that are interchangeable."""
        return interchangeable_labels(self.graph, self.rules)

    def choices_of(self, most: int) -> Callable[[Vertex, View], Choices | None]:
        """What a vertex can choose; None if there are more than `most` vectors."""
        known: dict[object, tuple[Ints, Choices | None]] = {}

        def of(vertex: Vertex, view: View) -> Choices | None:
            try:
                rows = self._rows(vertex, view, most)
            except PlanError:
                return None  # too many to list
            pinned = self.rules.pinned.get(vertex.name)
            key = (view, id(rows), pinned)
            if len(rows) > most:
                return None
            if key not in known:
                known[key] = rows, self._made(view, rows, pinned)
            return known[key][1]

        return of

    def _rows(self, vertex: Vertex, view: View, most: int) -> Ints:
        mesh, levels, alike = self.price.mesh, self.price.levels, self.alike[vertex.name]
        if isinstance(self.price, LeastBytes):
            rows = self.rows_of(vertex, view)
            if rows is not None:
                return rows
            return viable_parts(view.sizes, mesh.sizes, alike, even=mesh.cuts_evenly)
        # A restriction may tell apart labels that are otherwise interchangeable.
        alike = alike if self.restriction is None else ()
        rows = level_vectors(view.sizes, levels, alike, most, mesh.pieces)
        if self.restriction is not None:
            mask = self.restriction(vertex, view, rows.prod(axis=2), mesh)
            rows = rows[mask]
        if isinstance(vertex.op, Input) and vertex.name not in self.rules.pinned:
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


def relax(asked: Relaxation, time_limit: float, memory: int | None = None) -> Relaxed:
    """Solve the relaxed problem, or bound it if it is too large.

    Vertices that can be cut in too many ways are left out; the bound stays valid.
    """
    deadline = planning_time() + time_limit
    if isinstance(asked.price, LeastSeconds) and memory is None:
        asked = replace(asked, price=_finest(asked.graph, asked.price))
    for most in budgets.RELAXED_VECTORS:
        relaxed = _relax(asked, most, memory, deadline)
        if relaxed is not None:
            return relaxed
        if has_passed(deadline):
            break
    return Relaxed(0)


def _finest(graph: Graph, price: LeastSeconds) -> LeastSeconds:
    """The prices by which outer axes are told apart, unless that leaves too many vectors."""
    fine = replace(price, fine=True)
    for _, view in planned_views(graph):
        labels = sum(size > 1 for size in view.sizes)
        if prod(comb(len(axes) + labels, labels) for axes in fine.levels) > budgets.FINE_VECTORS:
            return price
    return fine


def _relax(asked: Relaxation, most: int, memory: int | None, deadline: float) -> Relaxed | None:
    """The relaxed problem over vertices with at most `most` vectors; None if it is too large."""
    least: Any = asked.price
    levels = asked.price.levels
    try:
        model = MovementModel.of(
            asked.graph, least, asked.choices_of(most), asked.rules, shared=True,
            by_levels=len(levels) > 1, deadline=deadline,
        )  # fmt: skip
    except UnsolvedError:
        return None
    if memory is not None:
        # The bound within the limit, and the vectors of all choices met around it.
        bound, choices = limited(model, memory, deadline)
        return Relaxed(max(bound, 0), _vectors(model, choices), levels)
    problem = model.problem()
    ranked = rank(problem, model.load)
    if ranked is not None:
        bounding = Bounding.of(ranked, deadline)
        if bounding.solved and bounding.choice is not None:
            vectors = _vectors(model, [bounding.choice])
            cost = problem.cost_of(bounding.choice)
            return Relaxed(cost, vectors, levels, solved=True, is_light=True, model=model)
    # Tables over pieces on several levels are too large to be eliminated exactly.
    now = planning_time()
    some = now + budgets.EXACT_SHARE * (deadline - now)
    if len(levels) == 1:
        bounding = Bounding.of(problem, deadline)
    else:
        bounding = Bounding.begin(problem, some, budgets.FOLDED_WORK)
    # What is left of folded layers is small enough for large tables.
    folded = "fold" in bounding.run.stages
    bounding.tighten(inf, deadline, levels=len(BUCKET_CELLS) if folded else 1)
    return _relaxed(model, bounding, levels)


def _relaxed(model: MovementModel, bounding: Bounding, levels: Levels) -> Relaxed:
    choice = bounding.choice
    vectors = None if choice is None else _vectors(model, [choice])
    if vectors is not None and len(levels) > 1 and not bounding.solved:
        vectors = _shared_by_equals(model, vectors)
    bound = max(bounding.value, 0)
    bound = int(bound) if bounding.run.problem.integral else bound
    return Relaxed(bound, vectors, levels, bounding.solved, model=model, bounding=bounding)


def _vectors(model: MovementModel, choices: list[Any]) -> Vectors | None:
    """The pieces of everything that is chosen; None where something was left out."""
    whole = all(vertex.name in model.sites for vertex in model.rules.chosen(model.graph))
    if not whole or not choices:
        return None
    each: list[Any] = [model.assignments(choice) for choice in choices]
    return {name: tuple(dict.fromkeys(one[name] for one in each)) for name in each[0]}


def _shared_by_equals(model: MovementModel, vectors: Vectors) -> Vectors:
    """With each vertex's own pieces the usual ones of vertices that have the same choices.

    What is left of folded layers is not solved exactly: equal layers are cut better.
    """
    usual: dict[int, Counter[Vector]] = {}
    for name, rows in vectors.items():
        usual.setdefault(id(model.sites[name].choices), Counter()).update(rows)
    common = {
        kind: [vector for vector, _ in counts.most_common(budgets.USUAL_VECTORS)]
        for kind, counts in usual.items()
    }
    return {
        name: tuple(dict.fromkeys((*rows, *common[id(model.sites[name].choices)])))
        for name, rows in vectors.items()
    }


@lru_cache(maxsize=1 << 10)
def level_vectors(
    sizes: tuple[int, ...],
    levels: Levels,
    alike: tuple[tuple[int, ...], ...],
    most: int,
    rule: str = BALANCED,
) -> Ints:
    """Every way to cut labels by axes of each level, any of which may stay unused.

    Rows × labels × levels. Of ways that differ only in how they treat labels that are `alike`, one
    is kept. Raises `PlanError` if there would be more than `most`.
    """
    rows = np.ones((1, len(sizes), 0), dtype=np.int64)
    for axes in levels:
        if comb(len(axes) + len(sizes), len(sizes)) > most:
            raise PlanError(f"{len(sizes)} labels can be cut in more than {most} ways")
        own = _spread(sizes, axes)
        if len(rows) * len(own) > 4 * most:
            raise PlanError(f"{len(sizes)} labels can be cut in more than {most} ways")
        rows = np.concatenate(
            [np.repeat(rows, len(own), axis=0), np.tile(own, (len(rows), 1))[:, :, None]], axis=2
        )
        fits = can_cut(rule, np.array(sizes, dtype=np.int64), rows.prod(axis=2))
        rows = rows[fits.all(axis=1)]
    keep = np.ones(len(rows), dtype=bool)
    for one, other in (pair for group in alike for pair in pairwise(group)):
        ranks = np.array([1 << 20 * k for k in range(len(levels))][::-1], dtype=np.float64)
        keep &= rows[:, one] @ ranks >= rows[:, other] @ ranks
    if keep.sum() > most:
        raise PlanError(f"{len(sizes)} labels can be cut in more than {most} ways")
    return rows[keep]


def _spread(sizes: tuple[int, ...], axes: tuple[int, ...]) -> Ints:
    """The numbers of pieces of all labels that axes of one size can make."""
    labels = range(len(sizes) + 1)  # the last one stands for axes that are not used
    rows: list[list[int]] = []
    for chosen in combinations_with_replacement(labels, len(axes)):
        parts = [1] * (len(sizes) + 1)
        for label, size in zip(chosen, axes, strict=True):
            parts[label] *= size
        rows.append(parts[:-1])
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(sizes))


@lru_cache(maxsize=1 << 8)
def piece_choices(view: View, mesh: Mesh, levels: Levels, rows: tuple[Vector, ...]) -> Choices:
    """A vertex's choices with vectors in place of assignments, homes and needed cuts."""
    vectors = np.array(rows, dtype=np.int64).reshape(len(rows), len(view.labels), len(levels))
    parts = vectors.prod(axis=2)
    reads = tuple(None if dims is None else _reads(view, dims, vectors) for dims in view.reads)
    tile = dim_parts(view, view.output, vectors)
    summed = vectors[:, list(view.aggregated)].prod(axis=1)
    copies = mesh.devices // parts.prod(axis=1)
    homes = _homes(view, mesh, levels, tile, bool((summed > 1).any()))
    if len(homes) * len(vectors) > budgets.PIECES_AND_HOMES:
        raise PlanError(f"{len(vectors)} ways to cut a vertex, {len(homes)} to leave its result")
    spread = np.ones((len(vectors), len(homes), len(levels)), dtype=np.int64)
    fits = np.ones(spread.shape[:2], dtype=bool)
    for d in range(tile.shape[1]):
        grown, left = np.divmod(homes[None, :, d], tile[:, None, d])
        spread *= grown
        fits &= (left == 0).all(axis=2)
    spread_or_one = np.maximum(spread, 1)
    fits &= ((spread > 0) & (summed[:, None] % spread_or_one == 0)).all(axis=2)
    replicated = (summed[:, None] // spread_or_one).prod(axis=2)
    times = summed.prod(axis=1)[:, None] - 1
    reduced = np.where(fits, copies[:, None] * times, -1)
    gathered = np.where(fits, copies[:, None] * (replicated - 1), -1)
    kept = fits.any(axis=0)
    cuts = tuple(_sides(view.output, row) for row in homes[kept].tolist())
    # Numbers of pieces stand in for assignments and cuts; `LeastBytes` takes them.
    make: Any = Choices
    return make(view, mesh, rows, parts, reads, cuts, reduced[:, kept], gathered[:, kept], {})


def pieces_of(mesh: Mesh, levels: Levels, groups: Iterable[Axes]) -> Vector:
    """Into how many pieces those of the axes that are of each level cut, for each group of axes."""
    ends = list(accumulate(len(axes) for axes in levels))
    return tuple(
        tuple(
            prod(mesh.sizes[a] for a in group if end - len(axes) <= a < end)
            for axes, end in zip(levels, ends, strict=True)
        )
        for group in groups
    )


def _reads(view: View, dims: Dims, vectors: Ints) -> Any:
    index: dict[PieceCounts, int] = {}
    rows: list[list[list[int]]] = dim_parts(view, dims, vectors).tolist()
    of = [index.setdefault(_sides(dims, row), len(index)) for row in rows]
    make: Any = Reads
    return make(tuple(index), np.array(of, dtype=np.int64))


def _sides(dims: Dims, row: Sequence[Sequence[int]]) -> PieceCounts:
    return tuple(
        PieceCount(prod(n), (d.stop - d.start) // d.scale, d.scale, d.stop - d.start, d.label,
                   tuple(n))
        for d, n in zip(dims, row, strict=True)
    )  # fmt: skip


def _homes(view: View, mesh: Mesh, levels: Levels, tile: Ints, reduced: bool) -> Ints:
    """The numbers of pieces of each dimension in which the result can be left."""
    if not reduced or tile.shape[1] == 0:
        return np.unique(tile, axis=0) if tile.shape[1] else tile[:1]
    units = tuple((d.stop - d.start) // d.scale for d in view.output)
    if len(levels) == 1:
        # One more bucket of any size holds the axes that replicate.
        spare = (*units, mesh.devices)
        every = viable_parts(spare, mesh.sizes, even=mesh.cuts_evenly)[:, :-1, None]
    else:
        every = level_vectors(units, levels, (), budgets.PIECES_AND_HOMES, mesh.pieces)
    return np.unique(np.concatenate([every, tile]), axis=0)
