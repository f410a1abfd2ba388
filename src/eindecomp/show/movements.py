"""What a plan reads and moves, in words: from which layout to which, and at what cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.graph.ops import Input
from eindecomp.layout.view import view_of
from eindecomp.planner.space.choices import decided_choices
from eindecomp.show.alternatives import held_cuts, plan_price
from eindecomp.show.words import cuts, layout, short

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.cut import Cut
    from eindecomp.layout.view import Dims, View
    from eindecomp.planner.costs.cost import Number
    from eindecomp.planner.costs.price import Price
    from eindecomp.planner.plan import Plan
    from eindecomp.show.rows import Row


def input_layouts(plan: Plan, rows: list[Row]) -> dict[str, str]:
    """Where inputs lie: at home, or in the layouts in which the shown vertices read them."""
    layouts: dict[str, dict[str, None]] = {}
    for row in rows:
        for k, source in enumerate(plan.graph[row.vertex].inputs):
            need = read_cut(plan, plan.graph[row.vertex], k)
            if not isinstance(plan.graph[source].op, Input) or not need:
                continue
            own = layouts.setdefault(source, {})
            words = _home_words(plan, source) if source in plan.given else _lies(plan, source, need)
            own[words] = None
    return {source: "; ".join(words) for source, words in layouts.items()}


def _home_words(plan: Plan, source: str) -> str:
    words = [_lies(plan, source, cut) for cut in plan.given[source].cuts]
    tied = f", as {plan.tie[source]} was left" if source in plan.tie else ""
    return "; also ".join(words) + tied


@dataclass(frozen=True, slots=True)
class Movement:
    """One movement: its cost, its description, and how many vertices have one like it."""

    cost: Number
    what: str
    times: int


def moves_of(plan: Plan, rows: list[Row]) -> Iterator[Movement]:
    """Every movement of the vertices that are shown."""
    edges: dict[str, list[tuple[str, int, Number]]] = {}
    for (maker, reader, k), cost in plan.costs.edges.items():
        edges.setdefault(reader, []).append((maker, k, cost))
    for row in rows:
        fetched = 0
        for maker, k, cost in edges.get(row.vertex, ()):
            fetched += cost
            if cost:
                yield Movement(cost, _fetch_words(plan, row.vertex, maker, k), row.times)
        if row.aggregate:
            yield Movement(row.aggregate, _reduce_words(plan, row), row.times)
        kept = row.join + row.repartition - fetched
        if row.second is not None and kept > 0:
            yield Movement(kept, f"{row.vertex} to its second layout: {row.second}", row.times)


def move_lines(plan: Plan, rows: list[Row]) -> list[tuple[str, str]]:
    """A line for every movement, the costliest first: what it costs and what it is."""
    moves = sorted(moves_of(plan, rows), key=lambda move: -move.cost * move.times)
    return [
        (
            short(move.cost, plan.objective) + (f" ×{move.times}" if move.times > 1 else ""),
            move.what,
        )
        for move in moves
    ]


def read_cuts(plan: Plan, name: str) -> Iterator[tuple[str, Cut]]:
    """The vertices that read a tensor, each with the layout in which it does."""
    for reader in plan.decisions:
        for k, source in enumerate(plan.graph[reader].inputs):
            if source == name and (cut := read_cut(plan, plan.graph[reader], k)) is not None:
                yield reader, cut


def read_cut(plan: Plan, reader: Vertex, k: int) -> Cut | None:
    """The layout in which a vertex reads an input; None if it never reads its elements."""
    view = view_of(plan.graph, reader)
    reads = decided_choices(view, plan.mesh, plan.decisions[reader.name]).reads[k]
    return None if reads is None else reads.cuts[0]


def nearest(price: Price, tensor: Vertex, held: tuple[Cut, ...], need: Cut) -> int:
    """Which of a tensor's layouts costs least to fetch it from, as it is needed."""
    if len(held) == 1:
        return 0
    return int(price.fetch(held, [need], tensor.dtype.itemsize)[:, 0].argmin())


def _lies(plan: Plan, name: str, cut: Cut) -> str:
    tensor = plan.graph[name]
    return layout(plan.mesh, tensor.labels, tensor.shape, cut)


def _fetch_words(plan: Plan, reader: str, maker: str, k: int) -> str:
    if plan.objective == "bound":
        return _repartition_words(plan, reader, maker, k)
    need, held = read_cut(plan, plan.graph[reader], k), held_cuts(plan, maker)
    assert need is not None  # noqa: S101 - fetching it costs something, so it is read
    source = "wherever it is"
    if held:
        at = nearest(plan_price(plan), plan.graph[maker], held, need)
        words = _lies(plan, maker, held[at])
        source = f"its second layout, {words}," if at else words
    return f"{maker} to {reader}: from {source} to {_lies(plan, maker, need)}"


def _repartition_words(plan: Plan, reader: str, maker: str, k: int) -> str:
    """A repartition in the paper's terms, by numbers of pieces alone."""
    tensor = plan.graph[maker]

    def words(name: str, view: View, dims: Dims | None) -> str:
        numbers = list(plan.parts[name].values())
        pieces = {
            label: 1 if (i := view.index(dim)) is None else numbers[i]
            for label, dim in zip(tensor.labels, dims or (), strict=True)
        }
        return cuts(pieces)

    made, read = view_of(plan.graph, tensor), view_of(plan.graph, plan.graph[reader])
    held, need = words(maker, made, made.output), words(reader, read, read.reads[k])
    return f"{maker} to {reader}: from {held} to {need}"


def _reduce_words(plan: Plan, row: Row) -> str:
    view = view_of(plan.graph, plan.graph[row.vertex])
    ways = cuts({view.labels[i]: row.parts[view.labels[i]] for i in view.aggregated})
    end = "" if plan.objective == "bound" else f"; result layout: {row.home}"
    return f"{row.vertex}: partial results over {ways} are reduced{end}"
