"""What the fullest device holds, and the least bytes moved within a limit, by brute force.

Written from the definitions alone, with nothing of the planner in it, for graphs of EinSums that
are computed one vertex after another. A piece that is read is a copy, unless what its device holds
of the tensor anyway contains it: then it is a view. Inputs that have a home are held there all the
time, tied ones until they are last read, and in their second layout while they are read.

Once all assignments are picked every home is for itself, so what can be done about each is listed
as bytes moved and bytes held at every step, and of what all do together the best is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import inf, prod
from typing import TYPE_CHECKING, NamedTuple

from brute_bound import made
from brute_bytes import Axes, Box, Layout, boxes, partial_width, pieces, received, volume
from brute_ordered import NestedLayouts
from nested_layouts import ANY, dealt, fits

if TYPE_CHECKING:
    from tabulated_plans import Row

    from eindecomp import Graph, Vertex
    from eindecomp.planner.plan import Plan

Shape = tuple[int, ...]
Reads = list[tuple[int, Layout]]
"""The step and the layout of every reading."""


class Way(NamedTuple):
    """The bytes that something moves, and what the fullest device holds for it at every step."""

    moved: int
    held: tuple[int, ...]

    def __add__(self, other: Way) -> Way:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Way(
            self.moved + other.moved,
            tuple(a + b for a, b in zip(self.held, other.held, strict=True)),
        )


class Lies(NamedTuple):
    """Where a tensor lies."""

    home: Layout
    second: Layout | None = None

    @property
    def layouts(self) -> list[Layout]:
        return [self.home] if self.second is None else [self.home, self.second]


class Setting(NamedTuple):
    """A graph on a mesh, and what is said about its inputs."""

    graph: Graph
    axes: Axes
    inputs: str = "free"
    tie: Mapping[str, str] = {}
    order: str = ANY


def fullest(shape: Shape, layout: Layout, axes: Axes) -> int:
    return max(map(volume, boxes(shape, layout, axes)))


def contains(outer: Box, inner: Box) -> bool:
    sides = zip(outer, inner, strict=True)
    return all(a[0] <= b[0] and b[1] <= a[1] for a, b in sides) or not volume(inner)


def copy(shape: Shape, held: Layout, need: Layout, axes: Axes) -> int:
    """The elements of the fullest device's copy where one layout is held and another is needed."""
    pairs = zip(boxes(shape, held, axes), boxes(shape, need, axes), strict=True)
    return max(0 if contains(own, need) else volume(need) for own, need in pairs)


def readings(setting: Setting, rows: Mapping[str, Row]) -> dict[str, Reads]:
    """For each tensor who reads it, if vertices are assigned so."""
    found: dict[str, Reads] = {name: [] for name in setting.graph.vertices}
    for step, (name, row) in enumerate(rows.items()):
        for source, need in zip(setting.graph[name].inputs, row.needs, strict=True):
            if need is not None:
                found[source].append((step, need))
    return found


def tensor_way(setting: Setting, steps: Sequence[str], name: str, lies: Lies, reads: Reads) -> Way:
    """What keeping a tensor and handing it to its readers moves and holds."""
    vertex, axes, end = setting.graph[name], setting.axes, len(steps)
    shape, item = vertex.shape, vertex.dtype.itemsize
    at = [step for step, _ in reads]
    if name in steps:
        now = steps.index(name)
        is_output = name in {v.name for v in setting.graph.outputs}
        stop = end if is_output else max([now, *at]) + 1
        home, second = range(now, stop), range(now + 1, stop)
    else:
        home = range(max(at) + 1 if name in setting.tie else end)
        second = range(min(at), max(at) + 1)
    held = [0] * end
    moved = sum(min(received(shape, own, need, axes) for own in lies.layouts) for _, need in reads)
    for step in home:
        held[step] += fullest(shape, lies.home, axes)
    if lies.second is not None:
        moved += received(shape, lies.home, lies.second, axes)
        for step in second:
            held[step] += fullest(shape, lies.second, axes)
    for step, need in reads:
        held[step] += min(copy(shape, own, need, axes) for own in lies.layouts)
    return Way(item * moved, tuple(item * n for n in held))


def free_way(setting: Setting, steps: Sequence[str], name: str, reads: Reads) -> Way:
    """A free input: one piece for all who can use it, and a lasting copy for each who cannot."""
    vertex, axes = setting.graph[name], setting.axes
    whole = [fullest(vertex.shape, need, axes) for _, need in reads]
    shared = [
        fullest(vertex.shape, own, axes) + sum(copy(vertex.shape, own, n, axes) for _, n in reads)
        for _, own in reads
    ]
    least = vertex.dtype.itemsize * min([sum(whole), *shared])
    return Way(0, (least,) * len(steps))


