"""`einsum`: plans once for each expression and shape, and refuses what `run` would."""

from __future__ import annotations

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.api.einsum import KEPT, _executable
from eindecomp.engines.threads.engine import ThreadsEngine


@pytest.mark.parametrize("devices", [1, 2, 5])
def test_einsum_plans_and_runs(devices):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((5, 7)), rng.standard_normal((7, 3))
    assert np.allclose(ed.einsum("ij,jk->ik", x, y, devices=devices), x @ y)
    apart = ed.einsum("ij,jk->ik", x, y, join="(x-y)**2", agg="max", devices=devices)
    assert np.allclose(apart, ((x[:, :, None] - y[None]) ** 2).max(axis=1))
    assert np.allclose(ed.einsum("ii->i", x[:, :5]), np.diagonal(x[:, :5]))


def test_operands_in_any_byte_order():
    x = np.arange(6.0).reshape(2, 3)
    for kind in (">f8", ">f4", ">i4"):
        found = ed.einsum("ij,kj->ik", x.astype(kind), x.astype(kind))
        assert np.allclose(found, x @ x.T)
        assert found.dtype == np.dtype(kind).newbyteorder("=")


def test_what_was_used_last_is_kept():
    _executable.cache_clear()
    x = np.ones(2)
    ed.einsum("i->i", x)
    for size in range(3, KEPT + 10):
        ed.einsum("i->i", x)
        ed.einsum("i->", np.ones(size), agg="max")
    assert _executable.cache_info().misses == KEPT + 8
    assert _executable.cache_info().currsize == KEPT


def test_what_cannot_fit_is_refused():
    x = np.ones(1 << 20, np.float32)
    with pytest.raises(ed.InputError, match=r"needs .*; .* available"):
        ed.einsum("i,j->ij", x, x)


def test_einsum_refuses_what_equals_a_number_it_knows():
    x = np.ones((2, 3))
    assert ed.einsum("ij->ijk", x, devices=2, sizes={"k": 4}).shape == (2, 3, 4)
    with pytest.raises(ed.PlanError, match="devices must be an integer"):
        ed.einsum("ij->ijk", x, devices=2.0, sizes={"k": 4})
    with pytest.raises(ed.GraphError, match="whole number"):
        ed.einsum("ij->ijk", x, devices=2, sizes={"k": 4.0})


def test_any_engine_computes_it():
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((5, 7)), rng.standard_normal((7, 3))
    for engine in ("apart", ThreadsEngine(workers=1)):
        found = ed.einsum("ij,jk->ik", x, y, join="(x-y)**2", devices=4, engine=engine)
        assert np.allclose(found, ((x[:, :, None] - y) ** 2).sum(axis=1))
        assert np.allclose(ed.einsum("ij->j", x, agg="max", devices=3, engine=engine), x.max(0))
    with pytest.raises(ed.InputError, match="there is no engine 'apartt'; did you mean 'apart'"):
        ed.einsum("i->i", x[0], engine="apartt")
