"""Rows of NumPy's arrays that go from rank to rank, as many as an index names.

Ranks first tell each other how many rows there are, which is not counted, then which, then the rows
themselves follow. A lookup asks those who have rows; a scatter sends partial sums of rows to those
who reduce them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from eindecomp.engines.row_masks import RowMask, named_in
from eindecomp.engines.spmd.exchange import Carrier, PeerSpans
from eindecomp.layout.boxes import Box, within
from eindecomp.layout.view import NamedRows

Array = Any
Numbers = dict[int, Array]
"""By rank, the numbers of rows within the block that goes to it or comes from it."""


@dataclass(frozen=True, slots=True)
class RowExchange:
    """What a rank may give to others and take from them of a table."""

    carrier: Carrier
    tag: int
    named: NamedRows
    at: Box
    """The rank's block of the index."""
    held: Box
    """Its block of what rows are taken from."""
    gives: Mapping[int, Box]
    takes: Mapping[int, Box]

    def look_up(self, index: Array, source: Array, target: Array, wanted: Box) -> int:
        """Put the rows that the index names into a block of the table; the bytes that came."""
        asked = self._named_in(index, self.takes)
        heard = self._told(asked, self.gives)
        rows = self._swap_rows(source, heard, asked)
        for peer, box in self.takes.items():
            self._put(target[within(box, wanted)], asked[peer], rows[peer])
        return _bytes([*heard.values(), *rows.values()])

    def reduce(self, index: Array, source: Array, parts: Array) -> int:
        """Put partial sums of rows into an array of zeros for each rank; the bytes that came."""
        given = self._named_in(index, self.gives)
        heard = self._told(given, self.takes)
        rows = self._swap_rows(source, given, heard)
        for k, peer in enumerate(self.takes):
            self._put(parts[k], heard[peer], rows[peer])
        return _bytes([*heard.values(), *rows.values()])

    def keep(self, index: Array, source: Array, target: Array, wanted: Box, box: Box) -> None:
        """Copy the named rows of a block that the rank has itself."""
        mask = self._named(index, box)
        mask.copy(target[within(box, wanted)], source[within(box, self.held)])

    def _named(self, index: Array, box: Box) -> RowMask:
        return named_in(self.named, index, self.at, box)

    def _named_in(self, index: Array, blocks: Mapping[int, Box]) -> Numbers:
        """The numbers of the rows of each block that the index names."""
        masks = {peer: self._named(index, box).mask for peer, box in blocks.items()}
        return {peer: np.flatnonzero(mask).astype(np.int64) for peer, mask in masks.items()}

    def _swap_rows(self, source: Array, gives: Numbers, takes: Numbers) -> Numbers:
        """Send rows with these numbers to ranks, and receive others from them."""
        blocks = {peer: source[within(self.gives[peer], self.held)] for peer in gives}
        given = {peer: self._rows(block, gives[peer]) for peer, block in blocks.items()}
        sizes = {peer: self._row_of(self.takes[peer]) * len(own) for peer, own in takes.items()}
        return self._swap(given, sizes, source.dtype)

    def _row_of(self, box: Box) -> int:
        """The elements of a row within a block."""
        return int(np.prod([box[d][1] - box[d][0] for d in self.named.across], dtype=np.int64))

    def _by_row(self, block: Array) -> Array:
        """A block with the dimensions that number rows first."""
        return np.moveaxis(block, self.named.along, range(len(self.named.along)))

    def _rows(self, block: Array, numbers: Array) -> Array:
        """Rows of a block, one after another."""
        ordered = self._by_row(block)
        places = _unravelled(numbers, ordered.shape[: len(self.named.along)])
        return np.ascontiguousarray(ordered[places]).reshape(-1)

    def _put(self, block: Array, numbers: Array, rows: Array) -> None:
        ordered = self._by_row(block)
        count = len(self.named.along)
        places = _unravelled(numbers, ordered.shape[:count])
        ordered[places] = rows.reshape(len(numbers), *ordered.shape[count:])

    def _told(self, own: Numbers, others: Mapping[int, Box]) -> Numbers:
        """The numbers that other ranks tell this one, which tells them its own."""
        counts = {peer: np.array([len(each)], np.int64) for peer, each in own.items()}
        heard = self._swap(counts, dict.fromkeys(others, 1), np.int64)
        return self._swap(own, {peer: int(count[0]) for peer, count in heard.items()}, np.int64)

    def _swap(self, own: Numbers, sizes: Mapping[int, int], dtype: Any) -> Numbers:
        """Send arrays to ranks, and receive arrays of these sizes; empty ones do not travel."""
        going = np.concatenate([np.zeros(0, dtype), *own.values()]).astype(dtype, copy=False)
        coming = np.empty(sum(sizes.values()), dtype)
        out = _spans({peer: len(each) for peer, each in own.items()})
        into = _spans(sizes)
        sends, receives = (
            PeerSpans(array, {peer: span for peer, span in spans.items() if span[1]})
            for array, spans in ((going, out), (coming, into))
        )
        if sends.spans or receives.spans:
            self.carrier.exchange(sends, receives, self.tag).wait()
        return {peer: coming[at : at + count] for peer, (at, count) in into.items()}


_unravelled: Any = np.unravel_index


def _spans(sizes: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """Where arrays of these sizes lie, one after another."""
    spans: dict[int, tuple[int, int]] = {}
    start = 0
    for peer, count in sizes.items():
        spans[peer] = start, count
        start += count
    return spans


def _bytes(arrays: list[Array]) -> int:
    """The bytes of rows, and of numbers of rows, that came."""
    return sum(array.nbytes for array in arrays)
