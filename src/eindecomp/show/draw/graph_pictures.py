"""Draws a plan or a graph: places a scene, and writes it as SVG.

Each frame is laid out by itself, then frames and boxes together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.graph.picture import Picture
from eindecomp.show.draw.layered import Item, Join, Layered, lay_out
from eindecomp.show.draw.scene import LINE, SMALL, STILL, THICKEST, graph_scene, plan_scene
from eindecomp.show.draw.svg import picture, saved, tag, text_width, titled, write
from eindecomp.show.words import short

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from eindecomp.graph.graph import Graph
    from eindecomp.planner.plan import Plan
    from eindecomp.show.draw.scene import Link, Node, Scene

_MARGIN = 24.0
_HEAD = 15.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 18.0, 16.0, 16.0  # inside a frame; its words are at the left
_TIP = 8.0

Point = tuple[float, float]


def draw_plan(plan: Plan, path: str | Path | None = None, *, folded: bool = True) -> Picture:
    """A picture of a plan, written to a file if given."""
    return saved(picture_of(plan_scene(plan, folded=folded)), path)


def draw_graph(graph: Graph, path: str | Path | None = None, *, folded: bool = True) -> Picture:
    """A picture of a graph that is not planned, written to a file if given."""
    return saved(picture_of(graph_scene(graph, folded=folded)), path)


def picture_of(scene: Scene) -> Picture:
    """A scene placed and drawn."""
    return Picture(_scene_svg(scene, place_scene(scene)), scene.title)


# Places


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


@dataclass(frozen=True, slots=True)
class _Inner:
    """What is inside one frame."""

    nodes: list[int]
    links: list[int]
    made: Layered

    @property
    def item(self) -> Item:
        """The frame as an item of the whole."""
        return Item(_LEFT + self.made.width + _RIGHT, _TOP + self.made.height + _BOTTOM)


def place_scene(scene: Scene) -> Placed:
    """Where everything in a scene is drawn."""
    inners = [_inner(scene, frame) for frame in range(len(scene.frames))]
    outside = [n for n, node in enumerate(scene.nodes) if node.frame is None]
    number = {n: k for k, n in enumerate(outside)}
    crossing = [k for k, link in enumerate(scene.links) if _frame_of(scene, link) is None]
    items = [Item(scene.nodes[n].width, scene.nodes[n].height) for n in outside]
    joins = [_outer_join(scene, inners, number, scene.links[k]) for k in crossing]
    whole = lay_out([*items, *(inner.item for inner in inners)], joins)
    points: dict[int, Point] = {n: whole.items[k] for n, k in number.items()}
    routes = {
        k: _route(scene, scene.links[k], points, words)
        for k, points, words in zip(crossing, whole.routes, whole.words, strict=True)
    }
    frames: list[Frame] = []
    for inner, (middle, top) in zip(inners, whole.items[len(outside) :], strict=True):
        frame = Frame(middle - inner.item.width / 2, top, inner.item.width, inner.item.height)
        frames.append(frame)
        _shift_inner(scene, inner, frame, points, routes)
    nodes = tuple(points[n] for n in range(len(scene.nodes)))
    every = tuple(routes[k] for k in range(len(scene.links)))
    return Placed(whole.width, whole.height, nodes, every, tuple(frames))


def _frame_of(scene: Scene, link: Link) -> int | None:
    """The frame that a link lies in."""
    frames = {scene.nodes[n].frame for n in (link.source, link.target)}
    return frames.pop() if len(frames) == 1 else None


def _inner(scene: Scene, frame: int) -> _Inner:
    nodes = [n for n, node in enumerate(scene.nodes) if node.frame == frame]
    number = {n: k for k, n in enumerate(nodes)}
    links = [k for k, link in enumerate(scene.links) if _frame_of(scene, link) == frame]
    # Lines through ports run straight past the notes beside them.
    notes = max((scene.nodes[n].height for n in nodes if scene.nodes[n].edge), default=0.0)
    items = [
        Item(own.width, notes if own.kind == "port" else own.height, own.edge)
        for own in (scene.nodes[n] for n in nodes)
    ]
    joins = [
        _join(scene, number[link.source], number[link.target], link)
        for link in (scene.links[k] for k in links)
    ]
    return _Inner(nodes, links, lay_out(items, joins))


def _join(
    scene: Scene,
    source: int,
    target: int,
    link: Link,
    leaves: float | None = None,
    enters: float | None = None,
) -> Join:
    width = text_width(link.words, SMALL) + 10 if link.words else 0.0
    return Join(source, target, width, scene.thickness(link), leaves, enters)


def _outer_join(scene: Scene, inners: Sequence[_Inner], number: dict[int, int], link: Link) -> Join:
    def end(n: int) -> tuple[int, float | None]:
        frame = scene.nodes[n].frame
        if frame is None:
            return number[n], None
        inner = inners[frame]
        x = inner.made.items[inner.nodes.index(n)][0]
        return len(number) + frame, _LEFT + x - inner.item.width / 2

    (source, leaves), (target, enters) = end(link.source), end(link.target)
    return _join(scene, source, target, link, leaves, enters)


def _shift_inner(
    scene: Scene,
    inner: _Inner,
    frame: Frame,
    points: dict[int, Point],
    routes: dict[int, Route],
) -> None:
    """Add what is in a frame, at its place; ports lie on the frame's edge."""
    left, top = frame.x + _LEFT, frame.y + _TOP

    def shifted(x: float, y: float) -> Point:
        return left + x, top + y

    for n, place in zip(inner.nodes, inner.made.items, strict=True):
        points[n] = shifted(*place)
    for k, route, words in zip(inner.links, inner.made.routes, inner.made.words, strict=True):
        link = scene.links[k]
        own = [shifted(*point) for point in route]
        if scene.nodes[link.source].kind == "port":
            own.insert(0, (own[0][0], frame.y))
        if scene.nodes[link.target].kind == "port":
            own.append((own[-1][0], frame.y + frame.height))
        routes[k] = _route(scene, link, own, None if words is None else shifted(*words))


