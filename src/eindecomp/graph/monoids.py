"""The aggregations that a graph knows: those that are built in, and the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.errors import GraphError, suggest
from eindecomp.graph.checks import expect
from eindecomp.lang.monoid import BUILTIN, SUM, Monoid, find_monoid

if TYPE_CHECKING:
    from collections.abc import Mapping


def monoid_of(agg: str | Monoid | None, own: Mapping[str, Monoid]) -> Monoid:
    """The aggregation of a name, which is the sum by default; `own` are the user's."""
    if agg is None:
        return SUM
    if isinstance(agg, Monoid):
        return agg
    known = {**BUILTIN, **own}
    found = find_monoid(expect(agg, str, "an aggregation or its name"), known)
    if found is None:
        hint = suggest(agg, known)
        raise GraphError(f"{agg!r} is not a known commutative monoid{hint}")
    return found


def register(monoid: Monoid, own: dict[str, Monoid]) -> None:
    """Add an aggregation to the user's own, unless it is built in or there already."""
    name = monoid.base_name
    if BUILTIN.get(monoid.name) == monoid:
        return
    if name in BUILTIN:
        raise GraphError(f"aggregation {name!r} is built in and cannot be redefined")
    before = own.get(name)
    if before == monoid:
        return
    if before is None or (before.name != name and before.select(0) == monoid.select(0)):
        own[name] = monoid
    elif before.select(0) != monoid.select(0) or (monoid.name == name and before != monoid):
        raise GraphError(f"aggregation {name!r} is defined in two ways")
