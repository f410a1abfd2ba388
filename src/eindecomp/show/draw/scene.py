"""What a picture of a plan, or of a graph that is not planned, shows: boxes, frames and links.

A *scene* says what is drawn; `graph_pictures.py` says where. Links into and out of a frame pass
through *ports* on its edge; what one repetition of a block hands to the next leaves by a *note* at
its bottom and comes in by one at its top, so that nothing runs backwards.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eindecomp.errors import shorten
from eindecomp.graph.write import write_vertex
from eindecomp.show.claim import bound_words
from eindecomp.show.draw.svg import text_width
from eindecomp.show.outline import graph_outline, moved_within, plan_outline
from eindecomp.show.rows import parts_of
from eindecomp.show.words import count_words, cuts, is_proved, mesh_words, short

if TYPE_CHECKING:
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.planner.plan import Plan
    from eindecomp.show.outline import Box, Edge, Outline

HEAD, SMALL = 12.5, 11.0
LINE = 15.0
THICKEST, _THINNEST = 11.0, 1.8
STILL = 1.1  # the thickness of a line along which nothing moves
_PAD_X, _PAD_Y = 11.0, 7.0
_LEAST = 64.0
_LONGEST = 44  # characters of an expression
_LONG_NUMBER = re.compile(r"(?<![\w.])\d+\.\d{6,}(?![\w.])")


@dataclass(frozen=True, slots=True)
class Words:
    """A line of text in a box, and the class that styles it."""

    text: str
    style: str = ""

    @property
    def size(self) -> float:
        """The size of its font."""
        return HEAD if self.style == "head" else SMALL


@dataclass(frozen=True, slots=True)
class Node:
    """Something that has a place: a box of a kind, a port or a note."""

    kind: str
    """"vertex", "input", "output", "port" or "note"."""
    lines: tuple[Words, ...] = ()
    title: str = ""
    frame: int | None = None
    edge: str = ""
    """For a port or a note the edge of its frame that it lies at: "top" or "bottom"."""

    @property
    def width(self) -> float:
        """How wide it is drawn."""
        if self.kind == "port":
            return 1.0
        widest = max(text_width(line.text, line.size) for line in self.lines)
        return max(widest + 2 * _PAD_X, _LEAST if self.kind != "note" else 0)

    @property
    def height(self) -> float:
        """How high it is drawn."""
        return 1.0 if self.kind == "port" else LINE * len(self.lines) + 2 * _PAD_Y


@dataclass(frozen=True, slots=True)
class Link:
    """A line from one node to another."""

    source: int
    target: int
    amount: int
    words: str = ""
    title: str = ""
    is_next: bool = False
    has_tip: bool = True


@dataclass(frozen=True, slots=True)
class Scene:
    """All that is drawn."""

    title: str
    legend: tuple[str, ...]
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    frames: tuple[str, ...]
    """What is written on each frame."""
    is_planned: bool
    most: int
    """The most bytes of any link."""

    def thickness(self, link: Link) -> float:
        """How thick a line is along which so many bytes move."""
        return max(_THINNEST, THICKEST * link.amount / self.most) if link.amount else STILL


def plan_scene(plan: Plan, *, folded: bool = True) -> Scene:
    """The scene of a plan."""
    mesh = f" ({mesh_words(plan.mesh)})" if plan.mesh.names else ""
    vertices = count_words(len(plan.parts), "vertex", "vertices")
    title = f"{vertices} on {count_words(plan.devices, 'device')}{mesh}"
    total = plan.traffic.total
    moves = f"{short(total, 'bytes')} move between devices" if total else "nothing moves"
    proved = "proved optimal" if is_proved(plan.gap) else f"proved: {bound_words(plan)}"
    asked = f"objective {plan.objective} ({proved}), inputs {plan.inputs}"
    outline = plan_outline(plan, folded=folded)
    return _scene(plan.graph, outline, title, (f"{moves} · {asked}",), plan)


def graph_scene(graph: Graph, *, folded: bool = True) -> Scene:
    """The scene of a graph."""
    outline = graph_outline(graph, folded=folded)
    computed = sum(box.times for box in outline.boxes if not box.is_source)
    inputs = count_words(len(graph.inputs), "input")
    title = f"{count_words(computed, 'vertex', 'vertices')}, {inputs}"
    return _scene(graph, outline, title, (), None)


def _scene(
    graph: Graph, outline: Outline, title: str, legend: tuple[str, ...], plan: Plan | None
) -> Scene:
    repeated = {
        box.block: box.times for box in outline.boxes if box.times > 1 and not box.is_source
    }
    frame_of = {block: at for at, block in enumerate(repeated)}
    outputs = {vertex.name for vertex in graph.outputs}
    linking = _Linking(
        [_node(graph, box, frame_of.get(box.block), outputs, plan) for box in outline.boxes]
    )
    for edge in outline.edges:
        linking.add(edge, _edge_title(outline, edge))
    frames = tuple(f"× {times}" for times in repeated.values())
    links = tuple(linking.links.values())
    most = max((link.amount for link in links), default=0)
    return Scene(title, legend, tuple(linking.nodes), links, frames, plan is not None, most)


# Boxes


def _node(graph: Graph, box: Box, frame: int | None, outputs: set[str], plan: Plan | None) -> Node:
    vertex = graph[box.name]
    statement = write_vertex(vertex)
    title = [statement if box.times == 1 else f"{statement}  (and {box.times - 1} like it)"]
    head, _, expression = statement.removeprefix("input ").partition(" <- ")
    lines = [Words(shorten(head, _LONGEST), "head" if expression else "")]
    if expression:
        brief = _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.4g}", expression)
        lines.append(Words(shorten(brief, _LONGEST)))
    if frame is None and box.times > 1:
        lines.append(Words(f"{box.times} of them, one for each repetition", "quiet"))
    if plan is not None:
        if cut := _cut_words(plan, vertex):
            lines.append(Words(cut, "quiet"))
            title.append(cut)
        for what, amount in moved_within(plan, box).items():
            lines.append(Words(f"{what} {_times(amount, box.times)}", "moved"))
    given_back = [name for name in box.names if name in outputs]
    if given_back:
        some = len(given_back) < box.times
        lines.append(Words(f"{given_back[-1]} is an output" if some else "output", "strong"))
    kind = "output" if given_back else "input" if box.is_source else "vertex"
    return Node(kind, tuple(lines), "\n".join(title), frame)


def _cut_words(plan: Plan, vertex: Vertex) -> str:
    if vertex.name not in plan.parts and vertex.name not in plan.given:
        return ""
    words = cuts(parts_of(plan, vertex.name))
    return f"cut {words}" if words != "whole" else "not cut"


def _times(amount: int, times: int) -> str:
    """An amount of so many equal ones."""
    if times == 1 or amount % times:
        return short(amount, "bytes")
    return f"{short(amount // times, 'bytes')} ×{times}"


# Links


@dataclass(frozen=True, slots=True)
class _Linking:
    """The nodes and links so far: ports and notes are added where links need them."""

    nodes: list[Node]
    places: dict[tuple[str, int, int | None], int] = field(
        default_factory=dict[tuple[str, int, int | None], int]
    )
    """The ports and notes: which edge of a frame, of which box, of which frame."""
    links: dict[tuple[int, int], Link] = field(default_factory=dict[tuple[int, int], Link])

    def add(self, edge: Edge, title: str) -> None:
        """Add one edge, in up to three parts: out of a frame, to another, and into it."""
        at, amount = edge.source, edge.amount
        outside, inside = self.nodes[edge.source].frame, self.nodes[edge.target].frame
        if edge.is_next:
            name = self.nodes[edge.source].lines[0].text
            leaves = self._place("bottom", edge.source, outside, "to the next repetition")
            self._link(at, leaves, amount, is_next=True)
            at = self._place("top", edge.source, inside, f"{name} of the previous repetition")
        elif outside != inside:
            for side, frame in (("bottom", outside), ("top", inside)):
                if frame is not None:
                    port = self._place(side, edge.source, frame)
                    self._link(at, port, amount, has_tip=False)
                    at = port
        words = _times(amount, edge.times if edge.is_even else 1) if amount else ""
        self._link(at, edge.target, amount, words, title, is_next=edge.is_next)

    def _place(self, side: str, source: int, frame: int | None, note: str = "") -> int:
        key = (side + note, source, frame)
        if key not in self.places:
            lines = (Words(note, "quiet"),) if note else ()
            self.places[key] = len(self.nodes)
            self.nodes.append(Node("note" if note else "port", lines, "", frame, side))
        return self.places[key]

    def _link(
        self, source: int, target: int, amount: int, words: str = "", title: str = "",
        *, is_next: bool = False, has_tip: bool = True,
    ) -> None:  # fmt: skip
        """Add a link, or to the bytes of one: edges of one source share their way to a port."""
        before = self.links.get((source, target))
        amount += 0 if before is None else before.amount
        self.links[source, target] = Link(source, target, amount, words, title, is_next, has_tip)


def _edge_title(outline: Outline, edge: Edge) -> str:
    source, target = outline.boxes[edge.source], outline.boxes[edge.target]
    moved = f"{edge.amount:,} bytes move" if edge.amount else "nothing moves"
    total = f" in {edge.times} such edges" if edge.times > 1 else ""
    return f"{source.name} to {target.name}: {moved}{total}"
