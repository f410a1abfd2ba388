"""`einsum`: plans once for each expression and shape, and refuses what `run` would."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import without_jax, without_torch

import eindecomp as ed
from eindecomp.api.einsum import KEPT, _executable
from eindecomp.engines.apart.engine import ApartEngine
from eindecomp.engines.engine import device_count, find_engine
from eindecomp.engines.threads.engine import ThreadsEngine
from eindecomp.kernels.cores import cores


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


@pytest.fixture
def torch():
    pytest.importorskip("torch.nn", reason="torch is not installed")
    return pytest.importorskip("torch")


TORCH_TYPES = ["bool", "int32", "uint8", "float16", "bfloat16", "float32", "float64", "complex64"]


@without_torch
@pytest.mark.parametrize("engine", [None, "threads", "apart", "torch"])
@pytest.mark.parametrize("dtype", TORCH_TYPES)
def test_tensors_give_a_tensor(engine, dtype, torch):
    agg, join = ("any", "x and y") if dtype == "bool" else ("sum", "x * y")
    x = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    found = ed.einsum("ij,kj->ik", x, x, join=join, agg=agg, engine=engine, devices=2)
    assert (found.dtype, found.device) == (x.dtype, x.device)
    wide = np.arange(6).reshape(2, 3)
    wanted = torch.from_numpy(wide @ wide.T).to(x.dtype)
    assert torch.equal(found, wanted)
    found.zero_()  # it is the caller's, and the next result another one
    again = ed.einsum("ij,kj->ik", x, x, join=join, agg=agg, engine=engine, devices=2)
    assert again.any()
    assert x.any()


@without_torch
@pytest.mark.parametrize("engine", [None, "torch"])
def test_any_tensor_goes_with_arrays_of_numpy(engine, torch):
    x = torch.randn(4, 5)
    for given in (torch.nn.Parameter(x), x.t().contiguous().t(), x[:, ::2], x.expand(3, 4, 5)[0]):
        y = np.ones((given.shape[1], 2), np.float32)
        for found in (
            ed.einsum("ij,jk->ik", given, y, engine=engine),
            ed.einsum("jk,ij->ik", y, given, engine=engine),
        ):
            assert not found.requires_grad
            torch.testing.assert_close(found, given.detach() @ torch.from_numpy(y))


@without_jax
@pytest.mark.parametrize("engine", [None, "threads", "jax"])
@pytest.mark.parametrize("dtype", ["int32", "bfloat16", "float32", "complex64"])
def test_arrays_of_jax_give_one_of_jax(engine, dtype):
    jnp = pytest.importorskip("jax.numpy")
    x = jnp.arange(6).reshape(2, 3).astype(dtype)
    found = ed.einsum("ij,kj->ik", x, x, engine=engine)
    assert isinstance(found, type(x))
    assert found.dtype == x.dtype
    assert np.array_equal(found, x @ x.T)


@without_jax
@without_torch
def test_kinds_that_do_not_go_together_are_refused(torch):
    jax = pytest.importorskip("jax")
    with pytest.raises(ed.InputError, match="of torch and of JAX: convert them"):
        ed.einsum("i,i->", torch.ones(3), jax.numpy.ones(3))
    with pytest.raises(ed.InputError, match="operands are traced by JAX: import the function"):
        jax.jit(lambda x: ed.einsum("i->", x))(np.ones(3))
    with pytest.raises(ed.InputError, match="operand 0: unknown dtype 'float8_e5m2'"):
        ed.einsum("i->", torch.ones(3).to(torch.float8_e5m2))
    with pytest.raises(ed.InputError, match="operand 0 cannot be read as an array"):
        ed.einsum("i->", torch.ones(3, device="meta"))


class CountingEngine(ApartEngine):
    """An engine that says how many devices it has."""

    device_count = 3

    def prepare(self, plan):
        self.planned = plan.devices
        return super().prepare(plan)


def test_plans_are_made_for_the_devices_of_the_engine():
    engine = CountingEngine()
    ed.einsum("ij->i", np.ones((6, 2)), engine=engine)
    assert engine.planned == 3
    ed.einsum("ij->i", np.ones((6, 2)), engine=engine, devices=2)
    assert engine.planned == 2
    graph = ed.models.ffnn(6, 4, 4, 3)
    data, state = ed.models.Synthetic(6, 4, 3), ed.models.initial(graph)
    assert ed.models.fit(graph, data, state, lr=0.1, steps=1, engine=engine).plan.devices == 3
    assert device_count(ApartEngine()) == cores()


@without_torch
@without_jax
def test_devices_that_engines_have():
    from jax_devices import COUNT

    torch = find_engine("torch")
    assert device_count(torch) == len(torch.torch_devices)
    assert device_count(find_engine("torch", {"device": ["cpu", "cpu"]})) == 2
    assert device_count(find_engine("jax", {"platform": "cpu"})) == COUNT
