"""Drawing a plan or a graph, and saving the picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eindecomp.errors import InputError, suggest
from eindecomp.graph.picture import Picture
from eindecomp.show.draw.describe import graph_scene, plan_scene
from eindecomp.show.draw.dot import SECONDS, dot_text, has_graphviz, place_by_dot, run_dot
from eindecomp.show.draw.own_layout import place_scene
from eindecomp.show.draw.render import scene_svg
from eindecomp.show.draw.save import check_ending, save_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from eindecomp.graph.graph import Graph
    from eindecomp.planner.plan import Plan
    from eindecomp.show.draw.placed import Placed
    from eindecomp.show.draw.scene import Scene

LAYOUTS = ("auto", "graphviz", "own")
_FORMS = (".svg", ".dot", ".gv", ".png", ".pdf")
_MISSING = "needs graphviz: its program dot, and pip install 'eindecomp[draw]'"
_MOST = 300  # boxes that are left to graphviz, which takes minutes for thousands


def save_picture(picture: Picture, path: str | Path) -> None:
    """Write a picture to an .svg file; of a graph also .dot, .gv, and .png or .pdf by graphviz."""
    forms: dict[str, Callable[[], str | bytes]] = {".svg": lambda: picture.svg}
    if picture.dot is not None:
        text = picture.dot
        forms |= {".dot": lambda: text, ".gv": lambda: text}
        forms |= {".png": lambda: _by_graphviz(text, "png")}
        forms |= {".pdf": lambda: _by_graphviz(text, "pdf")}
    save_text(path, forms)


def draw_plan(
    plan: Plan, path: str | Path | None = None, *, folded: bool = True, layout: str = "auto"
) -> Picture:
    """A picture of a plan, written to a file if given."""
    return _drawn(plan_scene, plan, path, folded, layout)


def draw_graph(
    graph: Graph, path: str | Path | None = None, *, folded: bool = True, layout: str = "auto"
) -> Picture:
    """A picture of a graph that is not planned, written to a file if given."""
    return _drawn(graph_scene, graph, path, folded, layout)


def _drawn(
    scene_of: Callable[..., Scene], what: object, path: str | Path | None, folded: bool, layout: str
) -> Picture:
    if layout not in LAYOUTS:
        raise InputError(f"unknown layout {layout!r}{suggest(str(layout), LAYOUTS)}")
    if layout == "graphviz" and not has_graphviz():
        raise InputError(f"layout='graphviz' {_MISSING}")
    if path is not None:
        check_ending(Path(path), _FORMS)  # before the work
    picture = picture_of(scene_of(what, folded=folded), layout)
    if path is not None:
        picture.save(path)
    return picture


def picture_of(scene: Scene, layout: str = "auto") -> Picture:
    """A scene placed and drawn."""
    return Picture(scene_svg(scene, _place(scene, layout)), scene.title, dot_text(scene))


def _place(scene: Scene, layout: str) -> Placed:
    """By graphviz if that is there and quick enough, otherwise by our own layout."""
    small = len(scene.nodes) <= _MOST
    if layout == "graphviz" or (layout == "auto" and small and has_graphviz()):
        placed = place_by_dot(scene)
        if placed is not None:
            return placed
    return place_scene(scene)


def _by_graphviz(text: str, form: str) -> bytes:
    if not has_graphviz():
        raise InputError(f"a .{form} file {_MISSING}; an .svg file does not")
    made = run_dot(text, form)
    if made is None:
        raise InputError(f"graphviz made no .{form} within {SECONDS:.0f} seconds; try .svg")
    return made
