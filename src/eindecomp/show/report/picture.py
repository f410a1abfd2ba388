"""Where the boxes of the graph stand: bands one below another, a band for each repeated block.

A repeated block is laid out once. Unfolded, the page draws it as often as it repeats, so a plan of
a hundred layers needs no more positions than one of two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eindecomp.show.outline import plan_outline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.planner.plan import Plan
    from eindecomp.show.outline import Outline

_WIDTH, _HEIGHT, _SOURCE = 200, 58, 30
"""The size of a box, and the height of one that nobody computes."""


@dataclass(frozen=True, slots=True)
class _Band:
    times: int
    boxes: list[int] = field(default_factory=list[int])


def bands(plan: Plan, number: Mapping[str, int]) -> list[dict[str, Any]]:
    """For each band how often it repeats, its size, and its boxes: vertices and position."""
    outline = plan_outline(plan)
    found: list[dict[str, Any]] = []
    for band in _bands(outline):
        sizes = [(_WIDTH, _SOURCE if outline.boxes[b].is_source else _HEIGHT) for b in band.boxes]
        at = {b: k for k, b in enumerate(band.boxes)}
        links = [
            (at[edge.source], at[edge.target])
            for edge in outline.edges
            if edge.source in at and edge.target in at and not edge.is_next
        ]
        places = arranged(sizes, links)
        found.append(
            {
                "times": band.times,
                "width": max(x + w for (x, _), (w, _) in zip(places, sizes, strict=True)),
                "height": max(y + h for (_, y), (_, h) in zip(places, sizes, strict=True)),
                "boxes": [
                    [[number[name] for name in outline.boxes[b].names], x, y, w, h]
                    for b, (x, y), (w, h) in zip(band.boxes, places, sizes, strict=True)
                ],
            }
        )
    return found


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


def arranged(sizes: list[tuple[int, int]], links: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """TEMPORARY until the layered layout of pictures is merged."""
    n = len(sizes)
    into: list[list[int]] = [[] for _ in range(n)]
    out: list[list[int]] = [[] for _ in range(n)]
    for a, b in links:
        into[b].append(a)
        out[a].append(b)
    rank = [0] * n
    for _ in range(n):
        changed = False
        for a, b in links:
            if rank[b] < rank[a] + 1:
                rank[b] = rank[a] + 1
                changed = True
        if not changed:
            break
    for a in range(n):
        if out[a] and not into[a]:
            rank[a] = min(rank[b] for b in out[a]) - 1
    layers: dict[int, list[int]] = {}
    for a in range(n):
        layers.setdefault(rank[a], []).append(a)
    x = [0] * n
    for layer in layers.values():
        for k, a in enumerate(layer):
            x[a] = round((k - (len(layer) - 1) / 2) * 230)
    low = min(x, default=0)
    return [(x[a] - low, rank[a] * 110 + (29 - sizes[a][1] // 2)) for a in range(n)]
