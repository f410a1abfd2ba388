"""Contenders in turn, and records as JSON."""

from __future__ import annotations

import json
from math import inf
from typing import TYPE_CHECKING

from eindecomp.experiments.measure import Lapse, take_turns
from eindecomp.experiments.record import Findings, Priced, Record, show

if TYPE_CHECKING:
    from eindecomp.experiments.measure import Way


def test_ways_take_turns_and_the_first_turn_is_not_timed() -> None:
    calls: list[str] = []

    def way(name: str, seconds: list[float]) -> Way:
        def call() -> object:
            calls.append(name)
            return Lapse(seconds.pop(0), f"{name} {len(calls)}")

        return call

    timings, firsts = take_turns({"a": way("a", [9, 1, 3]), "b": way("b", [9, 4, 2])}, 2)
    assert calls == ["a", "b", "b", "a", "a", "b"]
    assert firsts == {"a": "a 1", "b": "b 2"}
    assert (timings["a"].best, timings["a"].median, timings["a"].spread) == (1, 2, 3)
    assert timings["b"].repeats == 2


def test_an_infinite_ratio_is_written_and_shown() -> None:
    rows = tuple(
        Priced("case", "free", 2, name, moved, moved, ratio, 0.0, 0.1, 1 << 20)
        for name, moved, ratio in (("eindecomp", 0, 1.0), ("sqrt", 2048, inf))
    )
    record = Record.of("chain", False, 1.0, Findings((), rows))
    priced = json.loads(record.json())["findings"]["priced"]
    assert [row["ratio"] for row in priced] == [1.0, None]
    assert "2 KiB (∞)" in show(record)
