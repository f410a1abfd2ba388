"""The cheapest way from one layout of a tensor to another by collectives along mesh axes.

Layouts are nodes, collectives are edges, and A* finds the path of the fewest elements, then of the
fewest collectives. Its estimate of what is left is what no schedule can undercut, so the path found
is the least of the space. That has every layout of the mesh that cuts a dimension by axes, each
used once, and between them:

- all-gather: the innermost axes of a dimension no longer cut it;
- slice: an axis that replicates cuts a dimension, innermost; nothing moves;
- all-to-all: the innermost axes of a dimension cut another one instead, innermost;
- permute: every device's tile goes to one other device: axes of a dimension change their order, or
  one takes the place of another of its size;
- reduce-scatter: a pending axis is reduced and cuts a dimension, innermost;
- all-reduce: pending axes are reduced and replicate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import combinations, count, permutations

from eindecomp.layout.cut import Axes, Cut, axes_in, bits_of, pieces_by, used_axes
from eindecomp.layout.mesh import Mesh, can_cut
from eindecomp.layout.overlaps import moved, totals
from eindecomp.layout.tiling import Tiling
from eindecomp.tra.redistribution.phases import (
    Fetch,
    Gather,
    Held,
    Phase,
    Reduce,
    least_elements,
    tiles,
)

REACHED = 10_000  # layouts that collectives lead to, in a second or two
_REORDERED = 4  # the most axes of a dimension whose every order is tried

Tally = tuple[int, int]
"""Elements, then collectives."""


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective of all devices, in groups along mesh axes."""

    kind: str
    axes: Axes
    before: Held
    after: Held

    def phases(self, mesh: Mesh) -> tuple[Phase, ...]:
        """What devices exchange in it."""
        axes, cut = bits_of(self.axes), self.after.cut
        match self.kind:
            case "reduce-scatter":
                return (Reduce(mesh, tiles(mesh, Tiling(cut)), axes),)
            case "all-reduce":
                shared = tiles(mesh, Tiling(cut, axes))
                return Reduce(mesh, shared, axes), Gather(mesh, shared, axes, cut)
            case _:
                return (Fetch(mesh, self.before.cut, cut),)


def cheapest(mesh: Mesh, source: Held, target: Held) -> tuple[Collective, ...] | None:
    """The collectives that move the least; None where the layouts are too many to look at."""
    numbers = count()
    found: dict[Held, Tally] = {source: (0, 0)}
    paths: dict[Held, tuple[Collective, ...]] = {source: ()}
    left = {source: least_elements(mesh, source, target)}
    queue = [((left[source], 0), next(numbers), source)]
    done: set[Held] = set()
    while queue and len(left) < REACHED:
        _, _, state = heappop(queue)
        if state in done:
            continue
        if state == target:
            return paths[target]
        done.add(state)
        edges = [each for each in _collectives(mesh, state, target) if each.after not in done]
        _estimate(mesh, [each.after for each in edges], target, left)
        elements, steps = found[state]
        for edge, more in zip(edges, _elements(mesh, state, edges), strict=True):
            tally = elements + more, steps + 1
            if edge.after not in found or tally < found[edge.after]:
                found[edge.after], paths[edge.after] = tally, (*paths[state], edge)
                ahead = tally[0] + left[edge.after], tally[1]
                heappush(queue, (ahead, next(numbers), edge.after))
    return None


def _estimate(mesh: Mesh, states: Sequence[Held], target: Held, left: dict[Held, int]) -> None:
    """Note for each layout the least that is still to move from it."""
    new = [state for state in dict.fromkeys(states) if state not in left]
    whole = [state for state in new if state.pending == target.pending]
    if whole:
        table = moved(mesh, [state.cut for state in whole], [target.cut])[:, 0]
        left.update(zip(whole, table.tolist(), strict=True))
    for state in new:
        if state.pending != target.pending:
            left[state] = least_elements(mesh, state, target)


