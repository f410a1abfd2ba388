"""Choosing the next token from its logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eindecomp.errors import InputError, RunError
from eindecomp.models.sizes import check_whole

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen: the likeliest at temperature 0, else drawn.

    `top_k` draws from the k likeliest, `top_p` from the fewest whose probabilities reach p; both at
    once mean first the one, then the other.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise InputError(f"a temperature is 0 or more, not {self.temperature!r}")
        if self.top_k is not None and self.top_k < 1:
            raise InputError(f"top_k is 1 or more, not {self.top_k!r}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise InputError(f"top_p is above 0 and at most 1, not {self.top_p!r}")
        check_whole(0, seed=self.seed)

    def sampler(self) -> Sampler:
        """What chooses one token after another."""
        return Sampler(self)


class Sampler:
    """Chooses tokens; the same seed and logits give the same ones."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self._rng = np.random.default_rng(sampling.seed)

    def choose(self, logits: Array) -> int:
        """A token by its logits, [vocabulary]."""
        if np.isnan(logits).any():
            raise RunError("logits are NaN: the weights are damaged, or too large for their type")
        if not self.sampling.temperature:
            return int(logits.argmax())
        tokens, chances = probabilities(logits, self.sampling)
        return int(self._rng.choice(tokens, p=chances))


def probabilities(logits: Array, sampling: Sampling) -> tuple[Array, Array]:
    """The tokens that may be drawn, likeliest first, and their probabilities."""
    # From the largest down: where the temperature is next to nothing, the others become -inf.
    with np.errstate(over="ignore"):
        wide = logits.astype(np.float64)
        scaled = (wide - wide.max()) / sampling.temperature
    tokens = np.argsort(-scaled, kind="stable")
    if sampling.top_k is not None:
        tokens = tokens[: sampling.top_k]
    chances = np.exp(scaled[tokens] - scaled[tokens[0]])
    chances /= chances.sum()
    if sampling.top_p is not None:
        before = np.cumsum(chances) - chances
        keep = before < sampling.top_p
        tokens, chances = tokens[keep], chances[keep]
        chances /= chances.sum()
    return tokens, chances
