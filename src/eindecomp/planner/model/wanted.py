"""What vertices can choose, and the layouts in which their readers may want what they make."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from eindecomp.layout.view import is_planned, view_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.cut import Cut
    from eindecomp.layout.view import View
    from eindecomp.planner.space.choices import Choices, Reads
    from eindecomp.planner.space.layout_rules import LayoutRules

SHARED = 1 << 20  # costs above which a relaxed problem divides fetches among readers


def choices_of_all(
    graph: Graph,
    rules: LayoutRules,
    choices_of: Callable[[Vertex, View], Choices | None],
    alike: Mapping[str, str],
) -> dict[str, Choices]:
    """What each vertex can choose; those that are left out choose nothing."""
    found: dict[str, Choices | None] = {}
    own: dict[str, Choices] = {}
    for vertex in rules.chosen(graph):
        kind = alike.get(vertex.name, vertex.name)
        if kind not in found:
            found[kind] = choices_of(vertex, view_of(graph, vertex))
        if (choices := found[kind]) is not None:
            own[vertex.name] = choices
    return own


def second_layouts(
    graph: Graph,
    rules: LayoutRules,
    own: Mapping[str, Choices],
    alike: Mapping[str, str],
) -> dict[str, tuple[Cut, ...]]:
    """For each tensor that has a home and several readers, the layouts that they may want."""
    wanted: dict[str, list[Reads]] = {}
    for name, _, reads in _read(graph, rules, own):
        wanted.setdefault(name, []).append(reads)
    of_kind: dict[str, tuple[Cut, ...]] = {}
    found: dict[str, tuple[Cut, ...]] = {}
    for name, reading in wanted.items():
        if len(reading) > 1 and name not in rules.gathered:
            cuts = tuple(dict.fromkeys(cut for reads in reading for cut in reads.cuts))
            found[name] = of_kind.setdefault(alike.get(name, name), cuts)
    return found


def sharers_of(
    graph: Graph,
    rules: LayoutRules,
    own: Mapping[str, Choices],
    second: Mapping[str, tuple[Cut, ...]],
    loosest: int | None,
) -> dict[str, float]:
    """The tensors whose fetches are divided among readers: second layouts make too large tables.

    The same where some reader is left out: the second layout may be one that it wants.
    """
    left_out = [v for v in graph.vertices.values() if is_planned(v) and v.name not in own]
    unseen = {name for vertex in left_out for name in vertex.inputs}
    most: dict[str, list[int]] = {}
    for name, choices, reads in _read(graph, rules, own):
        ways = choices.assignments if loosest is None else reads.cuts
        most.setdefault(name, []).append(len(ways))
    most_cells = SHARED if loosest is None else loosest
    sharers: dict[str, float] = {}
    for name, reading in most.items():
        maker = own[rules.tie.get(name, name)]
        held = len(maker.assignments if maker.is_settled else maker.homes)
        cells = held * (1 + len(second.get(name, ()))) * max(reading)
        if name in unseen or (name in second and cells > most_cells):
            sharers[name] = inf if name in unseen and loosest is not None else len(reading)
    return sharers


def _read(
    graph: Graph, rules: LayoutRules, own: Mapping[str, Choices]
) -> Iterator[tuple[str, Choices, Reads]]:
    """Every tensor whose home is chosen, once for each reader, with the reader's choices."""
    for reader, choices in own.items():
        for name, reads in zip(graph[reader].inputs, choices.reads, strict=True):
            if reads is not None and rules.tie.get(name, name) in own:
                yield name, choices, reads
