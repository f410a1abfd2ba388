"""How LLaMA 3.1 stretches rotations for longer sequences."""

from __future__ import annotations

from dataclasses import dataclass

from eindecomp.errors import InputError


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """LLaMA 3.1's stretching of slow rotations, so that more positions are distinguishable."""

    factor: float
    low: float
    """Rotations with fewer turns than this over `positions` are slowed by the whole factor."""
    high: float
    """Rotations with more turns than this are left unchanged."""
    positions: int
    """The sequence length of the original training."""

    def __post_init__(self) -> None:
        if not self.factor >= 1 or not 0 < self.low < self.high or self.positions < 1:
            raise InputError(
                "rope scaling needs a factor of at least 1, 0 < low < high and 1 or more "
                f"positions, not {self}"
            )
