"""How LLaMA 3.1 stretches rotations for longer sequences."""

from __future__ import annotations

from dataclasses import dataclass

from eindecomp.errors import InputError


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """LLaMA 3.1's stretching of slow rotations, so that more positions can be told apart."""

    factor: float
    low: float
    """Rotations of fewer turns than this over `positions` are slowed down by the whole factor."""
    high: float
    """Rotations of more turns than this are left as they are."""
    positions: int
    """What the model was first trained on."""

    def __post_init__(self) -> None:
        if not self.factor >= 1 or not 0 < self.low < self.high or self.positions < 1:
            raise InputError(
                "rope scaling needs a factor of at least 1, 0 < low < high and 1 or more "
                f"positions, not {self}"
            )
