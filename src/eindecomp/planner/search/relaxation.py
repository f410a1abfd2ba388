"""The relaxation: a lower bound on real movement, by numbers of pieces alone.

Each vertex chooses how many pieces every label is cut into, and every movement costs the least that
any choice of mesh axes allows. No plan costs less than the cheapest such choice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.errors import PlanError, UnsolvedError
from eindecomp.planner.costs.least_bytes import LeastBytes, PieceCount, PieceCounts
from eindecomp.planner.model.movement import MovementModel
from eindecomp.planner.space.choices import Choices, Reads
from eindecomp.planner.space.interchangeable import Groups, interchangeable_labels
from eindecomp.planner.space.tiles import dim_parts
from eindecomp.planner.space.viable import viable_parts
from eindecomp.planner.space.view import is_planned
from eindecomp.solve.bound.bounding import Bounding
from eindecomp.solve.tie_break import rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.planner.space.mesh import Mesh
    from eindecomp.planner.space.view import Dims, View

    Ints = NDArray[np.int64]

_ROWS = (1 << 15, 1 << 12, 1 << 9)  # the most vectors of a vertex, tried in turn
_CELLS = 1 << 23  # the most pairs of a vector and a home that a vertex can have


def relaxed_choices(view: View, mesh: Mesh, parts: Ints) -> Choices:
    """A vertex's choices with partition vectors in place of assignments, homes and needed cuts."""
    return _choices(view, mesh, tuple(tuple(row) for row in parts.tolist()))


@lru_cache(maxsize=1 << 8)
def _choices(view: View, mesh: Mesh, vectors: tuple[tuple[int, ...], ...]) -> Choices:
    parts = np.array(vectors, dtype=np.int64).reshape(len(vectors), len(view.labels))
    reads = tuple(None if dims is None else _reads(view, dims, parts) for dims in view.reads)
    tile = dim_parts(view, view.output, parts)
    summed = parts[:, list(view.aggregated)].prod(axis=1)
    copies = mesh.devices // parts.prod(axis=1)
    homes = _homes(view, mesh, tile, bool((summed > 1).any()))
    if len(homes) * len(parts) > _CELLS:
        raise PlanError(f"{len(parts)} ways to cut a vertex, {len(homes)} to leave its result")
    spread = np.ones((len(parts), len(homes)), dtype=np.int64)
    fits = np.ones(spread.shape, dtype=bool)
    for d in range(tile.shape[1]):
        grown, left = np.divmod(homes[None, :, d], tile[:, None, d])
        spread *= grown
        fits &= left == 0
    fits &= (spread > 0) & (summed[:, None] % np.maximum(spread, 1) == 0)
    replicated = summed[:, None] // np.maximum(spread, 1)
    reduced = np.where(fits, copies[:, None] * (summed[:, None] - 1), -1)
    gathered = np.where(fits, copies[:, None] * (replicated - 1), -1)
    kept = fits.any(axis=0)
    rows = [_sides(view.output, row) for row in homes[kept].tolist()]
    # Numbers of pieces stand in for assignments and cuts; `LeastBytes` takes them.
    make: Any = Choices
    return make(
        view,
        mesh,
        tuple(vectors),
        parts,
        reads,
        tuple(rows),
        reduced[:, kept],
        gathered[:, kept],
        {},
    )


def _reads(view: View, dims: Dims, parts: Ints) -> Any:
    index: dict[PieceCounts, int] = {}
    rows: list[list[int]] = dim_parts(view, dims, parts).tolist()
    of = [index.setdefault(_sides(dims, row), len(index)) for row in rows]
    make: Any = Reads
    return make(tuple(index), np.array(of, dtype=np.int64))


