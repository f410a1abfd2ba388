"""Contenders in turn, peers that are not there, and records as JSON."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from itertools import count, islice
from math import inf
from typing import TYPE_CHECKING

import numpy as np
import pytest

import eindecomp as ed
from eindecomp import models
from eindecomp.experiments.chain import chain
from eindecomp.experiments.ffnn import RATES, ffnn
from eindecomp.experiments.llama import TINY, measure_model
from eindecomp.experiments.measure import Absent, Contender, Lapse, apart, race, take_turns
from eindecomp.experiments.peers import scalapack
from eindecomp.experiments.peers.torch import TorchNet
from eindecomp.experiments.record import Findings, Priced, Record, Timed
from eindecomp.experiments.show import show

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from eindecomp.experiments.measure import Way

SMALL = {"batch": 8, "features": 32, "hidden": 16, "classes": 10}


def absent(rows: Iterable[Timed]) -> dict[str, str]:
    return {row.name: row.absent for row in rows if row.absent is not None}


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


def test_peers_of_the_chain_that_are_absent_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "dask.array", None)
    monkeypatch.setattr(scalapack, "find_library", lambda _: None)
    found = chain(sizes=(40,), devices=(2,))
    reasons = absent(found.timed)
    assert reasons["torch"] == "torch is not installed"
    assert reasons["dask.array"] == reasons["dask.array, tuned"] == "dask.array is not installed"
    assert "libscalapack" in reasons["ScaLAPACK"]
    shown = show(Record.of("chain", True, 1.0, found))
    assert "torch is absent: torch is not installed" in shown
    assert "NumPy is absent" not in shown


@pytest.mark.long
def test_ranks_without_mpirun_are_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalapack, "find_library", lambda name: f"lib{name}.so")
    monkeypatch.setattr(scalapack, "which", lambda _: None)
    found = chain(sizes=(40,), devices=(2,))
    assert absent(found.timed)["ScaLAPACK"] == "mpirun is not installed"


def test_training_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    found = ffnn(shape=SMALL, steps=3, devices=(2,))
    assert set(absent(found.timed).values()) == {"torch is not installed"}
    assert len(absent(found.timed)) == 2
    assert {curve.name for curve in found.curves} >= {"eindecomp", "data", "megatron"}


@pytest.mark.long
def test_llama_without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    rows = measure_model(TINY, 1, 8, 1, lambda _: None)
    assert absent(rows) == {"transformers": "transformers is not installed"}


@pytest.mark.parametrize("optimizer", list(RATES))
def test_torch_learns_as_we_do(optimizer: str) -> None:
    graph = models.ffnn(**SMALL, optimizer=optimizer)
    state = models.initial(graph)
    data = models.Synthetic(SMALL["batch"], SMALL["features"], SMALL["classes"], nonzeros=8)
    fitted = models.fit(graph, data, state, lr=RATES[optimizer], steps=4, devices=2)
    net = TorchNet(state, optimizer, RATES[optimizer], threads=2)
    losses = [net.step(batch) for batch in islice(data.batches(), 4)]
    np.testing.assert_allclose(losses, fitted.losses, rtol=1e-4)


@pytest.mark.parametrize("tuned", [False, True])
def test_scalapack_computes_the_chain(tuned: bool) -> None:
    graph = models.chain(300, skewed=True)
    rng = np.random.default_rng(0)
    x = {v.name: rng.standard_normal(v.shape, np.float32) for v in graph.inputs}
    try:
        with scalapack.chain(x, tuned) as way:
            found = way()
    except Absent as reason:
        pytest.skip(str(reason))
    assert isinstance(found, Lapse)
    assert found.seconds > 0
    assert apart(found.result, ed.evaluate(graph, x)["Z"]) < 1e-5


def test_a_blas_is_healthy_if_it_knows_its_processor() -> None:
    assert scalapack.unhealthy("SkylakeX") is None
    assert scalapack.unhealthy("neoversen1") is None
    assert "unhealthy BLAS" in str(scalapack.unhealthy(None))
    assert "unhealthy BLAS" in str(scalapack.unhealthy("Prescott"))


def test_an_infinite_ratio_is_written_and_shown() -> None:
    rows = tuple(
        Priced("case", "free", 2, name, moved, moved, ratio, 0.0, 0.1, 1 << 20)
        for name, moved, ratio in (("eindecomp", 0, 1.0), ("sqrt", 2048, inf))
    )
    record = Record.of("chain", False, 1.0, Findings((), rows))
    priced = json.loads(record.json())["findings"]["priced"]
    assert [row["ratio"] for row in priced] == [1.0, "inf"]
    assert "2 KiB (∞)" in show(record)
