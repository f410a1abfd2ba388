"""The experiments run on any engine."""

from __future__ import annotations

from functools import partial
from importlib import import_module

import numpy as np
import pytest
from agreement import TORCH


@pytest.mark.long
@pytest.mark.parametrize("second", ["apart", TORCH])
def test_experiments_run_on_any_engine(second, monkeypatch):
    ffnn, llama = (import_module(f"eindecomp.experiments.{name}") for name in ("ffnn", "llama"))
    shape = {"batch": 4, "features": 12, "hidden": 6, "classes": 4}
    train = partial(ffnn.ffnn, shape=shape, steps=3, devices=(2,))
    threads, apart = (train(engine=engine) for engine in ("threads", second))
    for one, other in zip(threads.curves, apart.curves, strict=True):
        assert np.allclose(one.losses, other.losses, rtol=1e-5)
    monkeypatch.setattr(llama, "race", lambda case, ours, _peers, _repeats: [
        (case, contender.name, contender.way()) for contender in ours
    ])  # fmt: skip
    measure = partial(llama.measure_model, llama.TINY, 1, 8, 1, print)
    rows = [measure(engine=engine, strategies=False) for engine in ("threads", second)]
    for (case, name, logits), other in zip(*rows, strict=True):
        assert other[:2] == (case, name)
        assert np.allclose(logits, other[2], rtol=1e-3, atol=1e-4)
