"""What a LLaMA looks like: its sizes, how it rotates, and the published configurations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from eindecomp.errors import EinDecompError, InputError, check_whole
from eindecomp.lang.dtypes import BFLOAT16, FLOAT32, Array, DType
from eindecomp.models.llama.read_folder import (
    RopeScaling,
    check_folder,
    config_arguments,
    read_json,
)

DTYPES: dict[str, DType] = {"float32": FLOAT32, "bfloat16": BFLOAT16}
"""The types that a model computes in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The shape of a model.

    Args:
        vocabulary: The number of tokens there are, such as `32000`.
        width: That of the residual stream, such as `4096`.
        layers: How many, such as `32`.
        heads: Query heads, such as `32`; each of the `kv_heads` serves `groups` of them.
        kv_heads: Heads of keys and values, such as `8`.
        head_size: The size of a head, such as `128`.
        hidden: The width of the feed-forward nets, such as `11008`.
        epsilon: Is added to mean squares, such as `1e-5`.
        theta: The base of rotations, such as `10000.0`.
        scaling: How slow rotations are stretched, such as `RopeScaling(32.0, 1.0, 4.0, 8192)`.
        positions: The longest possible sequence, such as `2048`.
        tied: Whether the embedding table is also the output head, such as `True`.
        dtype: What it computes in, `"float32"` or `"bfloat16"`.

    Raises:
        InputError: The sizes do not fit each other.

    Examples:
        >>> CONFIGS["2-70B"].groups
        8
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    hidden: int
    epsilon: float = 1e-5
    theta: float = 10000.0
    scaling: RopeScaling | None = None
    positions: int = 2048
    tied: bool = False
    dtype: str = "float32"

    def __post_init__(self) -> None:
        check_whole(**{name: getattr(self, name) for name in _SIZES})
        for name in ("epsilon", "theta"):
            number = getattr(self, name)
            if not isinstance(number, int | float) or not 0 < number < float("inf"):
                raise InputError(f"a model's {name} is a positive number, not {number!r}")
        if self.heads % self.kv_heads:
            raise InputError(f"{self.heads} heads cannot share {self.kv_heads} kv heads evenly")
        if self.head_size % 2:
            raise InputError(f"heads of odd size {self.head_size} cannot be rotated in pairs")
        if self.dtype not in DTYPES:
            raise InputError(f"a model computes in {' or '.join(DTYPES)}, not {self.dtype!r}")

    @property
    def groups(self) -> int:
        """The number of query heads that share one head of keys and values."""
        return self.heads // self.kv_heads

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        attention = 2 * self.width * self.head_size * (self.heads + self.kv_heads)
        layer = attention + 3 * self.width * self.hidden + 2 * self.width
        tables = self.vocabulary * self.width * (1 if self.tied else 2)
        return self.layers * layer + tables + self.width

    @staticmethod
    def from_folder(folder: str | Path) -> Config:
        """Read the `config.json` of a Hugging Face folder.

        Args:
            folder: Where it is, such as `"Llama-3.2-1B"`.
        """
        path = check_folder(folder) / "config.json"
        values = read_json(path)
        try:
            arguments = config_arguments(values)
            if arguments["dtype"] not in DTYPES:
                arguments["dtype"] = "float32"
            return Config(**arguments)
        except EinDecompError as error:
            raise InputError(f"{path}: {error}") from None


_SIZES = ("vocabulary", "width", "layers", "heads", "kv_heads", "head_size", "hidden", "positions")


def _published(
    width: int, layers: int, heads: int, hidden: int, kv_heads: int | None = None, **more: Any
) -> Config:
    sizes: dict[str, Any] = {"vocabulary": 32000, "kv_heads": kv_heads or heads, **more}
    return Config(
        width=width, layers=layers, heads=heads, head_size=width // heads, hidden=hidden, **sizes
    )


_THIRD: dict[str, Any] = {
    "kv_heads": 8, "positions": 8192, "vocabulary": 128256, "theta": 500000.0,
}  # fmt: skip
_LONG: dict[str, Any] = {"positions": 131072, "scaling": RopeScaling(32.0, 1.0, 4.0, 8192)}

CONFIGS: dict[str, Config] = {
    "7B": _published(4096, 32, 32, 11008, epsilon=1e-6),
    "13B": _published(5120, 40, 40, 13824, epsilon=1e-6),
    "30B": _published(6656, 60, 52, 17920, epsilon=1e-6),
    "65B": _published(8192, 80, 64, 22016),
    "2-7B": _published(4096, 32, 32, 11008, positions=4096),
    "2-13B": _published(5120, 40, 40, 13824, positions=4096),
    "2-70B": _published(8192, 80, 64, 28672, kv_heads=8, positions=4096),
    "3-8B": _published(4096, 32, 32, 14336, **_THIRD),
    "3-70B": _published(8192, 80, 64, 28672, **_THIRD),
    "3.2-1B": _published(2048, 16, 32, 8192, **{**_THIRD, **_LONG, "tied": True}),
}
"""The published models by name; `2-` and `3-` are LLaMA-2 and LLaMA-3."""


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
