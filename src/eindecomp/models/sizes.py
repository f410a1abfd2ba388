"""Checks of the numbers that models and data are made with."""

from __future__ import annotations

from typing import TypeGuard

from eindecomp.errors import InputError


def check_sizes(**sizes: object) -> None:
    """Refuse what is not a whole number of at least 1."""
    for name, size in sizes.items():
        if not _is_whole(size) or size < 1:
            raise InputError(f"{name} must be 1 or more, not {size!r}")


def check_start(batch: object) -> None:
    """Refuse a number of a batch that there is not."""
    if not _is_whole(batch) or batch < 0:
        raise InputError(f"batches are numbered from 0 on: there is no {batch!r}")


def check_seed(seed: object) -> None:
    """Refuse what is not a whole number of at least 0."""
    if not _is_whole(seed) or seed < 0:
        raise InputError(f"a seed is a whole number of 0 or more, not {seed!r}")


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
