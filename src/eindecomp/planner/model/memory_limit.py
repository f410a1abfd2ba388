"""The memory limit: what the fullest device must hold at each step, one vertex after another.

At its step, a vertex holds the tile it makes and copies of the pieces it reads. Its result is held
from then until its last reader, an output until the end. A piece that lies inside what the device
holds of that tensor anyway, in its home or in its second layout, is a view and needs no copy; any
other piece is assembled as a whole, because a kernel reads one array. Inputs are held throughout,
tied ones until their last reader: those that have a home in that layout, and in the second one
while it is read; free ones as one piece that readers share, with a lasting copy for each reader
that needs another one. Each amount is that of the fullest device, and at every step their sum must
stay within the limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill, Input
from eindecomp.graph.turns import Turns
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.work import partial_bytes, partial_types, reducing_bytes
from eindecomp.lang.einsum import EinSum
from eindecomp.layout.cut import (
    Cut,
    Span,
    bits_of,
    combined,
    largest_side,
    parts_of,
    pending_in,
    turns_of,
)
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.overlaps import fullest
from eindecomp.layout.view import dim_parts, is_planned, tile_sides
from eindecomp.planner.costs.parts import copied_in_parts
from eindecomp.planner.model.movement import MovementModel, Site
from eindecomp.planner.space.choices import Choices, summed_axes
from eindecomp.planner.space.layout_rules import LayoutRules
from eindecomp.solve.problem.arrays import Ints, Mask, infinite_where

Cuts = tuple[Cut, ...]


Steps = tuple[int, int]
"""The first step and the one after the last."""


class Held(NamedTuple):
    """A variable that chooses one of these layouts of a tensor."""

    variable: int
    cuts: Cuts
    optional: bool = False
    """Whether its choice 0 is to have none."""


@dataclass(frozen=True, slots=True, eq=False)
class Copies:
    """The states that a reader can be in: how much of a piece it holds as a copy of its own.

    First come whole pieces up to some size, then states that take less, because one of the tensor's
    own layouts already holds some of the pieces.
    """

    amount: Ints
    fits: Mask
    """Pieces × states: for which pieces a state suffices."""
    allowed: tuple[Mask, ...]
    """For each variable that chooses layouts, its choices × states: which it makes possible."""


def add_usage(model: MovementModel) -> int:
    """Tell the model what every choice holds and when; returns what is held whatever is chosen.

    The model must have been built with `apart`: a home needs a variable of its own.
    """
    lives = Lifetimes.of(model.graph, model.rules)
    turns = {name: (own, lives.span(own)) for own in model.rules.turns for name in own.labels}
    for name, now in lives.steps.items():
        site, held = model.sites[name], lives.held[name]
        homes = _items(model, site) * _fullest(model, site.choices.homes)
        if name in turns:
            own, (start, stop) = turns[name]
            homes = _add_in_turns(model, site, homes, own, (start, stop))
            held = (start, max(held[1], stop))
        else:
            model.tables.use(model.assign[name], _working(model, site), now, now + 1)
        model.tables.use(model.home[name], homes, *held)
        _add_second(model, name, now + 1, held[1])
    for vertex in model.graph.inputs:
        _add_input(model, vertex, lives)
    end = len(lives.steps)
    for name, reading in _readers(model).items():
        layouts = _add_held(model, model.graph[name], reading, end)
        for site, k in reading:
            now = lives.steps[site.vertex.name]
            life = (now, now + 1)
            if site.vertex.name in turns:
                own, life = turns[site.vertex.name]
                if own.divides(model.graph, site.vertex.name, k):
                    continue  # `_add_in_turns` has counted it
            lasts = not model.rules.has_home(model.graph[name])
            _add_copy(model, site, k, layouts, (0, end) if lasts else life)
    always = 0
    for vertex in model.graph.outputs:
        if isinstance(vertex.op, Fill):  # a device makes a share of it along its longest side
            longest = max(vertex.shape, default=1)
            share = -(-longest // model.price.mesh.devices)
            always += vertex.dtype.itemsize * (vertex.elements // max(longest, 1)) * share
    return always


def _add_in_turns(model: MovementModel, site: Site, homes: Ints, turns: Turns, life: Steps) -> Ints:
    """Add what is held for a vertex in turns; returns what is held in each home meanwhile.

    An operand that is read part by part is divided first, which takes a copy of it. A result of
    which each turn makes a part is put together at the end, from as much beside it; one that is
    summed grows by the result of each turn, in the type in which it accumulates.
    """
    name, rules, choices = site.vertex.name, model.rules, site.choices
    most, label = rules.turn_bytes, turns.labels[name]
    flags = 1 << len(site.shared)
    working = _working(model, site)
    if label in site.vertex.labels:
        cuts = _cuts_of(choices, label)
        working = _in_turns(model, [cut for cut in cuts for _ in range(flags)], 0, working, most)
    charged = {readers[0] for readers in turns.divided(model.graph).values()}  # all read it alike
    for k, (source, reads) in enumerate(zip(site.vertex.inputs, choices.reads, strict=True)):
        if reads is None or not turns.divides(model.graph, name, k):
            continue
        item = model.graph[source].dtype.itemsize
        whole = item * _fullest(model, reads.cuts)
        op = site.vertex.op
        assert isinstance(op, EinSum)  # noqa: S101 - only those are computed in turns
        parts = _in_turns(model, reads.cuts, op.inputs[k].index(label), whole, most)
        is_made = isinstance(model.graph[source].op, Fill) or source in turns.labels
        size = parts if is_made else whole + parts if (name, k) in charged else 0 * whole
        working = working + np.repeat(size[reads.of], flags)
    if name in turns.outputs:
        wide = sum(dtype.itemsize for dtype in partial_types(model.graph, site.vertex))
        view = choices.view
        tile = tile_sides(view.output, dim_parts(view, view.output, choices.parts)).prod(axis=1)
        item = site.vertex.dtype.itemsize
        beside = item if label in site.vertex.labels else 3 * wide - item
        working = working + np.repeat(beside * tile, flags)
    else:
        at = site.vertex.labels.index(label)
        homes = _in_turns(model, choices.homes, at, homes, most)
    model.tables.use(model.assign[name], working, *life)
    return homes


def _cuts_of(choices: Choices, label: str) -> list[Cut]:
    """How each assignment cuts a label, alone."""
    at = choices.view.labels.index(label)
    size = choices.view.sizes[at]
    return [(Span(own[at], size, 1, 0, size),) for own in choices.assignments]


def _in_turns(model: MovementModel, cuts: Sequence[Cut], at: int, sizes: Ints, most: int) -> Ints:
    """What is there of each layout in one turn, if turns divide a dimension."""
    mesh = model.price.mesh
    counts = [turns_of(mesh, cut[at], n, most) for cut, n in zip(cuts, sizes.tolist(), strict=True)]
    return -(-sizes // np.array(counts, dtype=np.int64))


def _add_input(model: MovementModel, vertex: Vertex, lives: Lifetimes) -> None:
    """The layouts of an input that has a home."""
    name = vertex.name
    if model.maker(name) not in model.sites:
        return
    if name in lives.read:
        _add_second(model, name, *lives.read[name])
    if name in lives.held:
        holder = model.holder(name)
        homes = vertex.dtype.itemsize * _fullest(model, holder.homes)
        model.tables.use(holder.variable, homes, *lives.held[name])


def _add_second(model: MovementModel, name: str, start: int, stop: int) -> None:
    """The second layout of a tensor, while it is held."""
    if name in model.second:
        sizes = model.graph[name].dtype.itemsize * _fullest(model, model.second_layouts[name])
        model.tables.use(model.second[name], np.append(0, sizes), start, stop)


def _items(model: MovementModel, site: Site) -> Ints:
    """The bytes of an element in each home; parts are held in their own type."""
    item, state = site.vertex.dtype.itemsize, partial_bytes(model.graph, site.vertex)
    return np.array([item if pending_in(h) is None else state for h in site.choices.homes])


def _fullest(model: MovementModel, cuts: Cuts) -> Ints:
    """The elements of each cut on the fullest device; equal layers have the same cuts."""
    return model.once(("fullest", id(cuts)), lambda: fullest(model.price.mesh, cuts))


def _working(model: MovementModel, site: Site) -> Ints:
    """What a choice holds beside the result: partial results, and the pieces of fills.

    Reducing takes two blocks more: the sum so far, and what has just arrived.
    """
    view, parts = site.choices.view, site.choices.parts
    tile = tile_sides(view.output, dim_parts(view, view.output, parts)).prod(axis=1)
    summed = parts[:, list(view.aggregated)].prod(axis=1) > 1
    types = partial_types(model.graph, site.vertex)
    state = sum(dtype.itemsize for dtype in types)
    reducing = reducing_bytes(model.graph, site.vertex, types)
    key = ("shares", id(site.choices))
    shares = model.once(key, lambda: _largest_shares(site.choices))
    total = np.where(summed, state * tile + reducing * shares, 0)
    for name, reads in zip(site.vertex.inputs, site.choices.reads, strict=True):
        source = model.graph[name]
        if reads is not None and isinstance(source.op, Fill):
            total = total + source.dtype.itemsize * _fullest(model, reads.cuts)[reads.of]
    return np.repeat(total, 1 << len(site.shared))


def _largest_shares(choices: Choices) -> Ints:
    """The elements that a device reduces, for each assignment, in whichever home they are most."""
    mesh = choices.mesh
    largest = np.zeros(len(choices.assignments), dtype=np.int64)
    for (a, h), places in choices.places.items():
        sides = [largest_side(mesh, span) for span in choices.homes[h]]
        scattered = sum(bits_of(own) for own in places)
        summed = summed_axes(choices.view, choices.assignments[a])
        copies = parts_of(mesh, summed & ~scattered)
        longest = max(sides, default=1)
        share = prod(sides) // max(longest, 1) * -(-longest // copies)
        largest[a] = max(largest[a], share)
    return largest


# Inputs


def _readers(model: MovementModel) -> dict[str, list[tuple[Site, int]]]:
    """For each tensor that is held: its readers, and as which input."""
    readers: dict[str, list[tuple[Site, int]]] = {}
    for site in model.sites.values():
        for k, (name, reads) in enumerate(zip(site.vertex.inputs, site.choices.reads, strict=True)):
            if reads is not None and not isinstance(model.graph[name].op, Fill):
                readers.setdefault(name, []).append((site, k))
    return readers


def _add_held(
    model: MovementModel, vertex: Vertex, reading: Sequence[tuple[Site, int]], end: int
) -> tuple[Held, ...]:
    """The layouts in which a tensor is held; free inputs throughout."""
    name = vertex.name
    if model.maker(name) in model.sites:
        holder = model.holder(name)
        home = Held(holder.variable, holder.homes)
        if name not in model.second:
            return (home,)
        return home, Held(model.second[name], model.second_layouts[name], optional=True)
    if len(reading) == 1:
        return ()  # whatever its one reader wants
    wanted = [site.choices.reads[k] for site, k in reading]
    cuts = tuple(dict.fromkeys(combined(cut) for reads in wanted if reads for cut in reads.cuts))
    if not cuts:
        return ()
    variable = model.tables.variable(np.zeros(1 + len(cuts), dtype=np.int64))
    sizes = vertex.dtype.itemsize * _fullest(model, cuts)
    model.tables.use(variable, np.append(0, sizes), 0, end)
    return (Held(variable, cuts, optional=True),)


# Copies


def _add_copy(
    model: MovementModel, site: Site, k: int, held: tuple[Held, ...], life: tuple[int, int]
) -> None:
    """A variable for what one reader holds of an input in addition to the input's own layouts."""
    reads = site.choices.reads[k]
    assert reads is not None  # noqa: S101 - only inputs that are read come here
    tables = model.tables
    item = model.graph[site.vertex.inputs[k]].dtype.itemsize
    layouts = tuple((each.cuts, each.optional) for each in held)
    copies = _copies(model.price.mesh, layouts, reads.cuts)
    own = tables.variable(np.zeros(len(copies.amount), dtype=np.int64))
    tables.use(own, item * copies.amount, *life)
    flags = 1 << len(site.shared)
    zero = np.zeros((1, 1), dtype=np.int64)
    key = (layouts, reads.cuts)
    tables.table(
        (model.assign[site.vertex.name], own), (*key, id(site.choices), k, flags),
        lambda: infinite_where(~copies.fits[np.repeat(reads.of, flags)], zero),
    )  # fmt: skip
    for kind, (variable, _, _) in enumerate(held):
        tables.table(
            (variable, own), (*key, kind),
            lambda kind=kind: infinite_where(~copies.allowed[kind], zero),
        )  # fmt: skip