def _sides(dims: Dims, row: Sequence[int]) -> PieceCounts:
    return tuple(
        PieceCount(n, (d.stop - d.start) // d.scale, d.scale, d.stop - d.start, d.label)
        for d, n in zip(dims, row, strict=True)
    )


def _homes(view: View, mesh: Mesh, tile: Ints, reduced: bool) -> Ints:
    """The numbers of pieces of each dimension in which the result can be left."""
    if not reduced or tile.shape[1] == 0:
        return np.unique(tile, axis=0) if tile.shape[1] else tile[:1]
    units = tuple((d.stop - d.start) // d.scale for d in view.output)
    # One more bucket of any size holds the axes that replicate.
    every = viable_parts((*units, mesh.devices), mesh.sizes)[:, :-1]
    return np.unique(np.concatenate([every, tile]), axis=0)


@dataclass(frozen=True)
class Relaxed:
    """A bound that no plan undercuts, and the partition vectors that come closest to it."""

    bound: float
    parts: dict[str, tuple[int, ...]] | None = None
    solved: bool = False
    """Whether the partition vectors reach the bound."""
    is_light: bool = False
    """Whether, among all that do, they make devices read and hold the least."""
    model: MovementModel | None = None
    """What was relaxed."""
    bounding: Bounding | None = None
    """What is known of it, if its bound can be raised further."""

    def tightened(self, goal: float, deadline: float) -> Relaxed:
        """The same with a higher bound, as far as the goal, time and memory allow."""
        if self.model is None or self.bounding is None:
            return self
        self.bounding.tighten(goal, deadline)
        return _relaxed(self.model, self.bounding)

    def otherwise(self, deadline: float) -> Relaxed:
        """The same with any vectors that reach the bound, not those that read the least."""
        if not self.is_light or self.model is None:
            return self
        relaxed = _relaxed(self.model, Bounding.of(self.model.problem(), deadline))
        return relaxed if relaxed.solved else self


Rows = Callable[["Vertex", "View"], "Ints | None"]
"""The partition vectors that a vertex may take; None for all viable ones."""


def relax(graph: Graph, mesh: Mesh, inputs: str, rows_of: Rows, time_limit: float) -> Relaxed:
    """Solve the relaxed problem, or bound it if it is too large.

    Vertices that can be cut in too many ways are left out; the bound stays valid.
    """
    deadline = monotonic() + time_limit
    alike = interchangeable_labels(graph)
    for most in _ROWS:
        relaxed = _relax(graph, mesh, inputs, rows_of, alike, most, deadline)
        if relaxed is not None:
            return relaxed
        if monotonic() > deadline:
            break
    return Relaxed(0)


def _relax(
    graph: Graph,
    mesh: Mesh,
    inputs: str,
    rows_of: Rows,
    alike: dict[str, Groups],
    most: int,
    deadline: float,
) -> Relaxed | None:
    """The relaxed problem over vertices with at most `most` vectors; None if it is too large."""

    def of(vertex: Vertex, view: View) -> Choices | None:
        try:
            rows = rows_of(vertex, view)
            if rows is None:
                rows = viable_parts(view.sizes, mesh.sizes, alike[vertex.name])
            return relaxed_choices(view, mesh, rows) if len(rows) <= most else None
        except PlanError:
            return None  # too many to list

    price: Any = LeastBytes(mesh)
    try:
        model = MovementModel.of(graph, price, of, inputs, shared=True, deadline=deadline)
    except UnsolvedError:
        return None
    problem = model.problem()
    ranked = rank(problem, model.load)
    if ranked is not None:
        bounding = Bounding.of(ranked, deadline)
        if bounding.solved and bounding.choice is not None:
            parts = _parts(model, bounding.choice)
            cost = problem.cost_of(bounding.choice)
            return Relaxed(cost, parts, solved=True, is_light=True, model=model)
    bounding = Bounding.of(problem, deadline)
    bounding.tighten(inf, deadline, levels=1)
    return _relaxed(model, bounding)


def _relaxed(model: MovementModel, bounding: Bounding) -> Relaxed:
    choice = bounding.choice
    parts = None if choice is None else _parts(model, choice)
    bound = int(max(bounding.value, 0))
    return Relaxed(bound, parts, bounding.solved, model=model, bounding=bounding)


def _parts(model: MovementModel, choice: Any) -> Any:
    """The numbers of pieces of all vertices; None where some were left out."""
    whole = all(v.name in model.sites for v in model.graph.vertices.values() if is_planned(v))
    return model.assignments(choice) if whole else None
