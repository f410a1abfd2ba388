"""The grids of one product, as axes: no search says which axes cut what, once pieces are known.

A *grid* says into how many pieces each label of a product is cut. Each label then takes a run of
mesh axes. What the product reads lies inside what it needs, so that devices have a part of it
already; what it makes is scattered over all axes that it sums over; and what follows element by
element is computed where the product's result lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, permutations, product
from math import prod

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Input
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.einsum import EinSum
from eindecomp.layout.cut import Axes, Cut, Span, axes_in, largest_side, pieces_by, used_axes
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.view import Dims, View, planned_views, view_of
from eindecomp.planner import budgets
from eindecomp.planner.space.choices import (
    Assignment,
    Choices,
    Places,
    Settled,
    choices,
    choices_home,
    cut_of,
    homes_of,
    summed_axes,
)
from eindecomp.planner.space.layout_rules import LayoutRules
from eindecomp.planner.space.pin import assignments_of, axes_cutting
from eindecomp.planner.space.viable import most_pieces, some_parts, viable_parts

Grid = tuple[tuple[int, ...], ...]
"""For each label, into how many pieces the axes of each level of the mesh cut it."""
Levels = tuple[tuple[int, ...], ...]
"""The sizes of the axes of each level, outermost first."""


def product_of(graph: Graph) -> str | None:
    """The vertex that all others precede or follow element by element; None if there is none."""
    planned = planned_views(graph)
    if len(planned) > budgets.GRID_VERTICES:
        return None
    if not all(isinstance(graph[name].op, EinSum) and _is_plain(view) for name, view in planned):
        return None
    products = [name for name, view in planned if not _is_elementwise(view)]
    return products[0] if len(products) == 1 else None


def _is_plain(view: View) -> bool:
    """Whether every dimension has a label of its own, as it has not on a diagonal."""
    for dims in (*view.reads, view.output):
        labels = [dim.label for dim in dims or ()]
        if None in labels or len(set(labels)) < len(labels):
            return False
    return True


def _is_elementwise(view: View) -> bool:
    """Whether nothing is summed, and one operand has all labels."""
    labels = set(view.labels)
    return not view.aggregated and any({d.label for d in own or ()} == labels for own in view.reads)


def rows_of(
    mesh: Mesh,
    levels: Levels,
    grid: Grid,
    wishes: Sequence[Assignment] = (),
    most: int = budgets.GRID_ROWS,
) -> tuple[Assignment, ...]:
    """Assignments with these pieces: first those that come closest to wishes.

    Then come runs of axes, the outermost ones for each label in turn, nested either way where axes
    differ in size.

    >>> mesh = Mesh.of_devices(4)
    >>> rows_of(mesh, (mesh.sizes,), ((2,), (2,)))
    (((0,), (1,)), ((1,), (0,)))
    """
    labels = tuple(range(len(grid)))
    cut = [label for label in labels if prod(grid[label]) > 1]
    whole = tuple(label for label in labels if label not in cut)
    each = product([(*order, *whole) for order in permutations(cut)], repeat=len(levels))
    orders = list(islice(each, most))
    inward = tuple(range(len(mesh.sizes)))
    ways = [inward, inward[::-1]] if len(set(mesh.sizes)) > 1 else [inward]
    asked = [(wish, (labels,) * len(levels)) for wish in wishes]
    asked += [((way,) * len(grid), order) for order in orders for way in ways]
    rows = (_row(mesh, levels, grid, *each) for each in asked[: most + len(wishes)])
    return tuple(dict.fromkeys(row for row in rows if row is not None))


def _row(
    mesh: Mesh, levels: Levels, grid: Grid, wish: Assignment, orders: Sequence[tuple[int, ...]]
) -> Assignment | None:
    """An assignment whose labels choose their axes of each level in an order; None if none fits."""
    row: list[Axes] = [()] * len(grid)
    ends = list(accumulate(len(axes) for axes in levels))
    for level, (order, end) in enumerate(zip(orders, ends, strict=True)):
        free = tuple(range(end - len(levels[level]), end))
        asked = [grid[label][level] for label in order]
        taken = _taken(mesh, free, asked, [wish[label] for label in order])
        if taken is None:
            return None
        for label, axes in zip(order, taken, strict=True):
            row[label] += axes
    return tuple(row)


def _taken(
    mesh: Mesh, free: Axes, asked: Sequence[int], wishes: Sequence[Axes]
) -> tuple[Axes, ...] | None:
    """The first way to cut into as many pieces as asked, by axes that each wishes if possible."""
    if not asked:
        return ()
    others = {axis for own in wishes[1:] for axis in own}
    wanted = tuple(axis for axis in wishes[0] if axis in free)
    rest = sorted((axis for axis in free if axis not in wanted), key=others.__contains__)
    for group in axes_cutting(mesh, (*wanted, *rest), asked[0]):
        left = tuple(axis for axis in free if axis not in group)
        more = _taken(mesh, left, asked[1:], wishes[1:])
        if more is not None:
            return group, *more
    return None


def _inside(mesh: Mesh, cut: Cut, axes: Axes) -> list[tuple[Axes, ...]]:
    """The axes of each dimension if these cut its pieces further, as far as possible.

    Of all ways, a few whose largest pieces are small.
    """
    rooms = tuple(max(span.units // pieces_by(mesh, span.axes), 1) for span in cut)
    inner = mesh.along(axes)
    most: list[list[int]] = viable_parts(rooms, inner.sizes, even=mesh.cuts_evenly).tolist()
    ways: list[tuple[Axes, ...]] = []
    for parts in most:
        taken = _taken(inner, tuple(range(len(axes))), parts, [()] * len(parts))
        if taken is not None:
            ways.append(tuple(tuple(axes[k] for k in own) for own in taken))

    def largest(way: tuple[Axes, ...]) -> int:
        spans = (s._replace(axes=(*s.axes, *own)) for s, own in zip(cut, way, strict=True))
        return prod(largest_side(mesh, span) for span in spans)

    return sorted(ways, key=largest)[: budgets.GRID_HOMES]


@dataclass(frozen=True)
class GridChoices:
    """What the vertices and inputs of a graph choose when its product is cut by some grid."""

    graph: Graph
    mesh: Mesh
    rules: LayoutRules
    product: str
    redundant: bool = False

    def wishes(self) -> tuple[Assignment, ...]:
        """What each pinned tensor of the product would have its labels cut by."""
        view = view_of(self.graph, self.graph[self.product])
        tensors = zip(self.graph[self.product].inputs, view.reads, strict=True)
        pinned = self.rules.pinned
        return tuple(
            _wish(view, dims, cut)
            for name, dims in (*tensors, (self.product, view.output))
            for cut in pinned.get(name, ())[: budgets.GRID_HOMES]
            if dims is not None
        )

    def of(self, rows: Sequence[Assignment]) -> dict[str, Choices] | None:
        """The choices of all, if the product has one of these assignments; None if there are none.

        Results that follow come in the order of the graph, and what is read in its reverse.
        """
        chosen: dict[str, Choices] = {}
        vertices = {vertex.name: vertex for vertex in self.rules.chosen(self.graph)}
        after: set[str] = set()
        for name, vertex in vertices.items():
            if name == self.product:
                own = self._of_product(vertex, rows)
            elif after.isdisjoint(vertex.inputs):
                continue
            else:
                own = self._of_follower(vertex, chosen)
            if own is None:
                return None
            after.add(name)
            chosen[name] = own
        for name, vertex in reversed(vertices.items()):
            if name not in chosen:
                own = self._of_source(vertex, chosen)
                if own is None:
                    return None
                chosen[name] = own
        return chosen

    def _of_product(self, vertex: Vertex, rows: Sequence[Assignment]) -> Choices | None:
        view = view_of(self.graph, vertex)
        pairs = [(row, places) for row in rows for places in self._places(vertex, view, row)]
        ways = [
            (row, home, way)
            for row, places in pairs
            for home, way in homes_of(view, self.mesh, row, Settled(places, -1))
        ]
        return choices_home(view, self.mesh, ways) if ways else None

    def _places(self, vertex: Vertex, view: View, row: Assignment) -> Iterator[Places]:
        """Where the product's sums go: to a pinned home, or scattered as far as possible."""
        tile = cut_of(view, view.output, row)
        summed = axes_in(self.mesh, summed_axes(view, row))
        if vertex.name not in self.rules.pinned:
            yield from _inside(self.mesh, tile, summed)
            return
        for cut in self.rules.pinned[vertex.name]:
            spans = list(zip(tile, cut, strict=True))
            inner = tuple(whole.axes[len(own.axes) :] for own, whole in spans)
            if all(whole.axes[: len(own.axes)] == own.axes for own, whole in spans) and {
                axis for own in inner for axis in own
            } <= {*summed}:
                yield inner

    def _of_follower(self, vertex: Vertex, chosen: dict[str, Choices]) -> Choices | None:
        """Cuts inside those of what it reads, and of pinned results that read it."""
        view = view_of(self.graph, vertex)
        wishes = [
            _wish(view, dims, home)
            for name, dims in zip(vertex.inputs, view.reads, strict=True)
            if name in chosen and dims is not None
            for home in chosen[name].homes
        ]
        for reader, cuts in self.rules.pinned.items():
            other = view_of(self.graph, self.graph[reader])
            for name, dims in zip(self.graph[reader].inputs, other.reads, strict=False):
                if name == vertex.name and dims is not None:
                    needed = (cut_of(other, dims, _wish(other, other.output, cut)) for cut in cuts)
                    wishes += [_wish(view, view.output, cut) for cut in needed]
        return self._among(vertex, view, wishes)

    def _of_source(self, vertex: Vertex, chosen: dict[str, Choices]) -> Choices | None:
        """Cuts inside those in which it is read."""
        view = view_of(self.graph, vertex)
        needed = [
            cut
            for name, own in chosen.items()
            for source, reads in zip(self.graph[name].inputs, own.reads, strict=True)
            if source == vertex.name and reads is not None
            for cut in reads.cuts
        ]
        return self._among(vertex, view, [_wish(view, view.output, cut) for cut in needed])

    def _among(self, vertex: Vertex, view: View, wishes: Sequence[Assignment]) -> Choices | None:
        """The choices that come close to these assignments and that pins allow."""
        if (pinned := self.rules.pinned.get(vertex.name)) is not None:
            kept = assignments_of(view, pinned)
        else:
            some = self.redundant and not isinstance(vertex.op, Input)
            near = (row for wish in dict.fromkeys(wishes) for row in self._near(view, wish))
            kept = tuple(dict.fromkeys((*(wishes if some else ()), *near)))
        return choices(view, self.mesh, kept) if kept else None

    def _near(self, view: View, wish: Assignment) -> list[Assignment]:
        """Assignments with the most pieces inside one with fewer, or else others close to it."""
        mesh, even = self.mesh, self.mesh.cuts_evenly
        most = most_pieces(view.sizes, mesh.sizes, even=even)
        cut = tuple(
            Span(axes, size, 1, 0, size) for axes, size in zip(wish, view.sizes, strict=True)
        )
        ways = _inside(mesh, cut, axes_in(mesh, ~used_axes(cut)))
        rows = [
            tuple((*own, *more) for own, more in zip(wish, inner, strict=True)) for inner in ways
        ]
        rows = [row for row in rows if pieces_by(mesh, sum(row, ())) == most]
        if rows:
            return rows
        parts: list[list[int]] = some_parts(
            view.sizes, mesh.sizes, budgets.GRID_ROWS, even=even
        ).tolist()
        grids = (tuple((n,) for n in own) for own in parts)
        few = budgets.FIRST_ROWS
        return [row for grid in grids for row in rows_of(mesh, (mesh.sizes,), grid, [wish], few)]


def _wish(view: View, dims: Dims, cut: Cut) -> Assignment:
    """The assignment that cuts a tensor so; labels that it lacks are whole."""
    own = {dim.label: span.axes for dim, span in zip(dims, cut, strict=True)}
    return tuple(own.get(label, ()) for label in view.labels)