@lru_cache(maxsize=1 << 12)
def _copies(mesh: Mesh, held: tuple[tuple[Cuts, bool], ...], needed: Cuts) -> Copies:
    """The states of a reader that needs one of these pieces while one of these layouts is held."""
    whole = fullest(mesh, needed)
    sizes: list[int] = np.unique(whole).tolist()
    states = [_State(size, whole <= size) for size in sizes]
    allowed: list[Mask] = []
    for kind, (cuts, optional) in enumerate(held):
        states += _views(kind, copied_in_parts(mesh, cuts, needed), whole, optional)
    for kind, (cuts, optional) in enumerate(held):
        every = np.ones(len(cuts) + optional, dtype=bool)
        columns = [state.leaves if state.kind == kind else every for state in states]
        allowed.append(np.stack(columns, axis=1))
    amounts = np.array([state.amount for state in states], dtype=np.int64)
    return Copies(amounts, np.stack([state.fits for state in states], axis=1), tuple(allowed))


class _State(NamedTuple):
    """An amount that suffices for some pieces, under some choices of one variable, or under any."""

    amount: int
    fits: Mask
    kind: int = -1
    leaves: Mask = np.ones(0, dtype=bool)


def _views(kind: int, left: Ints, whole: Ints, optional: bool) -> Iterator[_State]:
    """The states in which a layout holds a piece or a part of it; `left` must be copied."""
    columns, of = np.unique(left, axis=1, return_inverse=True)
    for i, column in enumerate(columns.T):
        alike = of.reshape(-1) == i  # pieces of which every layout leaves the same to copy
        for amount in np.unique(column[column < whole[alike].max()]).tolist():
            enough = column <= amount
            yield _State(amount, alike, kind, np.append(False, enough) if optional else enough)


