"""A scene in graphviz's language, and its places as graphviz chooses them."""

from __future__ import annotations

import shutil
from html import escape
from importlib import import_module
from importlib.util import find_spec
from subprocess import CalledProcessError, TimeoutExpired
from typing import TYPE_CHECKING, Any

import orjson

from eindecomp.show.draw.placed import Frame, Placed, Point, Route
from eindecomp.show.draw.render import thickness
from eindecomp.show.draw.svg import LIGHT

if TYPE_CHECKING:
    from eindecomp.show.draw.scene import Link, Node, Scene

SECONDS = 20.0
"""How long graphviz may take."""
_INCH = 72.0
_FILLS = {kind: LIGHT[kind] for kind in ("vertex", "input", "output")}
_INKS = {"quiet": LIGHT["quiet"], "moved": LIGHT["move"], "strong": LIGHT["strong"]}
_MOVE, _REST = LIGHT["move"], LIGHT["rest"]


def has_graphviz() -> bool:
    """Whether there are the package and its program `dot`."""
    return find_spec("graphviz") is not None and shutil.which("dot") is not None


def run_dot(text: str, form: str, *options: str) -> bytes | None:
    """What `dot` makes of a text; None if it fails or takes too long."""
    execute: Any = import_module("graphviz.backend.execute")
    given = {"input": text.encode(), "capture_output": True, "timeout": SECONDS}
    try:
        done = execute.run_check(["dot", f"-T{form}", *options], quiet=True, **given)
    except (CalledProcessError, TimeoutExpired, OSError):
        return None
    return done.stdout


def dot_text(scene: Scene) -> str:
    """A scene in graphviz's language."""
    lines = [
        "digraph {",
        f"  graph [label=<{_html(scene.title)}<br/> >, labelloc=t, labeljust=l, fontsize=15,"
        ' nodesep=0.3, ranksep=0.35, fontname="monospace"];',
        '  node [shape=box, style="filled,rounded", fontname="monospace", fontsize=11,'
        " fixedsize=true];",
        '  edge [fontname="monospace", fontsize=11, arrowsize=0.6];',
    ]
    inside: dict[int | None, list[int]] = {}
    for number, node in enumerate(scene.nodes):
        inside.setdefault(node.frame, []).append(number)
    for frame, numbers in inside.items():
        nodes = [_node(number, scene.nodes[number]) for number in numbers]
        if frame is None:
            lines += nodes
            continue
        lines += [
            f"  subgraph cluster_{frame} {{",
            f"  label=<{_html(scene.frames[frame])}>; labeljust=l; fontsize=14; margin=14;"
            f' style="rounded,filled"; fillcolor="{LIGHT["block"]}"; color="{LIGHT["line"]}";',
            *nodes,
            *_ranks(scene, numbers),
            "  }",
        ]
    lines += [_link(scene, link) for link in scene.links]
    return "\n".join([*lines, "}"]) + "\n"


def _ranks(scene: Scene, numbers: list[int]) -> list[str]:
    """Ports and notes lie at the edges of their frame."""
    found: list[str] = []
    for edge, rank in (("top", "min"), ("bottom", "max")):
        own = [f"n{number};" for number in numbers if scene.nodes[number].edge == edge]
        if own:
            found.append(f"  {{rank={rank}; {' '.join(own)}}}")
    return found


def _node(number: int, node: Node) -> str:
    if node.kind == "port":
        return f"  n{number} [shape=point, width=0.01, height=0.01, label=<>];"
    rows = [
        f'<font point-size="{line.size}" color="{_INKS.get(line.style, LIGHT["ink"])}">'
        f"{f'<b>{_html(line.text)}</b>' if line.style == 'head' else _html(line.text)}</font>"
        for line in node.lines
    ]
    shape = "shape=plaintext, style=solid"
    if node.kind in _FILLS:
        shape = f'fillcolor="{_FILLS[node.kind]}"'
    size = f"width={node.width / _INCH:.3f}, height={node.height / _INCH:.3f}"
    return f"  n{number} [{size}, {shape}, label=<{'<br/>'.join(rows)}>];"


def _link(scene: Scene, link: Link) -> str:
    thick = thickness(link.amount, scene.most)
    colour = _MOVE if link.amount else _REST
    given = [f"penwidth={thick:.1f}", f'color="{colour}"']
    if link.words:
        words = " " * round(1 + thick / 5) + link.words + " "
        given += [f"label=<{_html(words)}>", f'fontcolor="{_MOVE}"']
    if link.is_next:
        given.append("style=dashed")
    if not link.has_tip:
        given.append("arrowhead=none")
    return f"  n{link.source} -> n{link.target} [{', '.join(given)}];"


def _html(text: str) -> str:
    return escape("".join(c if c.isprintable() else "\ufffd" for c in text))


def place_by_dot(scene: Scene) -> Placed | None:
    """Where graphviz places a scene; None if it fails or takes too long."""
    made = run_dot(dot_text(scene), "json", "-Glabel=")
    if made is None:
        return None
    found: Any = orjson.loads(made)
    left, bottom, right, top = _numbers(found["bb"])

    def at(x: float, y: float) -> Point:
        return x - left, top - y

    nodes: dict[int, Point] = {}
    frames: dict[int, Frame] = {}
    for own in found.get("objects", ()):
        if own["name"].startswith("cluster_"):
            x0, y0, x1, y1 = _numbers(own["bb"])
            number = int(own["name"].removeprefix("cluster_"))
            frames[number] = Frame(*at(x0, y1), x1 - x0, y1 - y0)
        elif "pos" in own:
            number = int(own["name"][1:])
            x, y = at(*_numbers(own["pos"]))
            nodes[number] = (x, y - scene.nodes[number].height / 2)
    ends = {(own["tail"], own["head"]): own for own in found.get("edges", ())}
    gvid = {own["name"]: own["_gvid"] for own in found.get("objects", ())}
    routes = [
        _route(ends[gvid[f"n{link.source}"], gvid[f"n{link.target}"]], at) for link in scene.links
    ]
    return Placed(
        right - left,
        top - bottom,
        tuple(nodes[n] for n in range(len(scene.nodes))),
        tuple(routes),
        tuple(frames[n] for n in range(len(scene.frames))),
    )


def _numbers(text: str) -> list[float]:
    return [float(number) for number in text.split(",")]


def _route(edge: Any, at: Any) -> Route:
    """A spline of graphviz: `e,x,y` is where its tip ends, then come Bézier points."""
    points: list[Point] = []
    tip: Point | None = None
    for part in edge["pos"].split():
        if part.startswith("e,"):
            tip = at(*_numbers(part[2:]))
        else:
            points.append(at(*_numbers(part)))
    (x, y), *rest = points
    path = f"M{x:.1f},{y:.1f}" + "".join(
        "C" + " ".join(f"{a:.1f},{b:.1f}" for a, b in rest[k : k + 3])
        for k in range(0, len(rest), 3)
    )
    words = at(*_numbers(edge["lp"])) if "lp" in edge else None
    return Route(path, points[-1], tip or points[-1], words)
