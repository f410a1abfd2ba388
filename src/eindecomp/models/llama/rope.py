"""Rotary position embeddings: the table of rotations for queries and keys."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.models.llama.config import DTYPES

if TYPE_CHECKING:
    from eindecomp.models.llama.config import Config

    Array = np.ndarray[Any, Any]


@cache
def frequencies(config: Config) -> Array:
    """The angle by which each pair of a head's numbers turns from one position to the next."""
    size = config.head_size
    speed = config.theta ** -(np.arange(0, size, 2, dtype=np.float64) / size)
    scaling = config.scaling
    if scaling is None:
        return speed
    turns = scaling.positions * speed / (2 * np.pi)
    keep = np.clip((turns - scaling.low) / (scaling.high - scaling.low), 0, 1)
    return speed * (keep + (1 - keep) / scaling.factor)


def rotations(config: Config, positions: Array) -> Array:
    """The rotation matrices of each pair at the given positions: [..., into, from, pair].

    >>> from eindecomp.models.llama.config import CONFIGS
    >>> rotations(CONFIGS["7B"], np.arange(5)).shape
    (5, 2, 2, 64)
    """
    angle = np.asarray(positions, np.float64)[..., None] * frequencies(config)
    turned = np.empty((*angle.shape[:-1], 2, 2, angle.shape[-1]), DTYPES[config.dtype])
    turned[..., 0, 0, :] = turned[..., 1, 1, :] = np.cos(angle)
    sin = np.sin(angle)
    turned[..., 0, 1, :], turned[..., 1, 0, :] = -sin, sin
    return turned
