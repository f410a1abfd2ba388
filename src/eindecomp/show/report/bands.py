"""Where the boxes of the graph stand: bands one below another, a band for each repeated block.

A repeated block is laid out once. Unfolded, the page draws it as often as it repeats, so a plan of
a hundred layers needs no more positions than one of two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eindecomp.show.draw.layered import Item, Join, lay_out
from eindecomp.show.draw.svg import text_width
from eindecomp.show.outline import plan_outline
from eindecomp.show.words import short

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.planner.plan import Plan
    from eindecomp.show.outline import Edge, Outline

_WIDTH, _HEIGHT, _SOURCE = 200, 58, 30
"""The size of a box, and the height of one that nobody computes."""
_WORDS = 12.0
"""The size of the words beside lines."""


@dataclass(frozen=True, slots=True)
class _Band:
    times: int
    boxes: list[int] = field(default_factory=list[int])


def bands(plan: Plan, number: Mapping[str, int]) -> list[dict[str, Any]]:
    """For each band how often it repeats, its size, its boxes and the lines between them.

    A box is its vertices by number, then left, top, width and height; a line is its ends by number
    of box, where its words stand, and the points that it passes.
    """
    outline = plan_outline(plan)
    return [_placed(outline, band, number) for band in _bands(outline)]


def _placed(outline: Outline, band: _Band, number: Mapping[str, int]) -> dict[str, Any]:
    boxes = [outline.boxes[b] for b in band.boxes]
    items = [Item(_WIDTH, _SOURCE if box.is_source else _HEIGHT) for box in boxes]
    at = {b: k for k, b in enumerate(band.boxes)}
    inside = [
        edge
        for edge in outline.edges
        if edge.source in at and edge.target in at and not edge.is_next
    ]
    made = lay_out(items, [_join(edge, at) for edge in inside])
    return {
        "times": band.times,
        "width": round(made.width),
        "height": round(made.height),
        "boxes": [
            [[number[name] for name in box.names], round(x - item.width / 2), round(y),
             item.width, item.height]
            for box, item, (x, y) in zip(boxes, items, made.items, strict=True)
        ],
        "lines": [
            [at[edge.source], at[edge.target], words and [round(p) for p in words],
             [round(p) for point in route for p in point]]
            for edge, route, words in zip(inside, made.routes, made.words, strict=True)
        ],
    }  # fmt: skip


def _join(edge: Edge, at: Mapping[int, int]) -> Join:
    words = text_width(short(edge.amount, "bytes"), _WORDS) + 8 if edge.amount else 0.0
    return Join(at[edge.source], at[edge.target], words)


def _bands(outline: Outline) -> list[_Band]:
    """Boxes in bands: those of a repeated block, and those between two such blocks.

    A source that stands alone is in the band of the first vertex that reads it, or above that band
    if it repeats.
    """
    found: list[_Band] = []
    repeated: dict[int, _Band] = {}
    band_of: dict[int, _Band] = {}
    for b, box in enumerate(outline.boxes):
        if box.is_source:
            continue
        if box.block not in repeated and (box.times > 1 or not found or found[-1].times > 1):
            found.append(_Band(box.times))
            if box.times > 1:
                repeated[box.block] = found[-1]
        band_of[b] = repeated.get(box.block, found[-1])
        band_of[b].boxes.append(b)
    readers: dict[int, int] = {}
    for edge in outline.edges:
        readers[edge.source] = min(edge.target, readers.get(edge.source, edge.target))
    for b, box in enumerate(outline.boxes):
        if box.is_source:
            read_in = band_of[readers[b]] if b in readers else None
            band = repeated.get(box.block) or _plain(found, read_in)
            band.boxes.append(b)
    return found


def _plain(found: list[_Band], band: _Band | None) -> _Band:
    """A band itself, or the one above it if it repeats; the first if none is given."""
    if band is not None and band.times == 1:
        return band
    at = 0 if band is None else next(k for k, each in enumerate(found) if each is band)
    above = max(at - 1, 0)
    if not found or found[above].times > 1:
        found.insert(at, _Band(1))
        above = at
    return found[above]
