"""The dimensions of attention by their names: queries, keys, heads and what is contracted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.graph.patterns.attention import find_attention

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eindecomp.frontends.record import Record
    from eindecomp.graph.patterns.terms import Read


def name_attention(record: Record) -> None:
    """Suggest names for the dimensions of every attention of a graph."""
    for found in find_attention(record.graph):
        part = found.parts[0]
        names = dict.fromkeys(found.queries, "s") | {part.key: "t"}
        names |= dict.fromkeys((*found.inner, *found.values), "d")
        heads = dict.fromkeys(found.batch, "h") | dict.fromkeys(found.groups, "g")
        for read in (found.q, part.k, part.v):
            _vote(record, read, names.items(), 2)
            _vote(record, read, heads.items(), 1)


def _vote(record: Record, read: Read, names: Iterable[tuple[str, str]], strength: int) -> None:
    classes = dict(zip(read.labels, record.dims(read.name), strict=True))
    for label, name in names:
        if label in classes:
            record.names.vote(classes[label], name, strength)
