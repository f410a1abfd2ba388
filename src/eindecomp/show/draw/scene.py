"""What a picture of a graph or a plan shows: boxes with lines of text, frames, and links.

A *scene* says what is drawn, not where: graphviz or our own layout places it. Links into and out of
a frame pass through *ports* on its edge; what one repetition of a block hands to the next leaves by
a *note* at its bottom and comes in by one at its top, so that nothing runs backwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.show.draw.svg import text_width

if TYPE_CHECKING:
    from eindecomp.show.outline import Outline

HEAD, SMALL = 12.5, 11.0
LINE = 15.0
_PAD_X, _PAD_Y = 11.0, 7.0
_LEAST = 64.0


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


def linked(
    outline: Outline, boxes: list[Node], words: list[str], titles: list[str]
) -> tuple[list[Node], list[Link]]:
    """The boxes of an outline with ports and notes added, and the links among them.

    `words` and `titles` are those of the outline's edges.
    """
    making = _Linking(outline, list(boxes), {}, {})
    for edge, said, title in zip(outline.edges, words, titles, strict=True):
        making.add(edge.source, edge.target, edge.amount, said, title, is_next=edge.is_next)
    return making.nodes, list(making.links.values())


@dataclass
class _Linking:
    outline: Outline
    nodes: list[Node]
    places: dict[tuple[str, int, int | None], int]
    """The ports and notes: which edge of a frame, of which box, of which frame."""
    links: dict[tuple[int, int], Link]

    def add(
        self, source: int, target: int, amount: int, words: str, title: str, *, is_next: bool
    ) -> None:
        """One edge, in up to three parts: out of a frame, to another, and into it."""
        inside, outside = self.nodes[target].frame, self.nodes[source].frame
        if is_next:
            name = self.nodes[source].lines[0].text
            leaves = self._place("bottom", source, outside, "to the next repetition")
            enters = self._place("top", source, inside, f"{name} of the previous repetition")
            self._part(source, leaves, amount, is_next=True)
            self._join(enters, target, amount, words, title, is_next=True)
            return
        at = source
        if outside is not None and outside != inside:
            at = self._passing(at, self._place("bottom", source, outside), amount)
        if inside is not None and outside != inside:
            at = self._passing(at, self._place("top", source, inside), amount)
        self._join(at, target, amount, words, title)

    def _place(self, edge: str, source: int, frame: int | None, note: str = "") -> int:
        key = (edge + note, source, frame)
        if key not in self.places:
            lines = (Words(note, "quiet"),) if note else ()
            self.places[key] = len(self.nodes)
            self.nodes.append(Node("note" if note else "port", lines, "", frame, edge))
        return self.places[key]

    def _passing(self, at: int, port: int, amount: int) -> int:
        self._part(at, port, amount)
        return port

    def _part(self, source: int, target: int, amount: int, *, is_next: bool = False) -> None:
        """A part without a tip that several edges share."""
        before = self.links.get((source, target))
        amount += 0 if before is None else before.amount
        self.links[source, target] = Link(source, target, amount, "", "", is_next, has_tip=is_next)

    def _join(
        self,
        source: int,
        target: int,
        amount: int,
        words: str,
        title: str,
        *,
        is_next: bool = False,
    ) -> None:
        self.links[source, target] = Link(source, target, amount, words, title, is_next)