def _route(scene: Scene, link: Link, points: Sequence[Point], words: Point | None) -> Route:
    """A smooth line that leaves and enters each point vertically."""
    end = points[-1]
    start = (end[0], end[1] - max(_TIP, 1.1 * scene.thickness(link)))
    (x, y), *rest = (*points[:-1], start)
    path = [f"M{x:.1f},{y:.1f}"]
    for to, down in rest:
        if abs(to - x) < 0.05:
            path.append(f"V{down:.1f}")
        else:
            middle = (y + down) / 2
            path.append(f"C{x:.1f},{middle:.1f} {to:.1f},{middle:.1f} {to:.1f},{down:.1f}")
        x, y = to, down
    return Route("".join(path), start, end, words)


# SVG


def _scene_svg(scene: Scene, placed: Placed) -> str:
    """The picture of a scene."""
    legend, top, least = _legend(scene)
    width = max(placed.width, least) + 2 * _MARGIN
    shift = (width - placed.width) / 2
    ranked = sorted(range(len(scene.links)), key=lambda k: scene.links[k].amount)
    drawn = [
        *(_frame(frame, words) for frame, words in zip(placed.frames, scene.frames, strict=True)),
        *(_link(scene, scene.links[k], placed.routes[k]) for k in ranked),
        *(_node(node, at) for node, at in zip(scene.nodes, placed.nodes, strict=True)),
        *(_words(scene, scene.links[k], placed.routes[k]) for k in ranked),
    ]
    return picture(
        width,
        top + placed.height + _MARGIN,
        scene.title,
        ". ".join((*scene.legend, _contents(scene))),
        *legend,
        tag("g", *drawn, transform=f"translate({shift:.1f} {top:.1f})"),
    )


def _contents(scene: Scene) -> str:
    """What can be seen, for those who cannot see it."""
    boxes = [node for node in scene.nodes if node.lines and node.kind != "note"]
    moving = sum(bool(link.words) for link in scene.links)
    return f"A graph of {len(boxes)} boxes; bytes move along {moving} of the lines between them"


def _legend(scene: Scene) -> tuple[list[str], float, float]:
    """The lines above the picture, how high they are, and how wide."""
    drawn = [write(_MARGIN, 34, scene.title, _HEAD, class_="head")]
    widest, y = text_width(scene.title, _HEAD), 34.0
    for line in scene.legend:
        y += 20
        drawn.append(write(_MARGIN, y, line, 12, class_="quiet"))
        widest = max(widest, text_width(line, 12))
    if scene.is_planned:
        y += 22
        x = _MARGIN
        for style, thick, words in _samples(scene):
            drawn.append(tag("path", d=f"M{x},{y - 4}h34", class_=style, stroke_width=thick))
            drawn.append(write(x + 42, y, words, SMALL, class_="quiet"))
            x += 42 + text_width(words, SMALL) + 26
        widest = max(widest, x - _MARGIN - 26)
    return drawn, y + 26, widest


def _samples(scene: Scene) -> list[tuple[str, float, str]]:
    samples = [("rest", STILL, "nothing moves")]
    if scene.most:
        most = short(scene.most, "bytes")
        samples.insert(0, ("move", THICKEST, f"{most} move; lines are as thick as their bytes"))
    if any(link.is_next for link in scene.links):
        samples.append(("rest next", STILL, "to the next repetition"))
    return samples


def _frame(frame: Frame, words: str) -> str:
    return tag(
        "g",
        tag("rect", x=frame.x, y=frame.y, width=frame.width, height=frame.height, rx=10,
            class_="block"),
        write(frame.x + 12, frame.y + 24, words, 14, class_="head"),
    )  # fmt: skip


def _link(scene: Scene, link: Link, route: Route) -> str:
    style = "move" if link.amount else "rest"
    thick = scene.thickness(link)
    (x, y), (_, down) = route.start, route.end
    line = route.path
    if not link.has_tip:
        line += f"L{x:.1f},{down:.1f}"
    parts = [
        tag("path", d=line, stroke_width=thick, class_=f"{style} next" if link.is_next else style)
    ]
    if link.has_tip:
        half = max(3.6, thick * 0.8)
        tip = f"M{x - half:.1f},{y:.1f}L{x:.1f},{down:.1f}L{x + half:.1f},{y:.1f}z"
        parts.append(tag("path", d=tip, class_=f"tip-{style}"))
    return titled(link.title, *parts) if link.title else tag("g", *parts)


def _words(scene: Scene, link: Link, route: Route) -> str:
    if route.words is None:
        return ""
    x, y = route.words
    text = write(x, y + 4, link.words, SMALL, "middle", "moved halo")
    framed = scene.nodes[link.target].frame is not None
    return tag("g", text, class_="in-block") if framed else text


def _node(node: Node, at: Point) -> str:
    x, y = at
    if node.kind == "port":
        return ""
    lines = [
        write(x, y + 18 + LINE * k, line.text, line.size, "middle", line.style)
        for k, line in enumerate(node.lines)
    ]
    if node.kind == "note":
        return tag("g", *lines)
    box = tag(
        "rect", x=x - node.width / 2, y=y, width=node.width, height=node.height,
        rx=12 if node.kind == "input" else 5, class_=node.kind,
    )  # fmt: skip
    return titled(node.title, box, *lines)