@dataclass(frozen=True)
class Lifetimes:
    """Steps, and when tensors are held and read."""

    steps: dict[str, int]
    """The vertices that are computed, each at its step."""
    held: dict[str, Steps]
    """When a tensor that has a home is held there: a result from its step to its last reader, an
    output to the end, an input throughout, and a tied one until its last reader."""
    read: dict[str, Steps]
    """From the first reader of a tensor to its last."""

    @staticmethod
    def of(graph: Graph, rules: LayoutRules, *, at_least: bool = False) -> Lifetimes:
        """Those of a graph; what replaces a tied input is held beside it.

        What is read in turns is held until the last one, or, for what is held `at_least`, until the
        first; then what is never there as a whole does not count.
        """
        computed = (vertex.name for vertex in graph.vertices.values() if is_planned(vertex))
        steps = {name: step for step, name in enumerate(computed)}
        read: dict[str, Steps] = {}
        reads = {name: (step, step + 1) for name, step in steps.items()}
        for turns in rules.turns:
            span = [steps[name] for name in turns.labels]
            reads |= dict.fromkeys(turns.labels, (span[0], 1 + span[0 if at_least else -1]))
        for reader, (start, stop) in reads.items():
            for name in graph[reader].inputs:
                begin, end = read.get(name, (start, stop))
                read[name] = (min(begin, start), max(end, stop))
        end, outputs = len(steps), {vertex.name for vertex in graph.outputs}
        held: dict[str, Steps] = {}
        for name, now in steps.items():
            if at_least and name in rules.within_turns:
                continue
            held[name] = (now, end if name in outputs else read.get(name, (now, now + 1))[1])
        given = {v.name: (0, end) for v in rules.chosen(graph) if isinstance(v.op, Input)}
        tied = {name: (0, read[name][1]) for name in rules.tie if name in read}
        held |= given | tied
        return Lifetimes(steps, held, read)

    def span(self, turns: Turns) -> Steps:
        """From the first step of turns to the one after their last."""
        return self.steps[next(iter(turns.labels))], self.steps[next(reversed([*turns.labels]))] + 1

    def fullest_step(self, sizes: Mapping[str, int]) -> int:
        """The step at which all tensors that are held, of these sizes, are largest together."""
        change = np.zeros(len(self.steps) + 1, dtype=np.int64)
        for name, (start, stop) in self.held.items():
            change[start] += sizes[name]
            change[stop] -= sizes[name]
        return int(np.cumsum(change)[:-1].argmax()) if self.steps else 0

    def held_at(self, step: int) -> list[str]:
        """The tensors that are held at a step."""
        return [name for name, (start, stop) in self.held.items() if start <= step < stop]


def held_at_least(graph: Graph, rules: LayoutRules, mesh: Mesh) -> int:
    """The bytes that the fullest device holds in every plan.

    Each tensor is held at least once, in equal parts or as its pin says.
    """
    lives = Lifetimes.of(graph, rules, at_least=True)
    least: dict[str, int] = {}
    for name in lives.held:
        pinned = rules.pinned.get(rules.tie.get(name, name))
        shared = -(-graph[name].elements // mesh.devices)
        elements = int(fullest(mesh, pinned).min()) if pinned else shared
        least[name] = elements * graph[name].dtype.itemsize
    return sum(least[name] for name in lives.held_at(lives.fullest_step(least)))
