"""The classifier learns as torch's does, under any plan, and moves what the plan says."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_net import TorchNet

import eindecomp as ed
from eindecomp import models

SIZES = {"batch": 16, "features": 40, "hidden": 24, "classes": 10}
DATA = models.Synthetic(16, 40, 10, nonzeros=8)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw"])
def test_losses_are_torchs_over_20_steps(optimizer):
    lr = 0.5 if optimizer == "sgd" else 0.05 if optimizer == "momentum" else 0.01
    graph = models.ffnn(**SIZES, optimizer=optimizer)
    state = models.initial(graph, seed=1)
    wanted = TorchNet(state).train(optimizer, islice(DATA.batches(), 20), lr)
    found = models.fit(graph, DATA, state, lr=lr, steps=20, devices=2).losses
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    assert found[-1] < 0.8 * found[0]


SIDE = st.sampled_from([1, 4, 7])


@given(SIDE, SIDE, SIDE, SIDE, st.integers(1, 8))
@settings(max_examples=8)
def test_gradients_are_torchs(batch, features, hidden, classes, devices):
    graph = models.ffnn(batch, features, hidden, classes, optimizer=None)
    state = models.initial(graph, seed=2)
    rng = np.random.default_rng(batch)
    x = rng.standard_normal((batch, features)).astype(np.float32)
    y = rng.integers(0, classes, batch).astype(np.int32)
    net = TorchNet(state)
    loss = net.loss({"x": x, "y": y})
    loss.backward()
    found = ed.run(ed.plan(graph, devices), {"x": x, "y": y, **state})
    np.testing.assert_allclose(found["loss"], loss.item(), rtol=1e-5, atol=1e-6)
    for name, parameter in net.parameters.items():
        np.testing.assert_allclose(
            found[f"grad_{name}"], parameter.grad.numpy(), rtol=1e-4, atol=1e-6
        )


def test_large_logits_do_not_overflow():
    graph = models.ffnn(2, 3, 4, 5, optimizer=None)
    state = {name: 1e4 * array for name, array in models.initial(graph).items()}
    inputs = {"x": np.ones((2, 3), np.float32), "y": np.array([0, 4], np.int32), **state}
    found = ed.run(ed.plan(graph, 2), inputs)
    assert all(np.isfinite(array).all() for array in found.values())
    net = TorchNet(state)
    np.testing.assert_allclose(found["loss"], net.loss(inputs).item(), rtol=1e-5)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("strategy", [None, "sqrt", "data", "megatron"])
@pytest.mark.parametrize("devices", range(1, 9))
def test_every_plan_runs_and_moves_what_it_costs(devices, strategy):
    graph = models.ffnn(**SIZES, optimizer="momentum")
    inputs = {**next(DATA.batches()), **models.initial(graph), "lr": 0.1}
    plan = ed.plan(graph, devices, strategy=strategy)
    found = ed.run(plan, inputs)
    assert found.stats.bytes_moved == plan.cost
    assert plan.cost >= ed.plan(graph, devices).cost
    for name, right in ed.evaluate(graph, inputs).items():
        np.testing.assert_allclose(found[name], right, rtol=1e-4, atol=1e-5)


def test_the_plan_cuts_the_layers_and_moves_only_activations():
    graph = models.ffnn(128, 32768, 2048, 14588)
    plan = ed.plan(graph, 2)
    assert plan.parts["new_W1"] == {"f": 1, "h": 2}
    assert plan.parts["new_W2"] == {"h": 1, "c": 2}
    hidden = 128 * 2048 * 4  # bytes: gathered for the second layer, its gradient summed
    assert 2 * hidden <= plan.cost < 2.01 * hidden
    assert plan.gap == 0


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_other_types_train(dtype):
    graph = models.ffnn(**SIZES, optimizer="adam", dtype=dtype)
    state = models.initial(graph)
    assert {array.dtype.name for array in state.values()} == {dtype}
    found = models.fit(graph, DATA, state, lr=0.05, steps=30, devices=2)
    assert found.losses[-1] < 0.7 * found.losses[0]
    assert found.state["W1"].dtype.name == dtype


def test_sizes_are_checked():
    with pytest.raises(ed.EinDecompError, match="hidden must be 1 or more, not 0"):
        models.ffnn(2, 3, 0, 5)
