"""The experiments run on any engine."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from agreement import TORCH

from eindecomp.experiments.paper import TINY, ffnn, measure_model


@pytest.mark.long
@pytest.mark.parametrize("second", ["apart", TORCH])
def test_experiments_run_on_any_engine(second):
    shape = {"batch": 4, "features": 12, "hidden": 6, "classes": 4}
    train = partial(ffnn, shape=shape, steps=3, devices=(2,))
    threads, apart = (train(engine=engine) for engine in ("threads", second))
    for one, other in zip(threads.curves, apart.curves, strict=True):
        assert np.allclose(one.losses, other.losses, rtol=1e-5)

    def run_once(case, ours, _repeats, _given):
        return [(case, contender.name, contender.way()) for contender in ours]

    measure = partial(measure_model, TINY, 1, 8, 1, print, race=run_once)
    rows = [measure(engine=engine, strategies=False) for engine in ("threads", second)]
    for (case, name, logits), other in zip(*rows, strict=True):
        assert other[:2] == (case, name)
        assert np.allclose(logits, other[2], rtol=1e-3, atol=1e-4)
