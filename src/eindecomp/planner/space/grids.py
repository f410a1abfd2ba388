"""The grids of one product, as axes: no search says which axes cut what, once pieces are known.

A *grid* says into how many pieces each label of a product is cut. Each label then takes a run of
mesh axes. What the product reads lies inside what it needs, so that devices have a part of it
already; what it makes is scattered over all axes that it sums over; and what follows element by
element is computed where the product's result lies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, permutations, product
from math import prod

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Input
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.einsum import EinSum
from eindecomp.layout.cut import Axes, Cut, axes_in, largest_side, pieces_by, used_axes
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.view import View, planned_views, view_of
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
    mesh: Mesh, levels: Levels, grid: Grid, wishes: Sequence[Assignment] = ()
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
    orders = list(product([(*order, *whole) for order in permutations(cut)], repeat=len(levels)))
    inward = tuple(range(len(mesh.sizes)))
    ways = [inward, inward[::-1]] if len(set(mesh.sizes)) > 1 else [inward]
    asked = [(wish, (labels,) * len(levels)) for wish in wishes]
    asked += [((way,) * len(grid), order) for order in orders for way in ways]
    rows = (_row(mesh, levels, grid, *each) for each in islice(asked, budgets.GRID_ROWS))
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
        wished: list[Assignment] = []
        for name, dims in (*tensors, (self.product, view.output)):
            for cut in self.rules.pinned.get(name, ())[: budgets.GRID_HOMES]:
                own = {
                    dim.label: s.axes for dim, s in zip(dims or (), cut, strict=dims is not None)
                }
                wished.append(tuple(own.get(label, ()) for label in view.labels))
        return tuple(wished)

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
        """The same cut as that of a result which it reads."""
        view = view_of(self.graph, vertex)
        rows: list[Assignment] = []
        for name, dims in zip(vertex.inputs, view.reads, strict=True):
            for home in chosen[name].homes if name in chosen and dims is not None else ():
                own = {dim.label: span.axes for dim, span in zip(dims or (), home, strict=True)}
                rows.append(tuple(own.get(label, ()) for label in view.labels))
        return self._among(vertex, view, rows)

    def _of_source(self, vertex: Vertex, chosen: dict[str, Choices]) -> Choices | None:
        """Cuts inside those in which it is read."""
        view = view_of(self.graph, vertex)
        needed: dict[Cut, None] = {}
        for name, own in chosen.items():
            for source, reads in zip(self.graph[name].inputs, own.reads, strict=True):
                if source == vertex.name and reads is not None:
                    needed.update(dict.fromkeys(reads.cuts))
        rows = [row for cut in needed for row in self._rows_near(view, cut)]
        return self._among(vertex, view, rows)

    def _rows_near(self, view: View, cut: Cut) -> Iterator[Assignment]:
        """Assignments of a source inside a cut; where none has the most pieces, others close to it."""
        mesh, free = self.mesh, axes_in(self.mesh, ~used_axes(cut))
        most = most_pieces(view.sizes, mesh.sizes, even=mesh.cuts_evenly)
        own = {dim.label: span.axes for dim, span in zip(view.output, cut, strict=True)}
        wish = tuple(own.get(label, ()) for label in view.labels)
        nested = False
        for inner in _inside(mesh, cut, free):
            more = {dim.label: axes for dim, axes in zip(view.output, inner, strict=True)}
            row = tuple((*axes, *more.get(l, ())) for l, axes in zip(view.labels, wish, strict=True))
            nested |= pieces_by(mesh, sum(row, ())) == most
            yield row
        if not nested:
            for parts in some_parts(
                view.sizes, mesh.sizes, budgets.GRID_ROWS, even=mesh.cuts_evenly
            ).tolist():
                yield from rows_of(mesh, (mesh.sizes,), tuple((n,) for n in parts), [wish])

    def _among(self, vertex: Vertex, view: View, rows: Collection[Assignment]) -> Choices | None:
        """The choices with those of these assignments that pins and numbers of devices allow."""
        if (pinned := self.rules.pinned.get(vertex.name)) is not None:
            rows = assignments_of(view, pinned)
        elif not self.redundant or isinstance(vertex.op, Input):
            most = most_pieces(view.sizes, self.mesh.sizes, even=self.mesh.cuts_evenly)
            pieces = ((row, pieces_by(self.mesh, sum(row, ()))) for row in rows)
            rows = [row for row, n in pieces if n == most]
        kept = tuple(dict.fromkeys(rows))
        return choices(view, self.mesh, kept) if kept else None
