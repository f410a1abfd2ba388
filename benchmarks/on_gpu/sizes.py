"""What is measured: the shapes of a real card, and tiny ones that any machine runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eindecomp.models.llama.config import CONFIGS, Config

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Prompt:
    """Sequences that are read at once.

    >>> str(Prompt(16, 1024))
    '16x1024'
    """

    batch: int
    tokens: int

    def __str__(self) -> str:
        return f"{self.batch}x{self.tokens}"


@dataclass(frozen=True, slots=True)
class Limited:
    """A prompt under two limits on the GPU's memory; under the smaller one its batch is cut."""

    prompt: Prompt
    limit: str
    half: str
    repeats: int = 5


@dataclass(frozen=True, slots=True)
class Training:
    """A classifier, cut into so many parts, whose state is larger than the limit."""

    shape: Mapping[str, int]
    limit: str
    parts: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """The cases of all tables."""

    model: Config
    resident: tuple[Prompt, ...]
    cached: int
    host: tuple[Limited, ...]
    larger: Config
    larger_name: str
    larger_prompts: tuple[Prompt, ...]
    larger_limit: str
    disk: Config
    disk_name: str
    disk_prompt: Prompt
    disk_limit: str
    disk_bytes: int
    """Of distinct files: a disk may not hold all weights, nor be written in the time there is."""
    training: Training
    join: int
    repeats: int = 8


def _bfloat16(name: str) -> Config:
    return replace(CONFIGS[name], dtype="bfloat16", positions=4096)


FULL = Sizes(
    model=_bfloat16("7B"),
    resident=(Prompt(1, 4096), Prompt(4, 4096), Prompt(8, 1024)),
    cached=2048,
    host=(
        Limited(Prompt(1, 1024), "1.5GB", "0.75GB"),
        Limited(Prompt(16, 1024), "2.5GB", "1.25GB"),
        Limited(Prompt(16, 4096), "6GB", "3GB", repeats=3),
    ),
    larger=_bfloat16("30B"),
    larger_name="30B",
    larger_prompts=(Prompt(1, 1024), Prompt(8, 1024)),
    larger_limit="4GB",
    disk=_bfloat16("65B"),
    disk_name="65B",
    disk_prompt=Prompt(1, 1024),
    disk_limit="8GB",
    disk_bytes=16 * 10**9,
    training=Training(
        {"batch": 1024, "features": 32768, "hidden": 8192, "classes": 32768}, "4GB", 8
    ),
    join=8192,
)

_TINY = Config(vocabulary=256, width=64, layers=2, heads=4, kv_heads=4, head_size=16, hidden=96)
QUICK = Sizes(
    model=_TINY,
    resident=(Prompt(2, 16),),
    cached=32,
    host=(Limited(Prompt(4, 16), "64.4MiB", "64.2MiB", repeats=2),),
    larger=_TINY,
    larger_name="tiny",
    larger_prompts=(Prompt(1, 16),),
    larger_limit="64.4MiB",
    disk=_TINY,
    disk_name="tiny",
    disk_prompt=Prompt(1, 16),
    disk_limit="64.4MiB",
    disk_bytes=200_000,
    training=Training({"batch": 8, "features": 64, "hidden": 32, "classes": 20}, "64.1MiB", 4),
    join=48,
    repeats=2,
)
