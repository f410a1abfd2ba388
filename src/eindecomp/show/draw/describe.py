"""What is written in the picture of a plan, or of a graph that is not planned."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from eindecomp.errors import shorten
from eindecomp.graph.write import write_vertex
from eindecomp.layout.cut import pieces_by
from eindecomp.show.claim import bound_words
from eindecomp.show.draw.scene import Node, Scene, Words, linked
from eindecomp.show.outline import graph_outline, moved_within, plan_outline
from eindecomp.show.words import cuts, is_proved, mesh_words, short

if TYPE_CHECKING:
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.planner.plan import Plan
    from eindecomp.show.outline import Box, Edge, Outline

_LONGEST = 44  # characters of an expression
_LONG_NUMBER = re.compile(r"(?<![\w.])\d+\.\d{6,}(?![\w.])")


def plan_scene(plan: Plan, *, folded: bool = True) -> Scene:
    """The scene of a plan."""
    outline = plan_outline(plan, folded=folded)
    total = short(plan.traffic.total, "bytes")
    devices = f"{plan.devices} device{'s' if plan.devices > 1 else ''}"
    mesh = f" ({mesh_words(plan.mesh)})" if plan.mesh.names else ""
    title = f"{_count(len(plan.parts), 'vertex', 'vertices')} on {devices}{mesh}"
    moves = f"{total} move between devices" if plan.traffic.total else "nothing moves"
    proved = "proved optimal" if is_proved(plan.gap) else f"proved: {bound_words(plan)}"
    asked = f"objective {plan.objective} ({proved}), inputs {plan.inputs}"
    return _scene(plan.graph, outline, title, (f"{moves} · {asked}",), plan)


def graph_scene(graph: Graph, *, folded: bool = True) -> Scene:
    """The scene of a graph."""
    outline = graph_outline(graph, folded=folded)
    computed = sum(len(box.names) for box in outline.boxes if not box.is_source)
    inputs = _count(len(graph.inputs), "input", "inputs")
    title = f"{_count(computed, 'vertex', 'vertices')}, {inputs}"
    return _scene(graph, outline, title, (), None)


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _scene(
    graph: Graph, outline: Outline, title: str, legend: tuple[str, ...], plan: Plan | None
) -> Scene:
    frames = [
        number
        for number, block in enumerate(outline.blocks)
        if block.times > 1 and not all(outline.boxes[box].is_source for box in block.boxes)
    ]
    frame_of = {block: at for at, block in enumerate(frames)}
    outputs = {vertex.name for vertex in graph.outputs}
    boxes = [_node(graph, box, frame_of.get(box.block), outputs, plan) for box in outline.boxes]
    titles = [_edge_title(outline, edge) for edge in outline.edges]
    nodes, links = linked(outline, boxes, [_edge_words(e) for e in outline.edges], titles)
    shown = tuple(f"× {outline.blocks[number].times}" for number in frames)
    most = max((link.amount for link in links), default=0)
    return Scene(title, legend, tuple(nodes), tuple(links), shown, plan is not None, most)


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
    is_output = bool(given_back)
    if is_output:
        some = len(given_back) < box.times
        words = f"{given_back[-1]} is an output" if some else "output"
        lines.append(Words(words, "strong"))
    kind = "output" if is_output else "input" if box.is_source else "vertex"
    return Node(kind, tuple(lines), "\n".join(title), frame)


def _cut_words(plan: Plan, vertex: Vertex) -> str:
    if vertex.name in plan.parts:
        words = cuts(plan.parts[vertex.name])
    elif vertex.name in plan.given:
        sides = zip(vertex.labels, plan.given[vertex.name].home, strict=True)
        words = cuts({label: pieces_by(plan.mesh, span.axes) for label, span in sides})
    else:
        return ""
    return f"cut {words}" if words != "whole" else "not cut"


def _times(amount: int, times: int) -> str:
    """An amount of so many equal ones."""
    if times == 1 or amount % times:
        return short(amount, "bytes")
    return f"{short(amount // times, 'bytes')} ×{times}"


def _edge_words(edge: Edge) -> str:
    if not edge.amount:
        return ""
    return _times(edge.amount, edge.times if edge.is_even else 1)


def _edge_title(outline: Outline, edge: Edge) -> str:
    source, target = outline.boxes[edge.source], outline.boxes[edge.target]
    moved = f"{edge.amount:,} bytes move" if edge.amount else "nothing moves"
    total = f" in {edge.times} such edges" if edge.times > 1 else ""
    return f"{source.name} to {target.name}: {moved}{total}"
