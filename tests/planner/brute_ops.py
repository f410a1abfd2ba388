"""Real movement by brute force for every kind of vertex, element by element.

As slow as it is general: every assignment, every home and every second layout is carried out by
`simulate` and its masks are compared.
"""

from __future__ import annotations

from itertools import product
from math import prod
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
from simulate import Site, has_all, label_sizes

from eindecomp import EinSum, Graph, Vertex
from eindecomp.graph.ops import Concat, Fill, Gather, Input, Reshape, ScatterAdd, Slice
from eindecomp.lang.scalar import used_args

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from simulate import Masks

REPLICATED = -1


def cuttable(vertex: Vertex) -> list[str]:
    """The labels along which the work of a vertex can be divided."""
    match vertex.op:
        case EinSum() as op:
            read = [label for k in used_args(op.join) for label in op.inputs[k]]
            found = [*op.output, *read]
        case Gather() as op:
            found = [*op.output]
        case ScatterAdd() as op:
            found = [*op.source, *op.index]
        case Concat() as op:
            found = [label for label in op.output if label != op.along]
        case Slice() as op:
            found = [
                label for label, window in zip(op.output, op.ranges, strict=True) if not window
            ]
        case Reshape() as op:
            # A piece of an inner label would be many small blocks.
            outer = {group[0] for group in op.groups}
            found = [group[0] for group in op.input if group[0] in outer]
        case Input() | Fill():
            raise AssertionError("inputs and fills are not computed by tiles")
    return list(dict.fromkeys(found))


def sites(graph: Graph, vertex: Vertex, axes: tuple[int, ...]) -> list[list[Site]]:
    """For every assignment that makes the most pieces, the vertex with each of its homes."""
    sizes = label_sizes(vertex, [graph[name].shape for name in vertex.inputs])
    labels = cuttable(vertex)
    rows: dict[tuple[int, ...], int] = {}
    for row in product(range(-1, len(labels)), repeat=len(axes)):
        cut = [
            prod(n for n, k in zip(axes, row, strict=True) if k == i) for i in range(len(labels))
        ]
        if all(n <= sizes[label] for n, label in zip(cut, labels, strict=True)):
            rows[row] = prod(cut)
    most = max(rows.values())
    return [list(_homes(graph, vertex, axes, labels, row)) for row, n in rows.items() if n == most]


def _homes(
    graph: Graph, vertex: Vertex, axes: tuple[int, ...], labels: list[str], row: tuple[int, ...]
) -> Iterator[Site]:
    def site(places: dict[int, int]) -> Site:
        decision = SimpleNamespace(assignment=row, places=places, second=None)
        plan = SimpleNamespace(
            graph=graph,
            mesh=SimpleNamespace(sizes=axes),
            parts={vertex.name: dict.fromkeys(labels)},
            decisions={vertex.name: decision},
        )
        return Site(plan, vertex)  # pyright: ignore[reportArgumentType]

    summed = site({}).summed
    for chosen in product(range(REPLICATED, len(vertex.shape)), repeat=len(summed)):
        places = dict(zip(summed, chosen, strict=True))
        if _fits(site(places), axes, places):
            yield site(places)


def _fits(site: Site, axes: tuple[int, ...], places: dict[int, int]) -> bool:
    """Whether no dimension of the home has more pieces than elements."""
    for k, (label, size) in enumerate(zip(site.kept, site.vertex.shape, strict=True)):
        cut_by = [a for a in site.summed if places[a] == k]
        if cut_by:
            own = [] if label is None else site.axes_of[label]
            if prod(axes[a] for a in (*own, *cut_by)) > size:
                return False
    return True


def computed(graph: Graph) -> dict[str, Vertex]:
    """The vertices that are computed by tiles."""
    return {n: v for n, v in graph.vertices.items() if not isinstance(v.op, Input | Fill)}


def plans(graph: Graph, axes: tuple[int, ...]) -> int:
    """How many assignments there are of all vertices together."""
    return prod(len(sites(graph, vertex, axes)) for vertex in computed(graph).values())


def brute_ops(graph: Graph, axes: tuple[int, ...], inputs: str) -> int:
    """The least bytes of all plans."""
    made = computed(graph)
    rows = {name: sites(graph, vertex, axes) for name, vertex in made.items()}
    total = np.zeros([len(own) for own in rows.values()], np.int64)
    for tensor in graph.vertices.values():
        readers = [
            (n, k) for n, v in made.items() for k, x in enumerate(v.inputs) if x == tensor.name
        ]
        readers = [(n, k) for n, k in readers if rows[n][0][0].needs[k] is not None]
        free = isinstance(tensor.op, Fill) or (tensor.name not in made and inputs == "free")
        involved = [n for n in made if n == tensor.name or n in dict(readers)]
        if free or not involved:
            continue
        table = np.zeros([len(rows[n]) for n in involved], np.int64)
        for at in np.ndindex(table.shape):
            picked = {n: rows[n][i] for n, i in zip(involved, at, strict=True)}
            needs = [picked[n][0].needs[k] for n, k in readers]
            table[at] = _least(tensor, picked.get(tensor.name), needs)
        total += table.reshape([len(rows[n]) if n in involved else 1 for n in made])
    return int(total.min())


def _least(tensor: Vertex, own: list[Site] | None, needs: Sequence[Masks]) -> int:
    """The fewest bytes that reduce a tensor, keep it and hand it to its readers."""
    wanted = [np.array(need) for need in needs]
    item = tensor.dtype.itemsize
    if own is None:
        return item * sum(int(need.sum() - need.any(axis=0).sum()) for need in wanted)
    best: list[int] = []
    for site in own:
        home = np.array(site.home)
        fetched = [_lacking(need, home) for need in wanted]
        least = sum(fetched)
        for second in wanted:
            again = [
                _lacking(need, second) if has_all(second, need) else at_home
                for need, at_home in zip(wanted, fetched, strict=True)
            ]
            least = min(least, _lacking(second, home) + sum(map(min, fetched, again)))
        best.append(site.reduced() + item * least)
    return min(best)


def _lacking(need: np.ndarray, held: np.ndarray) -> int:
    return int((need & ~held).sum())
