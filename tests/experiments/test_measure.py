"""Contenders in turn, peers that are not there, and records as JSON."""

from __future__ import annotations

import json
from contextlib import contextmanager
from itertools import count
from math import inf
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.experiments.measure import Absent, Contender, Lapse, race, take_turns
from eindecomp.experiments.record import Findings, Priced, Record
from eindecomp.experiments.show import show

if TYPE_CHECKING:
    from collections.abc import Generator

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


def test_peers_are_put_away_and_compared_with_ours() -> None:
    graph = ed.parse("input X[i: 4]\nZ[i] <- 2 * X[i]\noutput Z")
    plan = ed.plan(graph, 2)
    x = np.ones(4, np.float32)
    ours = Contender("ours", "ours", lambda: ed.run(plan, {"X": x})["Z"], plan)
    open_: list[str] = []

    @contextmanager
    def peer() -> Generator[Way]:
        open_.append("peer")
        yield lambda: 2.2 * x
        open_.remove("peer")

    first, second = race("case", [ours], {"peer": peer}, 2)
    assert open_ == []
    assert (first.ratio, first.error, first.bytes_counted) == (1.0, 0.0, 0)
    assert second.error == pytest.approx(0.1, rel=1e-5)
    assert second.devices is second.plan_cost is None


def test_a_peer_that_fails_is_out_and_the_others_are_kept() -> None:
    graph = ed.parse("input X[i: 4]\nZ[i] <- 2 * X[i]\noutput Z")
    plan = ed.plan(graph, 2)
    x = np.ones(4, np.float32)
    ours = Contender("ours", "ours", lambda: ed.run(plan, {"X": x})["Z"], plan)
    turns = count()

    @contextmanager
    def peer() -> Generator[Way]:
        yield lambda: 2 * x if next(turns) < 2 else 1 / 0

    first, second = race("case", [ours], {"peer": peer}, 3)
    assert first.timing is not None
    assert first.timing.repeats == 3
    assert (second.timing, second.absent) == (None, "it failed: division by zero")


def test_a_peer_that_is_absent_is_named_with_the_reason() -> None:
    graph = ed.parse("input X[i: 4]\nZ[i] <- 2 * X[i]\noutput Z")
    plan = ed.plan(graph, 2)
    x = np.ones(4, np.float32)
    ours = Contender("ours", "ours", lambda: ed.run(plan, {"X": x})["Z"], plan)

    def peer() -> NoReturn:
        raise Absent("peer is not installed")

    rows = race("case", [ours], {"peer": peer}, 1)
    shown = show(Record.of("chain", True, 1.0, Findings(tuple(rows), ())))
    assert "peer is absent: peer is not installed" in shown


def test_an_infinite_ratio_is_written_and_shown() -> None:
    rows = tuple(
        Priced("case", "free", 2, name, moved, moved, ratio, 0.0, 0.1, 1 << 20)
        for name, moved, ratio in (("eindecomp", 0, 1.0), ("sqrt", 2048, inf))
    )
    record = Record.of("chain", False, 1.0, Findings((), rows))
    priced = json.loads(record.json())["findings"]["priced"]
    assert [row["ratio"] for row in priced] == [1.0, None]
    assert "2 KiB (∞)" in show(record)
