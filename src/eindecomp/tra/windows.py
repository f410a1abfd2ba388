"""Windows: how many bytes of a memory a tensor takes."""

from __future__ import annotations

ALIGNMENT = 512
"""Every window begins at a multiple of so many bytes."""


def window_bytes(nbytes: int) -> int:
    """The bytes of a window: at least one unit, so that no two begin at one place."""
    return max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT
