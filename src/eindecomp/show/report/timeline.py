"""The tasks of a run by device, in as many rows as were busy at once, as columns of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MOST = 30_000  # tasks that a page shows; of more, the longest
_NANO = 1e9


class Span(NamedTuple):
    """A task: for which vertex, what it is, and when a device did it."""

    vertex: str
    kind: str
    device: int
    row: int | None
    """Its row among those of the device, or None if it goes wherever there is room."""
    start: float
    end: float


def timeline(spans: Sequence[Span], number: Mapping[str, int]) -> dict[str, Any]:
    """Tasks in order of time, as columns; times are in nanoseconds after the first.

    >>> spans = [Span("Z", "compute", 0, None, 0.0, 2.0), Span("Y", "compute", 0, None, 1.0, 2.0)]
    >>> shown = timeline(spans, {"Z": 0, "Y": 1})
    >>> shown["row"], shown["rows"]
    ([0, 1], [0, 0])
    """
    kept = sorted(spans, key=lambda span: span.start - span.end)[:_MOST]
    kept.sort(key=lambda span: (span.start, span.device))
    kinds = list(dict.fromkeys(span.kind for span in kept))
    rows = _rows(kept)
    order = sorted(set(rows))
    first = min(span.start for span in kept)
    return {
        "kinds": kinds,
        "rows": [device for device, _ in order],
        "vertex": [number[span.vertex] for span in kept],
        "kind": [kinds.index(span.kind) for span in kept],
        "row": [order.index(row) for row in rows],
        "start": [round((span.start - first) * _NANO) for span in kept],
        "length": [round((span.end - span.start) * _NANO) for span in kept],
        "left_out": len(spans) - len(kept),
    }


def _rows(spans: Sequence[Span]) -> list[tuple[int, int]]:
    """The device and the row of each task: the first row of the device that is free by then."""
    busy: dict[int, list[float]] = {}
    found: list[tuple[int, int]] = []
    for span in spans:
        if span.row is not None:
            found.append((span.device, span.row))
            continue
        own = busy.setdefault(span.device, [])
        row = next((k for k, end in enumerate(own) if end <= span.start), len(own))
        own[row : row + 1] = [span.end]
        found.append((span.device, row))
    return found
