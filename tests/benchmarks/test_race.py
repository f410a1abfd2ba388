"""Races: peers are put away, those that fail are out, and those that are absent are named."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pytest
from peers.race import Absent, race

import eindecomp as ed
from eindecomp.experiments.measure import Contender
from eindecomp.experiments.record import Findings, Record, show

if TYPE_CHECKING:
    from collections.abc import Generator

    from eindecomp.experiments.measure import Way


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
