"""In how many ways a tile kernel may be run, and which of them is the fastest on a card.

The first call on sizes of a class measures; the verdict is kept with the compiled kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import triton

from eindecomp.errors import RunError
from eindecomp.kernels.measured import Verdicts, fastest_of
from eindecomp.kernels.torch.timing import seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class Config:
    """One way to run a kernel: a block of the tile, the blocks of a tile, and the rest."""

    rows: int
    cols: int
    high: int = 1
    wide: int = 1
    warps: int = 4
    unroll: int = 4
    """How many summed steps are written out, each a pack where inputs are packed."""
    packed: bool = False
    """Whether inputs are first copied so that rows or columns, and packs of summed steps, are
    neighbours in memory, and one load brings a pack."""
    registers: int | None = None
    """The most that a thread may have, so that more of them run at once."""

    @property
    def tile(self) -> tuple[int, int]:
        """The rows and columns of a tile."""
        return self.rows * self.high, self.cols * self.wide

    @property
    def options(self) -> dict[str, Any]:
        """What Triton's compiler is told."""
        limit = {} if self.registers is None else {"maxnreg": self.registers}
        return {"num_warps": self.warps, "enable_fp_fusion": True, **limit}

    def __str__(self) -> str:
        how = "packed" if self.packed else "direct"
        tile = f"{self.high}x{self.wide} of {self.rows}x{self.cols}"
        limit = "" if self.registers is None else f" registers {self.registers}"
        return f"{how} {tile} unroll {self.unroll} warps {self.warps}{limit}"


INTERPRETED = Config(8, 8, 2, 2, unroll=2)
LARGE = (
    Config(8, 16, 4, 8, 4, 1, True),
    Config(8, 16, 8, 4, 4, 1, True, 96),
    Config(8, 16, 8, 8, 4, 1, True, 144),
    Config(8, 16, 8, 8, 4, 1, True, 128),
    Config(16, 16, 8, 8, 8, 4, registers=128),
)
"""Ways for many rows and columns. A block has one accumulator for each thread, so that a tile takes
`high` times `wide` registers, and a step as many loads as their sum."""
_SMALL = (
    Config(8, 16, 4, 4, 4, 1, True),
    Config(8, 16, 4, 4, 4, 4),
    Config(8, 16, 2, 2, 4, 8),
    Config(4, 8, 2, 2, 1, 8),
)
_MOST = 8  # ways that are tried: each has to be compiled
_REGISTERS = 128  # that accumulators may take
_PROGRAMS = 264  # two for each multiprocessor of a large card
MANY = 2**33
"""Points from which on it pays to measure several configurations."""


def tile_configs(batch: int, rows: int, cols: int, points: int, width: int) -> list[Config]:
    """The ways worth trying for a tile kernel, of which the first serves without measuring.

    `points` are those of the join; `width` is the number of registers that a state takes. Tiles are
    smaller where large ones would leave multiprocessors idle.

    >>> print(tile_configs(1, 8192, 8192, 2**39, 1)[0])
    packed 4x8 of 8x16 unroll 1 warps 4
    >>> [config.tile for config in tile_configs(1, 512, 512, 2**39, 1)]
    [(16, 32), (8, 16)]
    """
    fitting: list[Config] = []
    filling: list[Config] = []
    for way in (*LARGE, *_SMALL):
        high, wide = way.tile
        if way.high * way.wide * width <= _REGISTERS and high <= rows and wide <= cols:
            fitting.append(way)
            if batch * -(-rows // high) * -(-cols // wide) >= _PROGRAMS:
                filling.append(way)
    height, breadth = _power(rows, 8), _power(cols, 16)
    block = Config(height, breadth, unroll=8, warps=max(1, height * breadth // 32))
    found = filling[:_MOST] or [*fitting[-1:], block]
    return found if points >= MANY else found[:1]


def _power(size: int, most: int) -> int:
    return min(most, 1 << max(size - 1, 0).bit_length())


_VERDICTS = Verdicts("triton joins", lambda: [triton.__version__, torch.cuda.get_device_name()])


def fastest_config(name: str, configs: Sequence[Config], run: Callable[[Config], object]) -> Config:
    """The fastest way for a class of joins, measured once; those that do not run are left out."""
    if len(configs) == 1 or torch.cuda.is_current_stream_capturing():
        return configs[0]
    by_name = {str(config): config for config in configs}

    def measure() -> str:
        ways: dict[str, Callable[[], None]] = {}
        failures: list[str] = []
        for each, config in by_name.items():
            try:
                run(config)  # compiles
                ways[each] = partial(run, config)
            except Exception as error:
                failures.append(f"{each}: {error}")
        if not ways:
            raise RunError(f"no way to compute this runs: {failures[0]}")
        return fastest_of(ways, partial(seconds_of, device=torch.device("cuda")))

    return by_name[_VERDICTS.find(name, measure, by_name.__contains__)]
