"""Updates are those of torch.optim, whatever the parameters."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

import eindecomp as ed
from eindecomp import models
from eindecomp.models.optimizers import OPTIMIZERS

CASES = {
    "sgd": (models.sgd, torch.optim.SGD, {}),
    "sgd, decay": (
        partial(models.sgd, weight_decay=0.1),
        torch.optim.SGD,
        {"weight_decay": 0.1},
    ),
    "momentum": (models.momentum, torch.optim.SGD, {"momentum": 0.9}),
    "momentum, decay": (
        partial(models.momentum, factor=0.8, weight_decay=0.1),
        torch.optim.SGD,
        {"momentum": 0.8, "weight_decay": 0.1},
    ),
    "nesterov": (
        partial(models.momentum, nesterov=True),
        torch.optim.SGD,
        {"momentum": 0.9, "nesterov": True},
    ),
    "nesterov, decay": (
        partial(models.momentum, nesterov=True, weight_decay=0.1),
        torch.optim.SGD,
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    ),
    "adam": (models.adam, torch.optim.Adam, {}),
    "adam, decay": (
        partial(models.adam, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.1),
        torch.optim.Adam,
        {"betas": (0.8, 0.99), "eps": 1e-6, "weight_decay": 0.1},
    ),
    "adamw": (models.adamw, torch.optim.AdamW, {}),
    "adamw, decay": (
        partial(models.adamw, weight_decay=0.3),
        torch.optim.AdamW,
        {"weight_decay": 0.3},
    ),
}


def update_graph(optimizer, shapes, dtype):
    graph = ed.Graph()
    for name, shape in shapes.items():
        sizes = {f"d{k}": size for k, size in enumerate(shape)}
        graph.input(name, sizes, dtype)
        graph.input(f"g_{name}", sizes, dtype)
    optimizer(graph, list(shapes), [f"g_{name}" for name in shapes])
    return graph


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_updates_are_torchs(case, dtype):
    ours, theirs, options = CASES[case]
    shapes = {"V": (3, 5), "w": (4,), "t": ()}
    graph = update_graph(ours, shapes, dtype)
    plan = ed.plan(graph, 2)
    rng = np.random.default_rng(0)
    state = {name: np.zeros(graph[name].shape, dtype) for name in graph.ties}
    state |= {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    tensors = [torch.tensor(state[name]) for name in shapes]
    peer = theirs(tensors, lr=0.03, **options)
    for step in range(1, 8):
        slopes = {
            name: np.asarray(rng.standard_normal(shape), dtype) for name, shape in shapes.items()
        }
        for tensor, slope in zip(tensors, slopes.values(), strict=True):
            tensor.grad = torch.tensor(slope)
        peer.step()
        scalars = {"lr": 0.03, "step": step}
        given = {k: v for k, v in scalars.items() if k in graph.scalars}
        given |= {f"g_{name}": slope for name, slope in slopes.items()}
        found = ed.run(plan, {**state, **given})
        state = {name: found[new] for name, new in graph.ties.items()}
        for name, tensor in zip(shapes, tensors, strict=True):
            tolerance = 2e-6 if dtype == "float32" else 1e-14
            np.testing.assert_allclose(state[name], tensor.numpy(), rtol=tolerance, atol=tolerance)


def test_the_learning_rate_is_not_rounded_for_wide_parameters():
    graph = update_graph(models.sgd, {"w": (1,)}, "float64")
    found = ed.run(ed.plan(graph, 1), {"w": [0.0], "g_w": [1.0], "lr": 0.1})
    assert found["new_w"][0] == -0.1


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (partial(models.sgd, weight_decay=-1), "weight_decay must be at least 0"),
        (partial(models.momentum, factor=1.0), "factor must be at least 0 and less than 1"),
        (partial(models.adam, betas=(0.9, 1.5)), "a beta must be"),
        (partial(models.adamw, eps=float("nan")), "eps must be"),
    ],
)
def test_settings_out_of_range_are_refused(optimizer, message):
    with pytest.raises(ed.EinDecompError, match=message):
        update_graph(optimizer, {"w": (3,)}, "float32")


def test_parameters_and_gradients_must_fit():
    graph = ed.parse("input W[i: 3], g[i], h[j: 4]\nT[i] <- W[i] + g[i]\noutput T")
    with pytest.raises(ed.EinDecompError, match=r"has shape \(3,\), its gradient \(4,\)"):
        models.sgd(graph, ["W"], ["h"])
    with pytest.raises(ed.EinDecompError, match="only inputs are parameters"):
        models.sgd(graph, ["T"], ["g"])
    with pytest.raises(ed.EinDecompError, match="1 parameters, but 2 gradients"):
        models.sgd(graph, ["W"], ["g", "h"])


def test_an_unknown_optimiser_is_refused_with_a_hint():
    with pytest.raises(ed.EinDecompError, match="did you mean 'adamw'"):
        models.ffnn(2, 3, 4, 5, optimizer="addamw")
    assert set(OPTIMIZERS) == {"sgd", "momentum", "adam", "adamw"}
