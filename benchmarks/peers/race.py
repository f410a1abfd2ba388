"""Races between our plans and peers, which may be absent, or fail on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.experiments.measure import Contender, Way, apart, take_turns
from eindecomp.experiments.record import Timed

if TYPE_CHECKING:
    from eindecomp.experiments.measure import Race

Peer = Callable[[], AbstractContextManager[Way]]
"""Sets a way up and tears it down again; raises `Absent` if that is impossible."""


class Absent(Exception):  # noqa: N818 - not an error: a peer that is not there
    """A peer that cannot be measured here, and why."""


@dataclass(frozen=True, slots=True)
class Raced(Timed):
    """A contender whose results may be compared by rows as well."""

    agreement: float | None = None
    """The share of rows whose largest value is where it is in ours."""


def beside(peers_of: Callable[..., Mapping[str, Peer]]) -> Race:
    """A race for an experiment, with peers for what it computes."""

    def run(
        case: str, ours: Sequence[Contender], repeats: int, given: tuple[Any, ...]
    ) -> list[Timed]:
        return [*race(case, ours, peers_of(*given) if given else {}, repeats)]

    return run


def race(
    case: str,
    ours: Sequence[Contender],
    peers: Mapping[str, Peer],
    repeats: int,
    warm_up: bool = True,
    *,
    compare_rows: bool = False,
) -> list[Timed]:
    """Measure our plans and peers in turn; the first is what the others are compared with.

    With `compare_rows` also by where the largest value of each row is, as of logits.
    """
    absent: dict[str, str] = {}
    contenders = list(ours)
    with ExitStack() as stack:
        for name, peer in peers.items():
            try:
                way = _guarded(name, stack.enter_context(peer()), absent)
            except Absent as reason:
                absent[name] = str(reason)
            except Exception as error:
                absent[name] = failure(error)
            else:
                contenders.append(Contender(name, "peer", way))
        ways = {each.name: each.way for each in contenders}
        timings, firsts = take_turns(ways, repeats, warm_up)
    rows: list[Timed] = []
    first = ours[0].name
    for each in contenders:
        if each.name not in absent:
            result, wanted = firsts[each.name], firsts[first]
            row = each.row(case, timings[each.name], timings[first], apart(result, wanted))
            same = same_largest(result, wanted) if compare_rows else None
            measured = {field.name: getattr(row, field.name) for field in fields(row)}
            rows.append(Raced(**measured, agreement=same))
    return rows + [Timed(case, name, "peer", absent=why) for name, why in absent.items()]


def _guarded(name: str, way: Way, absent: dict[str, str]) -> Way:
    """A peer that fails once is out of the race; what was measured of the others is kept."""

    def turn() -> object:
        if name in absent:
            return None
        try:
            return way()
        except Exception as error:
            absent[name] = failure(error)
            return None

    return turn


def failure(error: Exception) -> str:
    """Why something was not measured that should have been."""
    return f"it failed: {error or type(error).__name__}"


def same_largest(result: object, wanted: object) -> float:
    """The share of rows whose largest value is at the place where it is wanted.

    >>> same_largest([[1, 2], [4, 3]], [[0, 9], [7, 8]])
    0.5
    """
    left, right = (np.asarray(each, np.float64).argmax(-1) for each in (result, wanted))
    return float((left == right).mean())