def _elements(mesh: Mesh, state: Held, edges: Sequence[Collective]) -> list[int]:
    """What each collective moves, in elements that devices receive."""
    if not edges:
        return []
    cuts = [edge.after.cut for edge in edges]
    fetched, held = moved(mesh, [state.cut], cuts)[0].tolist(), totals(mesh, cuts).tolist()
    elements: list[int] = []
    for edge, fetch, total in zip(edges, fetched, held, strict=True):
        others = pieces_by(mesh, edge.axes) - 1
        match edge.kind:
            case "reduce-scatter":
                elements.append(others * total)
            case "all-reduce":
                elements.append(2 * others * total // (others + 1))
            case _:
                elements.append(fetch)
    return elements


def _collectives(mesh: Mesh, state: Held, target: Held) -> Iterator[Collective]:
    """Every collective from a layout that changes it."""
    cut, pending = state
    for kind, axes, to in _movements(mesh, state, target):
        if to != cut:
            yield Collective(kind, axes, state, Held(to, pending))
    reduced = axes_in(mesh, pending & ~target.pending)
    for axis in reduced:
        for dim in range(len(cut)):
            if (to := _appended(mesh, cut, dim, (axis,))) is not None:
                after = Held(to, pending & ~(1 << axis))
                yield Collective("reduce-scatter", (axis,), state, after)
    for some in (axes for n in range(len(reduced)) for axes in combinations(reduced, n + 1)):
        yield Collective("all-reduce", some, state, Held(cut, pending & ~bits_of(some)))


def _movements(mesh: Mesh, state: Held, target: Held) -> Iterator[tuple[str, Axes, Cut]]:
    """The collectives that reduce nothing: kind, axes, and the cut that they lead to."""
    cut, pending = state
    free = [a for a in range(len(mesh.sizes)) if not (used_axes(cut) | pending) >> a & 1]
    for dim, span in enumerate(cut):
        for inner in range(1, len(span.axes) + 1):
            moving = span.axes[-inner:]
            without = _with(cut, dim, span.axes[:-inner])
            yield "all-gather", moving, without
            for other in (d for d in range(len(cut)) if d != dim):
                if (to := _appended(mesh, without, other, moving)) is not None:
                    yield "all-to-all", moving, to
        for axis in free:
            if (to := _appended(mesh, cut, dim, (axis,))) is not None:
                yield "slice", (axis,), to
    for to in _permuted(mesh, cut, free):
        yield "permute", crossed(cut, to), to
    if _same_tiles(mesh, cut, target.cut) and not used_axes(target.cut) & pending:
        yield "permute", crossed(cut, target.cut), target.cut


def _with(cut: Cut, dim: int, axes: Axes) -> Cut:
    """A cut that these axes cut a dimension of."""
    return (*cut[:dim], cut[dim]._replace(axes=axes), *cut[dim + 1 :])


def _appended(mesh: Mesh, cut: Cut, dim: int, axes: Axes) -> Cut | None:
    """A cut with axes added to a dimension, innermost; None if the mesh cannot cut it so."""
    together = (*cut[dim].axes, *axes)
    if mesh.cuts_evenly and not can_cut(mesh.pieces, cut[dim].units, pieces_by(mesh, together)):
        return None
    return _with(cut, dim, together)


def _permuted(mesh: Mesh, cut: Cut, free: Sequence[int]) -> Iterator[Cut]:
    """The cuts into equal tiles that lie on other devices."""
    for dim, span in enumerate(cut):
        if len(span.axes) <= _REORDERED and span.units % pieces_by(mesh, span.axes) == 0:
            yield from (_with(cut, dim, order) for order in permutations(span.axes))
        for place, axis in enumerate(span.axes):
            for other in free:
                if mesh.sizes[other] == mesh.sizes[axis]:
                    axes = (*span.axes[:place], other, *span.axes[place + 1 :])
                    yield _with(cut, dim, axes)
    for one, other in combinations(axes_in(mesh, used_axes(cut)), 2):
        if mesh.sizes[one] == mesh.sizes[other]:
            to = {one: other, other: one}
            yield tuple(span._replace(axes=tuple(to.get(a, a) for a in span.axes)) for span in cut)


def _same_tiles(mesh: Mesh, one: Cut, other: Cut) -> bool:
    """Whether two cuts have the same tiles, on whichever devices."""
    for own, theirs in zip(one, other, strict=True):
        parts, sizes = pieces_by(mesh, own.axes), [mesh.sizes[axis] for axis in own.axes]
        is_equal = parts == pieces_by(mesh, theirs.axes) and own.units % parts == 0
        if not is_equal and sizes != [mesh.sizes[axis] for axis in theirs.axes]:
            return False
    return True


def crossed(one: Cut, other: Cut) -> Axes:
    """The axes that cut something else, or at another place, in one cut than in the other."""
    axes: set[int] = set()
    for own, theirs in zip(one, other, strict=True):
        same = 0
        while own.axes[: same + 1] == theirs.axes[: same + 1] and same < len(own.axes):
            same += 1
        axes.update(own.axes[same:], theirs.axes[same:])
    return tuple(sorted(axes))
