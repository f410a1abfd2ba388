"""What a plan wants of an exported module: where operators read tensors and leave them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import fx

from eindecomp.frontends.torch.seen_through import seen_through
from eindecomp.frontends.views import View

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eindecomp.frontends.placed_plan import PlacedPlan
    from eindecomp.frontends.placements import Places
    from eindecomp.frontends.torch.importing import Imported
    from eindecomp.graph.graph import Graph


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where the vertex of an array is to lie."""

    view: View
    places: Places

    @property
    def of_array(self) -> Places | None:
        """The same for the array; None where no placement says it."""
        return seen_through(self.view, self.places)

    @property
    def of_vertex(self) -> Places | None:
        """The same for the vertex, where the array only merges dimensions of it."""
        is_plain = self.view.axes == (*range(len(self.view.axes)),)
        return self.places if is_plain else None


@dataclass(frozen=True, slots=True)
class Wish:
    """How an operator is to read its operands, and where its results are to lie."""

    vertex: str
    """The vertex of the plan that it belongs to; empty for none."""
    operands: Mapping[fx.Node, Wanted]
    results: tuple[Wanted | None, ...]
    """For each tensor that it returns; None where the plan says nothing."""


def wishes_of(imported: Imported, placed: PlacedPlan) -> dict[fx.Node, Wish]:
    """The wishes of all operators that compute something.

    A plan may have fused a vertex into those that read it. What it reads is then wanted as the
    first of those wants it.
    """
    graph = placed.plan.graph
    known_as = imported_names(graph, imported.graph)
    readers: dict[str, list[tuple[str, Places]]] = defaultdict(list)
    for vertex in graph.vertices.values():
        for source, places in zip(
            vertex.inputs, placed.operands.get(vertex.name, ()), strict=False
        ):
            if places is not None:
                readers[source].append((known_as[vertex.name], places))
    order = {name: k for k, name in enumerate(imported.graph)}
    found: dict[fx.Node, Wish] = {}
    for node, made in imported.made.items():
        if made:
            wish = _wish(node, made, imported, placed, readers, order)
            found[node] = wish
            found |= dict(_before_views(wish, imported))
    return found


def imported_names(planned: Graph, imported: Graph) -> dict[str, str]:
    """Under which name each vertex of a plan was imported.

    One that rewriting has made is known by the first vertex that it was made for.
    """
    users = planned.users()
    found: dict[str, str] = {}
    for name in reversed([*planned]):
        later = (found[user] for user in users[name])
        found[name] = name if name in imported else next(later, name)
    return found


def _before_views(wish: Wish, imported: Imported) -> Iterator[tuple[fx.Node, Wish]]:
    """The same wishes for the views through which an operator alone reads a tensor.

    A view may repeat elements, as keys that several heads share: those are moved once.
    """
    for source, wanted in wish.operands.items():
        node = source
        while _is_view(node, imported) and _is_view(node.all_input_nodes[0], imported):
            node = node.all_input_nodes[0]
        if _is_view(node, imported):
            [before] = node.all_input_nodes
            at = Wanted(imported.views[before], wanted.places)
            yield node, Wish(wish.vertex, {before: at}, ())


def _is_view(node: fx.Node, imported: Imported) -> bool:
    """Whether a node shows the vertex of another, to one reader."""
    if imported.made.get(node) != () or len(node.users) != 1 or len(node.all_input_nodes) != 1:
        return False
    own, before = (imported.views.get(each) for each in (node, node.all_input_nodes[0]))
    return isinstance(own, View) and isinstance(before, View) and own.vertex == before.vertex


def _wish(
    node: fx.Node,
    made: tuple[str, ...],
    imported: Imported,
    placed: PlacedPlan,
    readers: Mapping[str, list[tuple[str, Places]]],
    order: Mapping[str, int],
) -> Wish:
    kept = [name for name in made if name in placed.operands]
    start = min((order[name] for name in made if name in order), default=len(order))
    vertex = kept[-1] if kept else ""
    operands: dict[fx.Node, Wanted] = {}
    for source in node.all_input_nodes:
        view = imported.views.get(source)
        if not isinstance(view, View) or view.number is not None:
            continue
        own = [pair for pair in readers.get(view.vertex, ()) if pair[0] in made]
        later = [pair for pair in readers.get(view.vertex, ()) if order.get(pair[0], -1) >= start]
        for name, places in (own or later)[:1]:
            vertex = vertex or name
            operands[source] = Wanted(view, places)
    results = tuple(_home(view, placed, made) for view in _views(imported.views[node]))
    return Wish(vertex, operands, results)


def _home(view: object, placed: PlacedPlan, made: tuple[str, ...]) -> Wanted | None:
    if not isinstance(view, View) or view.vertex not in made:
        return None
    layouts = placed.layouts.get(view.vertex)
    return None if layouts is None else Wanted(view, layouts[0])


def _views(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)
