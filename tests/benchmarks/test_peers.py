"""Peers of the paper's experiments: they compute what we do, and are absent with a reason."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pytest
from peers import scalapack
from peers.of_experiments import chain_peers, ffnn_peers, llama_peers
from peers.race import Absent, beside
from peers.torch import TorchNet

import eindecomp as ed
from eindecomp import models
from eindecomp.experiments.measure import Lapse, apart
from eindecomp.experiments.paper import RATES, TINY, chain, ffnn, measure_model
from eindecomp.experiments.record import Record, Timed, show

if TYPE_CHECKING:
    from collections.abc import Iterable

SMALL = {"batch": 8, "features": 32, "hidden": 16, "classes": 10}


def absent(rows: Iterable[Timed]) -> dict[str, str]:
    return {row.name: row.absent for row in rows if row.absent is not None}


def test_peers_of_the_chain_that_are_absent_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "dask.array", None)
    monkeypatch.setattr(scalapack, "find_library", lambda _: None)
    found = chain(sizes=(40,), devices=(2,), race=beside(chain_peers))
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
    found = chain(sizes=(40,), devices=(2,), race=beside(chain_peers))
    assert absent(found.timed)["ScaLAPACK"] == "mpirun is not installed"


def test_training_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    found = ffnn(shape=SMALL, steps=3, devices=(2,), race=beside(ffnn_peers))
    assert set(absent(found.timed).values()) == {"torch is not installed"}
    assert len(absent(found.timed)) == 2
    assert {curve.name for curve in found.curves} >= {"eindecomp", "data", "megatron"}


@pytest.mark.long
def test_llama_without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    rows = measure_model(TINY, 1, 8, 1, lambda _: None, race=beside(llama_peers))
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
