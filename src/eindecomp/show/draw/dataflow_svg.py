"""The dataflow of one vertex as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.graph.picture import Picture
from eindecomp.show.draw.dataflow import dataflow_of
from eindecomp.show.draw.svg import device_colour, picture, saved, tag, text_width, titled, write
from eindecomp.show.draw.tile_pictures import devices_words, range_words
from eindecomp.show.words import count_words, exact, short

if TYPE_CHECKING:
    from pathlib import Path

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.planner.plan import Plan
    from eindecomp.show.draw.dataflow import Arrow, Dataflow, FlowNode

_MARGIN, _GAP = 24.0, 130.0
_ROW, _SPACE, _GROUP = 38.0, 12.0, 14.0
_TEXT, _SMALL = 11.5, 10.5
_TOP = 128.0


def draw_vertex(plan: Plan, tensor: Vertex | str, path: str | Path | None = None) -> Picture:
    """A picture of the dataflow of one vertex, written to a file if given."""
    flow = dataflow_of(plan, tensor)
    return saved(Picture(_Drawing(plan.graph, flow).svg(), f"Dataflow of {flow.vertex}"), path)


class _Drawing:
    """The places of a dataflow's nodes, and what is drawn there."""

    def __init__(self, graph: Graph, flow: Dataflow) -> None:
        self.flow = flow
        self.words = [_tile_words(graph, node) for node in flow.nodes]
        self.swatch = [
            max(26.0, text_width(devices_words(node.devices), _TEXT) + 12) for node in flow.nodes
        ]
        self.columns: list[list[int]] = [[] for _ in flow.columns]
        for number, node in enumerate(flow.nodes):
            self.columns[node.column].append(number)
        tensors = {node.tensor: number for number, node in reversed(list(enumerate(flow.nodes)))}
        self.columns[0].sort(key=lambda n: (tensors[flow.nodes[n].tensor], flow.nodes[n].devices))
        self.widths = [self._width(at) for at in range(len(self.columns))]
        self.height = max(self._height(own) for own in self.columns)
        self.lefts = [_MARGIN]
        for width in self.widths:
            self.lefts.append(self.lefts[-1] + width + _GAP)
        self.tops: dict[int, float] = {}
        for own in self.columns:
            self._stack(own)

    def _width(self, column: int) -> float:
        heading = text_width(self.flow.columns[column], 12.5)
        boxes = (
            self.swatch[n]
            + max(text_width(self.words[n], _TEXT), text_width(self._gets(n), _SMALL))
            for n in self.columns[column]
        )
        return max([heading, text_width(self._moves(column), _SMALL), *(w + 20 for w in boxes)])

    def _height(self, numbers: list[int]) -> float:
        tensors = {self.flow.nodes[n].tensor for n in numbers}
        return len(numbers) * (_ROW + _SPACE) + (len(tensors) - 1) * _GROUP - _SPACE

    def _stack(self, numbers: list[int]) -> None:
        """Nodes one below the other, spread over the height, tensors a little apart."""
        spare = self.height - self._height(numbers)
        each = spare / len(numbers) if numbers else 0.0
        y, before = _TOP + each / 2, ""
        for number in numbers:
            tensor = self.flow.nodes[number].tensor
            y += _GROUP if before not in ("", tensor) else 0
            self.tops[number], before = y, tensor
            y += _ROW + _SPACE + each

    def _gets(self, number: int) -> str:
        moved = self.flow.nodes[number].received
        return f"receives {short(moved, 'bytes')}" if moved else ""

    def _moves(self, column: int) -> str:
        moved = sum(self.flow.nodes[n].received for n in self.columns[column])
        if not moved:
            return "nothing moves" if column else ""
        whole = len(self.flow.shown) == self.flow.devices
        return f"{exact(moved, 'bytes')} {'move' if whole else 'move to these'}"

    def svg(self) -> str:
        flow = self.flow
        ranked = sorted(flow.arrows, key=lambda arrow: arrow.moved)
        note = self._note()
        inside = [
            write(_MARGIN, 34, flow.statement, 15, class_="head"),
            write(_MARGIN, 55, note, 12, class_="quiet"),
            *self._samples(),
            *(part for column in range(len(self.columns)) for part in self._heading(column)),
            *(self._arrow(arrow) for arrow in ranked),
            *(self._node(number) for number in range(len(flow.nodes))),
        ]
        widest = max(text_width(flow.statement, 15), text_width(note, 12), 520.0)
        width = max(self.lefts[-1] - _GAP, _MARGIN + widest) + _MARGIN
        title = f"Dataflow of {flow.vertex}"
        told = "; ".join(
            f"{name}: {self._moves(k) or 'where they lie'}" for k, name in enumerate(flow.columns)
        )
        return picture(width, _TOP + self.height + _MARGIN, title, told, *inside)

    def _note(self) -> str:
        flow, shown = self.flow, len(self.flow.shown)
        if shown == flow.devices:
            return f"{count_words(flow.devices, 'device')}, one kernel call on each"
        some = devices_words(flow.shown, 24)
        rest = flow.devices - shown
        others = f"the other {rest:,} devices work" if rest > 1 else "the other device works"
        words = f"Devices {some} of {flow.devices:,}; {others} alike"
        return words if flow.is_complete else f"{words}. Lines from devices not shown are left out"

    def _samples(self) -> list[str]:
        drawn: list[str] = []
        x = _MARGIN
        for style, words in (("move", "from another device"), ("rest", "already there")):
            drawn.append(tag("path", d=f"M{x},73h30", class_=style, stroke_width=1.8))
            drawn.append(write(x + 38, 77, words, 11, class_="quiet"))
            x += 38 + text_width(words, 11) + 24
        return drawn

    def _heading(self, column: int) -> list[str]:
        x = self.lefts[column]
        return [
            write(x, _TOP - 26, self.flow.columns[column], 12.5, class_="head"),
            write(x, _TOP - 11, self._moves(column), _SMALL, class_="quiet"),
        ]

    def _arrow(self, arrow: Arrow) -> str:
        source, target = self.flow.nodes[arrow.source], self.flow.nodes[arrow.target]
        x = self.lefts[source.column] + self.widths[source.column]
        y = self.tops[arrow.source] + _ROW / 2
        to, down = self.lefts[target.column] - 7, self.tops[arrow.target] + _ROW / 2
        middle = (x + to) / 2
        style = "move" if arrow.moved else "rest"
        moved = f"{arrow.moved:,} bytes" if arrow.moved else "already there"
        line = f"M{x:.1f},{y:.1f}C{middle:.1f},{y:.1f} {middle:.1f},{down:.1f} {to:.1f},{down:.1f}"
        tip = f"M{to:.1f},{down - 3.6:.1f}l7,3.6l-7,3.6z"
        return titled(
            f"{self.words[arrow.source]} to device {target.devices[0]}: {moved}",
            tag("path", class_=style, stroke_width=1.8 if arrow.moved else 1.1, d=line),
            tag("path", class_=f"tip-{style}", d=tip),
        )  # fmt: skip

    def _node(self, number: int) -> str:
        node, swatch = self.flow.nodes[number], self.swatch[number]
        x, y, width = self.lefts[node.column], self.tops[number], self.widths[node.column]
        gets, devices = self._gets(number), devices_words(node.devices)
        line = y + (16 if gets else _ROW / 2 + 4)
        plural = "device" if len(node.devices) == 1 else "devices"
        colour = device_colour(node.devices[0], self.flow.devices)
        return titled(
            f"{self.words[number]} on {plural} {devices_words(node.devices, 200)}",
            tag("rect", x=x, y=y, width=width, height=_ROW, rx=5,
                class_="input" if node.column == 0 else "vertex"),
            tag("rect", x=x + 4, y=y + 4, width=swatch, height=_ROW - 8, rx=3, fill=colour),
            write(x + 4 + swatch / 2, y + _ROW / 2 + 4, devices, _TEXT, "middle", "on-tile"),
            write(x + swatch + 12, line, self.words[number], _TEXT),
            *([write(x + swatch + 12, y + 30, gets, _SMALL, class_="moved")] if gets else []),
        )  # fmt: skip


def _tile_words(graph: Graph, node: FlowNode) -> str:
    """A tile as text: whole dimensions are a colon."""
    shape = graph[node.tensor].shape
    sides = [
        ":" if piece == (0, size) else range_words(piece)
        for piece, size in zip(node.box, shape, strict=False)
    ]
    return f"{node.tensor}[{', '.join(sides)}]{' (partial)' if node.is_partial else ''}"
