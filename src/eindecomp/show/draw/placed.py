"""`Placed`: where everything in a scene is drawn."""

from __future__ import annotations

from dataclasses import dataclass

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Route:
    """The line of a link."""

    path: str
    """As the `d` of an SVG path; without the tip."""
    start: Point
    """Where the tip begins."""
    end: Point
    """Where the tip ends."""
    words: Point | None = None
    """The middle of the link's words."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame around the boxes of a block."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Placed:
    """The places of a scene's nodes, by the middle and top of each, links and frames."""

    width: float
    height: float
    nodes: tuple[Point, ...]
    routes: tuple[Route, ...]
    frames: tuple[Frame, ...]
