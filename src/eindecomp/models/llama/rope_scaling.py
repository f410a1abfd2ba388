"""How LLaMA 3.1 stretches rotations for longer sequences."""

from __future__ import annotations

from dataclasses import dataclass

from eindecomp.errors import InputError


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """LLaMA 3.1's stretching of slow rotations, so that more positions are distinguishable.

    Args:
        factor: By how much the slowest are slowed, such as `32.0`.
        low: Rotations with fewer turns than this over `positions` are slowed by the whole factor,
            such as `1.0`.
        high: Rotations with more turns than this are left unchanged, such as `4.0`.
        positions: The sequence length of the original training, such as `8192`.

    Examples:
        >>> RopeScaling(32.0, 1.0, 4.0, 8192).factor
        32.0
    """

    factor: float
    low: float
    high: float
    positions: int

    def __post_init__(self) -> None:
        if not self.factor >= 1 or not 0 < self.low < self.high or self.positions < 1:
            raise InputError(
                "rope scaling needs a factor of at least 1, 0 < low < high and 1 or more "
                f"positions, not {self}"
            )
