"""Draws a plan or a graph: a scene that is placed, as SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.graph.picture import Picture
from eindecomp.show.draw.place_scene import place_scene
from eindecomp.show.draw.scene import LINE, SMALL, STILL, THICKEST, graph_scene, plan_scene
from eindecomp.show.draw.svg import picture, saved, tag, text_width, titled, write
from eindecomp.show.words import short

if TYPE_CHECKING:
    from pathlib import Path

    from eindecomp.graph.graph import Graph
    from eindecomp.planner.plan import Plan
    from eindecomp.show.draw.place_scene import Frame, Placed, Point, Route
    from eindecomp.show.draw.scene import Link, Node, Scene

_MARGIN = 24.0
_HEAD = 15.0


def draw_plan(plan: Plan, path: str | Path | None = None, *, folded: bool = True) -> Picture:
    """A picture of a plan, written to a file if given."""
    return saved(picture_of(plan_scene(plan, folded=folded)), path)


def draw_graph(graph: Graph, path: str | Path | None = None, *, folded: bool = True) -> Picture:
    """A picture of a graph that is not planned, written to a file if given."""
    return saved(picture_of(graph_scene(graph, folded=folded)), path)


def picture_of(scene: Scene) -> Picture:
    """A scene placed and drawn."""
    return Picture(_scene_svg(scene, place_scene(scene)), scene.title)


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
    (x, y), (to, down) = route.start, route.end
    line = route.path
    if not link.has_tip:
        line += f"L{to:.1f},{down:.1f}"
    parts = [
        tag("path", d=line, stroke_width=thick, class_=f"{style} next" if link.is_next else style)
    ]
    if link.has_tip:
        across, along = to - x, down - y
        length = (across**2 + along**2) ** 0.5 or 1.0
        half = max(3.6, thick * 0.8)
        dx, dy = -along / length * half, across / length * half
        tip = f"M{x + dx:.1f},{y + dy:.1f}L{to:.1f},{down:.1f}L{x - dx:.1f},{y - dy:.1f}z"
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
