"""A module's training step, imported, differentiated and planned, against PyTorch's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import nn

import eindecomp as ed
from eindecomp.models.optimizers import training_step


class Language(nn.Module):
    """A small language model that returns its loss."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)
        self.mix = nn.Linear(8, 24, bias=False)
        self.feed = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, ids, targets):
        x = self.table(ids)
        q, k, v = self.mix(self.norm(x)).view(2, 6, 3, 2, 4).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + mixed.transpose(1, 2).reshape(2, 6, 8)
        x = x + self.feed(x)
        logits = x @ self.table.weight.T
        return {"loss": F.cross_entropy(logits.view(-1, 11), targets.view(-1), ignore_index=3)}


@pytest.mark.long
def test_two_steps_of_adamw_are_those_of_torch():
    torch.manual_seed(0)
    module = Language()
    ids, targets = torch.randint(0, 11, (2, 6)), torch.randint(0, 11, (2, 6))
    graph = ed.from_torch(module, (ids, targets))
    weights = {name: array.copy() for name, array in ed.torch_weights(module, graph).items()}
    step = training_step(graph, "loss", [*weights], "adamw")
    plan = ed.plan(step, devices=4)
    assert dict(plan.graph.ties).keys() >= weights.keys()
    state = dict(weights)
    for name in step.ties:
        state.setdefault(name, np.zeros(step[name].shape, "float32"))
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2, weight_decay=1e-2)
    for count in (1, 2):
        given = {**state, "ids": ids, "targets": targets, "lr": 1e-2, "step": count}
        result = ed.run(plan, given)
        loss = module(ids, targets)["loss"]
        np.testing.assert_allclose(result["loss"], loss.item(), rtol=1e-5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state = {name: np.asarray(result[new]) for name, new in step.ties.items()}
    for name, tensor in module.named_parameters():
        np.testing.assert_allclose(state[name], tensor.detach(), rtol=1e-4, atol=1e-5)
