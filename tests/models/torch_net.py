"""The classifier as a user of torch would write it: the oracle."""

from __future__ import annotations

import torch

OPTIMIZERS = {
    "sgd": torch.optim.SGD,
    "momentum": lambda parameters, lr: torch.optim.SGD(parameters, lr, momentum=0.9),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


class TorchNet:
    """Parameters by our names, and the mean cross-entropy."""

    def __init__(self, state):
        self.parameters = {
            name: torch.tensor(state[name], requires_grad=True) for name in ("W1", "b1", "W2", "b2")
        }

    def loss(self, batch):
        w1, b1, w2, b2 = self.parameters.values()
        logits = torch.relu(torch.tensor(batch["x"]) @ w1 + b1) @ w2 + b2
        return torch.nn.functional.cross_entropy(logits, torch.tensor(batch["y"]).long())

    def train(self, optimizer, batches, lr):
        """The loss of every step."""
        peer = OPTIMIZERS[optimizer](list(self.parameters.values()), lr=lr)
        losses = []
        for batch in batches:
            peer.zero_grad()
            loss = self.loss(batch)
            loss.backward()
            peer.step()
            losses.append(loss.item())
        return losses