def reducing(vertex: Vertex, row: Row, axes: Axes) -> int:
    """Bytes beside the result while partial ones are reduced: they, and two of the blocks.

    A block is what one device reduces: its part of the result, or where several keep the same part
    a share of that, cut along its longest side; in whichever home that is largest.
    """
    tile, summed = row.made
    if not summed:
        return 0
    largest = 0
    for inner in dealt(tuple(sorted(summed)), len(vertex.shape), ANY):
        home = tuple(own + more for own, more in zip(tile, inner, strict=True))
        if fits(vertex.shape, home, axes):
            copies = pieces(axes, summed) // pieces(axes, sum(inner, ()))
            for box in boxes(vertex.shape, home, axes):
                sides = sorted(high - low for low, high in box)
                longest = sides.pop() if sides else 1
                largest = max(largest, prod(sides) * -(-longest // copies))
    elements = partial_width(vertex) * (fullest(vertex.shape, tile, axes) + 2 * largest)
    return vertex.dtype.itemsize * elements


def working(setting: Setting, rows: Mapping[str, Row]) -> Way:
    """What the steps hold besides, while they reduce."""
    extra = [reducing(setting.graph[name], row, setting.axes) for name, row in rows.items()]
    return Way(0, tuple(extra))


def has_home(setting: Setting, name: str) -> bool:
    """Whether an input is stored somewhere."""
    return setting.inputs == "sharded" or name in setting.tie


def best_ways(ways: Iterable[Way]) -> list[Way]:
    """Those that no other beats in everything."""
    found: list[Way] = []
    for way in sorted(set(ways), key=lambda w: (w.moved, sum(w.held))):
        if not any(all(a <= b for a, b in zip(o.held, way.held, strict=True)) for o in found):
            found.append(way)
    return found


def owner_ways(
    setting: Setting, rows: Mapping[str, Row], owner: str, reading: Mapping[str, Reads]
) -> list[Way]:
    """What can be done about a home, with all tensors that lie there."""
    graph, steps = setting.graph, list(rows)
    space = NestedLayouts(graph, setting.axes, setting.order)
    reduced: dict[Layout, float] = (
        space.homes(graph[owner], rows[owner].made)
        if owner in rows
        else dict.fromkeys(space.stored(graph[owner]), 0.0)
    )
    tied = [w for w, result in setting.tie.items() if result == owner and reading[w]]
    found: list[Way] = []
    for home, moved in reduced.items():
        ways = [Way(int(moved), (0,) * len(steps))]
        for name in (owner, *tied):
            wanted = [need for _, need in reading[name]]
            seconds = [None, *dict.fromkeys(wanted)] if len(wanted) > 1 else [None]
            own = [
                tensor_way(setting, steps, name, Lies(home, second), reading[name])
                for second in seconds
            ]
            ways = best_ways(a + b for a in ways for b in own)
        found += ways
    return best_ways(found)


def frontier(setting: Setting) -> list[tuple[int, int]]:
    """The plans that no other beats in both memory and bytes moved: (peak, bytes), peaks rising."""
    least: dict[int, int] = {}
    for rows in every_assignment(setting):
        reading = readings(setting, rows)
        ways = [working(setting, rows)]
        for name in setting.graph.vertices:
            if name in rows or (has_home(setting, name) and name not in setting.tie):
                if name not in rows and not reading[name]:
                    continue
                own = owner_ways(setting, rows, name, reading)
            elif name not in setting.tie:
                own = [free_way(setting, list(rows), name, reading[name])]
            else:
                continue
            ways = best_ways(a + b for a in ways for b in own)
        for way in ways:
            most = max(way.held, default=0)
            least[most] = min(way.moved, least.get(most, way.moved))
    found: list[tuple[int, int]] = []
    for most, cost in sorted(least.items()):
        if cost < (found[-1][1] if found else inf):
            found.append((most, cost))
    return found


def assignments(setting: Setting) -> int:
    """How many assignments there are of all vertices together."""
    space = NestedLayouts(setting.graph, setting.axes, setting.order)
    return prod(len(list(space.rows(vertex))) for vertex in made(setting.graph))


def every_assignment(setting: Setting) -> Iterable[dict[str, Row]]:
    """Every choice of assignments for all vertices."""
    space = NestedLayouts(setting.graph, setting.axes, setting.order)
    rows = {v.name: list(space.rows(v)) for v in made(setting.graph)}
    return (dict(zip(rows, picked, strict=True)) for picked in product(*rows.values()))


def plan_way(plan: Plan) -> Way:
    """What a plan moves, not counting what is reduced, and holds at every step."""
    graph, axes = plan.graph, plan.mesh.sizes
    setting = Setting(graph, axes, plan.inputs, plan.tie)
    space = NestedLayouts(graph, axes)
    rows: dict[str, Row] = {}
    for name, decision in plan.decisions.items():
        axes_of = dict(zip(plan.parts[name], decision.assignment, strict=True))
        rows[name] = space.row(graph[name], axes_of)
    reading = readings(setting, rows)
    total = working(setting, rows)
    for name, reads in reading.items():
        own = plan.decisions.get(name) or plan.given.get(name)
        if own is not None and (reads or name in rows):
            cuts = [None if cut is None else layout(cut) for cut in (own.home, own.second)]
            lies = Lies(cuts[0] or (), cuts[1])
            total += tensor_way(setting, list(rows), name, lies, reads)
        elif own is None:
            total += free_way(setting, list(rows), name, reads)
    return total


def layout(cut: Iterable[object]) -> Layout:
    """A layout of the plan in these terms."""
    return tuple(tuple(span.axes) for span in cut)  # pyright: ignore[reportAttributeAccessIssue]
