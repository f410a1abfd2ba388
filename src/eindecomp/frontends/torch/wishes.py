"""What a plan wants of an exported module: where operators read tensors and leave them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from eindecomp.frontends.placements import Pending, Replicated, Sharded
from eindecomp.frontends.views import View
from eindecomp.graph.ops import Reshape
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.scalar import Arg

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import fx

    from eindecomp.frontends.placements import Placed, PlacedPlan, Places
    from eindecomp.frontends.torch.importing import Imported
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.ops import Op
    from eindecomp.graph.vertex import Vertex


@dataclass(frozen=True)
class Wanted:
    """Where the vertex of an array is to lie."""

    view: View
    places: Places

    @cached_property
    def of_array(self) -> Places | None:
        """The same for the array; None where no placement says it."""
        return seen_through(self.view, self.places)


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
    made_here = _MadeHere(imported, placed)
    found: dict[fx.Node, Wish] = {}
    for node, made in imported.made.items():
        if made:
            found[node] = made_here.wish(node, made)
            found |= dict(_before_views(found[node], imported))
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


class _MadeHere:
    """Who reads what in the plan, and where operators come in the order of the import."""

    def __init__(self, imported: Imported, placed: PlacedPlan) -> None:
        self.imported, self.placed = imported, placed
        self.graph = placed.plan.graph
        self.known_as = imported_names(self.graph, imported.graph)
        self.order = {name: k for k, name in enumerate(imported.graph)}
        self.readers: dict[str, list[tuple[str, Places]]] = defaultdict(list)
        for name, operands in placed.operands.items():
            for source, places in zip(self.graph[name].inputs, operands, strict=True):
                if places is not None:
                    self.readers[source].append((name, places))

    def wish(self, node: fx.Node, made: tuple[str, ...]) -> Wish:
        """The wish of an operator for which these vertices were made."""
        kept = [name for name in made if name in self.placed.operands]
        vertex = kept[-1] if kept else ""
        operands: dict[fx.Node, Wanted] = {}
        for source in node.all_input_nodes:
            view = self.imported.views.get(source)
            if not isinstance(view, View) or view.number is not None:
                continue
            name, places = self._reader(view.vertex, made)
            if places is None:
                continue
            vertex = vertex or self.known_as[name]
            if source.op == "placeholder" and kept and self.known_as[name] != kept[0]:
                # What a later vertex reads would not go with the first one's cut; it is free whole.
                places = (Replicated(),) * len(places)
            operands[source] = Wanted(view, places)
        views = _views(self.imported.views[node])
        return Wish(vertex, operands, tuple(_home(view, self.placed, made) for view in views))

    def _reader(self, tensor: str, made: tuple[str, ...]) -> tuple[str, Places | None]:
        """The vertex for which an operator reads a tensor, and where that wants it."""
        start = min((self.order[name] for name in made if name in self.order), default=0)
        for name, places in self.readers.get(tensor, []):
            if self.known_as[name] in made:
                return self._behind_views(name, places, made)
        for name, places in self.readers.get(tensor, []):
            if self.order.get(self.known_as[name], -1) >= start:
                return name, places
        return "", None

    def _behind_views(self, name: str, places: Places, made: tuple[str, ...]) -> tuple[str, Places]:
        """The reader itself, or whoever reads what that only shows in another shape."""
        if _only_shows(self.graph[name].op):
            for after, wanted in self.readers.get(name, []):
                back = _back(self.graph[name], wanted) if self.known_as[after] in made else None
                if back is not None:
                    return self._behind_views(after, back, made)
        return name, places


def _only_shows(op: Op) -> bool:
    """Whether a vertex has the elements of its input, in another shape or order."""
    return isinstance(op, Reshape) or (isinstance(op, EinSum) and op.join == Arg(0) and not op.agg)


def _back(vertex: Vertex, places: Places) -> Places | None:
    """Where the input of such a vertex is to lie, if the vertex is to lie so."""
    op = vertex.op
    before = op.input if isinstance(op, Reshape) else [(each,) for each in op.inputs[0]]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
    after = op.groups if isinstance(op, Reshape) else [(each,) for each in op.output]
    outer = {group[0]: axis for axis, group in enumerate(before)}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    found: list[Placed] = []
    for own in places:
        match own:
            case Sharded(axis, factor):
                label = after[axis][0]
                if label not in outer:
                    return None
                found.append(Sharded(outer[label], factor))
            case _:
                found.append(own)
    return tuple(found)


def _home(view: object, placed: PlacedPlan, made: tuple[str, ...]) -> Wanted | None:
    if not isinstance(view, View) or view.vertex not in made:
        return None
    layouts = placed.layouts.get(view.vertex)
    return None if layouts is None else Wanted(view, layouts[0])


def _views(value: Any) -> tuple[Any, ...]:
    return (*cast("Sequence[Any]", value),) if isinstance(value, tuple | list) else (value,)


def seen_through(view: View, places: Places) -> Places | None:
    """Where an array lies whose vertex lies so; None where no placement says it.

    An axis inside a dimension of several cannot be cut alone: that is not one chunk.

    >>> from eindecomp.frontends.views import Factor, View
    >>> import numpy as np
    >>> view = View("X", ((Factor(4, 1),), (Factor(2, 0), Factor(3, 2))), np.dtype("float32"))
    >>> seen_through(view, (Sharded(0), Sharded(1)))
    (Sharded(dim=1, split_factor=1), Sharded(dim=0, split_factor=1))
    """
    at: dict[int, int] = {}
    for place, dim in enumerate(view.dims):
        for k, factor in enumerate(dim):
            if factor.axis is not None and k == 0:
                at[factor.axis] = place
    found: list[Placed] = []
    for own in places:
        match own:
            case Sharded(axis, factor):
                if axis not in at:
                    return None
                found.append(Sharded(at[axis], factor))
            case Replicated() | Pending():
                found.append(own)
    return tuple(found)
