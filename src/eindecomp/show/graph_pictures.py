"""Draws a plan or a graph: what is shown, boxes and lines between them, and where.

What one repetition of a block hands to the next leaves by a *note* and comes in by another, so that
nothing runs backwards.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eindecomp.errors import shorten
from eindecomp.graph.graph import Graph
from eindecomp.graph.write import Picture, write_vertex
from eindecomp.planner.plan import Plan
from eindecomp.show.explain import bound_words
from eindecomp.show.layered import Connector, Item, Layered, lay_out
from eindecomp.show.rows import Box, Outline, graph_outline, moved_within, parts_of, plan_outline
from eindecomp.show.svg import picture, tag, text_width, titled, write
from eindecomp.show.words import count_words, cuts, is_proved, mesh_words, short

Point = tuple[float, float]

_MARGIN = 24.0
_TITLE, _HEAD, _SMALL = 15.0, 12.5, 11.0  # sizes of fonts
_LINE = 15.0
_THICKEST, _THINNEST = 11.0, 1.8
_STILL = 1.1  # the thickness of a line along which nothing moves
_PAD_X, _PAD_Y = 11.0, 7.0
_LEAST = 64.0
_LONGEST = 44  # characters of an expression
_LONG_NUMBER = re.compile(r"(?<![\w.])\d+\.\d{6,}(?![\w.])")
_TIP = 8.0


def _size(style: str) -> float:
    return _HEAD if style == "head" else _SMALL


@dataclass(frozen=True, slots=True)
class Node:
    """A box of a kind, or a note."""

    kind: str
    """"vertex", "input", "output" or "note"."""
    lines: tuple[tuple[str, str], ...]
    """Lines of text, each with the class that styles it."""
    title: str = ""

    @property
    def width(self) -> float:
        """How wide it is drawn."""
        widest = max(text_width(text, _size(style)) for text, style in self.lines)
        return max(widest + 2 * _PAD_X, _LEAST if self.kind != "note" else 0)

    @property
    def height(self) -> float:
        """How high it is drawn."""
        return _LINE * len(self.lines) + 2 * _PAD_Y


@dataclass(frozen=True, slots=True)
class Link:
    """A line from one node to another."""

    source: int
    target: int
    amount: int
    words: str = ""
    title: str = ""
    is_next: bool = False


@dataclass(frozen=True, slots=True)
class Scene:
    """All that is drawn."""

    title: str
    legend: str
    """A line below the title; empty for a graph that is not planned."""
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    most: int
    """The most bytes of any link."""

    def thickness(self, link: Link) -> float:
        """How thick a link is drawn, by the bytes that move along it."""
        return max(_THINNEST, _THICKEST * link.amount / self.most) if link.amount else _STILL


def draw_plan(plan: Plan, path: str | Path | None = None, *, folded: bool = True) -> Picture:
    """A picture of a plan, written to a file if given."""
    return picture_of(plan_scene(plan, folded=folded), path)


def draw_graph(graph: Graph, path: str | Path | None = None, *, folded: bool = True) -> Picture:
    """A picture of a graph that is not planned, written to a file if given."""
    return picture_of(graph_scene(graph, folded=folded), path)


def plan_scene(plan: Plan, *, folded: bool = True) -> Scene:
    """The scene of a plan."""
    mesh = f" ({mesh_words(plan.mesh)})" if plan.mesh.names else ""
    vertices = count_words(len(plan.parts), "vertex", "vertices")
    title = f"{vertices} on {count_words(plan.devices, 'device')}{mesh}"
    total = plan.traffic.total
    moves = f"{short(total, 'bytes')} move between devices" if total else "nothing moves"
    proved = "proved optimal" if is_proved(plan.gap) else f"proved: {bound_words(plan)}"
    asked = f"objective {plan.objective} ({proved}), inputs {plan.inputs}"
    return _scene(plan.graph, plan_outline(plan, folded=folded), title, f"{moves} · {asked}", plan)


def graph_scene(graph: Graph, *, folded: bool = True) -> Scene:
    """The scene of a graph."""
    outline = graph_outline(graph, folded=folded)
    computed = sum(box.times for box in outline.boxes if not box.is_source)
    inputs = count_words(len(graph.inputs), "input")
    title = f"{count_words(computed, 'vertex', 'vertices')}, {inputs}"
    return _scene(graph, outline, title, "", None)


def _scene(graph: Graph, outline: Outline, title: str, legend: str, plan: Plan | None) -> Scene:
    nodes = [_node(graph, box, plan) for box in outline.boxes]
    links: list[Link] = []
    for edge in outline.edges:
        source, target = outline.boxes[edge.source], outline.boxes[edge.target]
        moved = f"{edge.amount:,} bytes move" if edge.amount else "nothing moves"
        total = f" in {edge.times} such edges" if edge.times > 1 else ""
        told = f"{source.name} to {target.name}: {moved}{total}"
        words = _times(edge.amount, edge.times if edge.is_even else 1) if edge.amount else ""
        start = edge.source
        if edge.is_next:
            links.append(Link(start, len(nodes), edge.amount, is_next=True))
            name = nodes[start].lines[0][0]
            start = len(nodes) + 1
            notes = ("to the next repetition", f"{name} of the previous repetition")
            nodes += [Node("note", ((note, "quiet"),)) for note in notes]
        links.append(Link(start, edge.target, edge.amount, words, told, edge.is_next))
    most = max((link.amount for link in links), default=0)
    return Scene(title, legend, tuple(nodes), tuple(links), most)


def _node(graph: Graph, box: Box, plan: Plan | None) -> Node:
    vertex, times = graph[box.name], box.times
    statement = write_vertex(vertex, graph.vertices)
    title = [statement if times == 1 else f"{statement}  (and {times - 1} like it)"]
    head, _, expression = statement.removeprefix("input ").partition(" <- ")
    lines = [(shorten(head, _LONGEST), "head" if expression else "")]
    if expression:
        brief = _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.4g}", expression)
        lines.append((shorten(brief, _LONGEST), ""))
    if times > 1:
        lines.append((f"× {times}", "quiet"))
    if plan is not None:
        if vertex.name in plan.parts or vertex.name in plan.given:
            cut = cuts(parts_of(plan, vertex.name))
            title.append("not cut" if cut == "whole" else f"cut {cut}")
            lines.append((title[-1], "quiet"))
        for what, amount in moved_within(plan, box).items():
            lines.append((f"{what} {_times(amount, times)}", "moved"))
    given_back = [vertex.name for vertex in graph.outputs if vertex.name in box.names]
    if given_back:
        some = len(given_back) < times
        lines.append((f"{given_back[-1]} is an output" if some else "output", "strong"))
    kind = "output" if given_back else "input" if box.is_source else "vertex"
    return Node(kind, tuple(lines), "\n".join(title))


def _times(amount: int, times: int) -> str:
    """An amount in words, as a multiple where it is a sum of equal ones."""
    if times == 1 or amount % times:
        return short(amount, "bytes")
    return f"{short(amount // times, 'bytes')} ×{times}"


# The picture


def place_scene(scene: Scene) -> Layered:
    """Where everything in a scene is drawn."""
    items = [Item(node.width, node.height) for node in scene.nodes]
    links: list[Connector] = []
    for link in scene.links:
        room = text_width(link.words, _SMALL) + 10 if link.words else 0.0
        links.append(Connector(link.source, link.target, room, scene.thickness(link)))
    return lay_out(items, links)


def picture_of(scene: Scene, path: str | Path | None = None) -> Picture:
    """A scene placed and drawn, written to a file if given."""
    placed = place_scene(scene)
    legend, top, least = _legend(scene)
    width = max(placed.width, least) + 2 * _MARGIN
    shift = (width - placed.width) / 2
    ranked = sorted(range(len(scene.links)), key=lambda k: scene.links[k].amount)
    drawn = [
        *(_link(scene, scene.links[k], placed.routes[k]) for k in ranked),
        *(_box(node, *at) for node, at in zip(scene.nodes, placed.items, strict=True)),
    ]
    for k in ranked:
        if (place := placed.words[k]) is not None:
            x, y = place
            drawn.append(write(x, y + 4, scene.links[k].words, _SMALL, "middle", "moved halo"))
    boxes = sum(node.kind != "note" for node in scene.nodes)
    moving = sum(bool(link.words) for link in scene.links)
    seen = f"A graph of {boxes} boxes; bytes move along {moving} of the lines between them"
    seen = f"{scene.legend}. {seen}" if scene.legend else seen
    shifted = tag("g", *drawn, transform=f"translate({shift:.1f} {top:.1f})")
    svg = picture(width, top + placed.height + _MARGIN, scene.title, seen, *legend, shifted)
    drawing = Picture(svg, scene.title)
    if path is not None:
        drawing.save(path)
    return drawing


def _legend(scene: Scene) -> tuple[list[str], float, float]:
    """The lines above the picture, how high they are, and how wide."""
    drawn = [write(_MARGIN, 34, scene.title, _TITLE, class_="head")]
    widest, y = text_width(scene.title, _TITLE), 34.0
    if scene.legend:
        drawn.append(write(_MARGIN, y + 20, scene.legend, 12, class_="quiet"))
        widest = max(widest, text_width(scene.legend, 12))
        x, y = _MARGIN, y + 42
        samples = [("rest", _STILL, "nothing moves")]
        if scene.most:
            most = short(scene.most, "bytes")
            words = f"{most} move; lines are as thick as their bytes"
            samples.insert(0, ("move", _THICKEST, words))
        if any(link.is_next for link in scene.links):
            samples.append(("rest next", _STILL, "to the next repetition"))
        for style, thick, words in samples:
            drawn.append(tag("path", d=f"M{x},{y - 4}h34", class_=style, stroke_width=thick))
            drawn.append(write(x + 42, y, words, _SMALL, class_="quiet"))
            x += 42 + text_width(words, _SMALL) + 26
        widest = max(widest, x - _MARGIN - 26)
    return drawn, y + 26, widest


def _link(scene: Scene, link: Link, points: Sequence[Point]) -> str:
    """A smooth line that leaves and enters each point vertically, with a tip."""
    thick, (end, down) = scene.thickness(link), points[-1]
    top = down - max(_TIP, 1.1 * thick)
    (x, y), *rest = (*points[:-1], (end, top))
    path = [f"M{x:.1f},{y:.1f}"]
    for to, lower in rest:
        if abs(to - x) < 0.05:
            path.append(f"V{lower:.1f}")
        else:
            middle = (y + lower) / 2
            path.append(f"C{x:.1f},{middle:.1f} {to:.1f},{middle:.1f} {to:.1f},{lower:.1f}")
        x, y = to, lower
    half = max(3.6, thick * 0.8)
    tip = f"M{x - half:.1f},{top:.1f}L{x:.1f},{down:.1f}L{x + half:.1f},{top:.1f}z"
    style = "move" if link.amount else "rest"
    parts = [
        tag("path", d="".join(path), stroke_width=thick,
            class_=f"{style} next" if link.is_next else style),
        tag("path", d=tip, class_=f"tip-{style}"),
    ]  # fmt: skip
    return titled(link.title, *parts) if link.title else tag("g", *parts)


def _box(node: Node, x: float, y: float) -> str:
    lines = [
        write(x, y + 18 + _LINE * k, text, _size(style), "middle", style)
        for k, (text, style) in enumerate(node.lines)
    ]
    if node.kind == "note":
        return tag("g", *lines)
    box = tag(
        "rect", x=x - node.width / 2, y=y, width=node.width, height=node.height,
        rx=12 if node.kind == "input" else 5, class_=node.kind,
    )  # fmt: skip
    return titled(node.title, box, *lines)
