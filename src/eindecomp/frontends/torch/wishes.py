"""What a plan wants of an exported module: where operators read tensors and leave them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from torch import fx
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import (
    Placement,
    _StridedShard,  # pyright: ignore[reportPrivateUsage] - the only placement out of mesh order
)

from eindecomp.frontends.draft import View
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Reshape
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.scalar import Arg

if TYPE_CHECKING:
    from eindecomp.frontends.torch.importing import Imported

Placements = tuple[Placement, ...]
"""One placement for each dimension of the device mesh."""
Operands = Mapping[str, tuple[Placements | None, ...]]
"""How each vertex wants its operands."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where an array is to lie."""

    vertex: str
    """The vertex that it is a view of."""
    of_vertex: Placements
    of_array: Placements | None
    """None where no placement says it."""


@dataclass(frozen=True, slots=True)
class Wish:
    """How an operator is to read its operands, and where its results are to lie."""

    vertex: str
    """The vertex of the plan that it belongs to; empty for none."""
    operands: Mapping[fx.Node, Wanted]
    results: tuple[Wanted | None, ...]
    """For each tensor that it returns; None where the plan says nothing."""


def wishes_of(
    imported: Imported, planned: Graph, homes: Mapping[str, Placements], operands: Operands
) -> dict[fx.Node, Wish]:
    """The wishes of all operators that compute something.

    `homes` is where tensors of the planned graph lie, `operands` how its vertices want theirs. A
    plan may have fused a vertex into its readers. Its operands are then wanted as the first reader
    wants them.
    """
    readers = _Readers(imported, planned, operands)
    wishes: dict[fx.Node, Wish] = {}
    for node, made in imported.made.items():
        if not made:
            continue
        vertex, wanted = readers.wanted_by(node, made)
        value = imported.views[node]
        views = cast("Sequence[Any]", value if isinstance(value, tuple | list) else (value,))
        results = tuple(
            _wanted(view, homes[view.vertex])
            if isinstance(view, View) and view.vertex in made and view.vertex in homes
            else None
            for view in views
        )
        wishes[node] = Wish(vertex, wanted, results)
        wishes |= dict(_before_views(wishes[node], imported))
    return wishes


def imported_names(planned: Graph, imported: Graph) -> dict[str, str]:
    """The name under which each vertex of a plan was imported.

    One that rewriting has made is known by the first vertex that it was made for.
    """
    users = planned.users()
    names: dict[str, str] = {}
    for name in reversed([*planned]):
        later = (names[user] for user in users[name])
        names[name] = name if name in imported else next(later, name)
    return names


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
            at = _wanted(imported.views[before], wanted.of_vertex)
            yield node, Wish(wish.vertex, {before: at}, ())


def _is_view(node: fx.Node, imported: Imported) -> bool:
    """Whether a node shows the vertex of another, to one reader."""
    if imported.made.get(node) != () or len(node.users) != 1 or len(node.all_input_nodes) != 1:
        return False
    own, before = (imported.views.get(each) for each in (node, node.all_input_nodes[0]))
    return isinstance(own, View) and isinstance(before, View) and own.vertex == before.vertex


class _Readers:
    """The readers of each tensor in the plan, and the order in which operators were imported."""

    def __init__(self, imported: Imported, planned: Graph, operands: Operands) -> None:
        self.imported, self.graph, self.operands = imported, planned, operands
        self.known_as = imported_names(planned, imported.graph)
        self.order = {name: k for k, name in enumerate(imported.graph)}
        self.readers: dict[str, list[tuple[str, Placements]]] = defaultdict(list)
        for name, own in operands.items():
            for source, places in zip(planned[name].inputs, own, strict=True):
                if places is not None:
                    self.readers[source].append((name, places))

    def wanted_by(self, node: fx.Node, made: tuple[str, ...]) -> tuple[str, dict[fx.Node, Wanted]]:
        """The vertex that an operator belongs to, of those made for it, and how it reads."""
        kept = [name for name in made if name in self.operands]
        vertex = kept[-1] if kept else ""
        wanted: dict[fx.Node, Wanted] = {}
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
                places = (Replicate(),) * len(places)
            wanted[source] = _wanted(view, places)
        return vertex, wanted

    def _reader(self, tensor: str, made: tuple[str, ...]) -> tuple[str, Placements | None]:
        """The vertex for which an operator reads a tensor, and where that wants it."""
        start = min((self.order[name] for name in made if name in self.order), default=0)
        for name, places in self.readers.get(tensor, []):
            if self.known_as[name] in made:
                return self._behind_views(name, places, made)
        for name, places in self.readers.get(tensor, []):
            if self.order.get(self.known_as[name], -1) >= start:
                return name, places
        return "", None

    def _behind_views(
        self, name: str, places: Placements, made: tuple[str, ...]
    ) -> tuple[str, Placements]:
        """The reader itself, or whoever reads what that only shows in another shape."""
        for after, wanted in self.readers.get(name, []):
            back = _back(self.graph[name], wanted) if self.known_as[after] in made else None
            if back is not None:
                return self._behind_views(after, back, made)
        return name, places


def _back(vertex: Vertex, places: Placements) -> Placements | None:
    """The placements of a vertex's input, which it only shows, that give it these placements."""
    match vertex.op:
        case Reshape(before, after):
            pass
        case EinSum((own, *_), output, Arg(0), None):
            before, after = [(each,) for each in own], [(each,) for each in output]
        case _:
            return None
    outer = {group[0]: axis for axis, group in enumerate(before)}
    dims = {axis: outer[group[0]] for axis, group in enumerate(after) if group[0] in outer}
    return _along(places, dims)


def _along(places: Placements, dims: Mapping[int, int]) -> Placements | None:
    """The same placements along other dimensions; None where one is sharded that has no other."""
    moved: list[Placement] = []
    for own in places:
        if not isinstance(own, Shard | _StridedShard):
            moved.append(own)
        elif own.dim not in dims:
            return None
        else:
            moved.append(shard(dims[own.dim], getattr(own, "split_factor", 1)))
    return tuple(moved)


def shard(dim: int, split_factor: int) -> Placement:
    """A dimension cut into chunks, or into as many parts of each of `split_factor` chunks."""
    if split_factor == 1:
        return Shard(dim)
    return _StridedShard(dim, split_factor=split_factor)


def _wanted(view: View, places: Placements) -> Wanted:
    """Where an array is wanted if its vertex is wanted so.

    An axis inside a dimension of several cannot be cut alone: that is not one chunk.

    >>> from eindecomp.frontends.draft import DimFactor, View
    >>> import numpy as np
    >>> dims = ((DimFactor(4, 1),), (DimFactor(2, 0), DimFactor(3, 2)))
    >>> view = View("X", dims, np.dtype("float32"))
    >>> _wanted(view, (Shard(0), Shard(1))).of_array
    (Shard(dim=1), Shard(dim=0))
    """
    outermost = {dim[0].axis: place for place, dim in enumerate(view.dims) if dim}
    dims = {axis: place for axis, place in outermost.items() if axis is not None}
    return Wanted(view.vertex, places, _along(places, dims))
