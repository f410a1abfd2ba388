"""ScaLAPACK in a process that is a rank: ranks as a grid, matrices dealt to them in blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ctypes import CDLL, RTLD_GLOBAL, byref, c_char, c_float, c_int, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from eindecomp.errors import RunError

Array = np.ndarray[Any, Any]


def blas_cores() -> dict[str, str | None]:
    """The processor that each BLAS of this process has kernels for, as far as it says so."""
    infos = [info for info in threadpool_info() if info["user_api"] == "blas"]
    return {info["filepath"]: info.get("architecture") for info in infos}


@dataclass(frozen=True, slots=True)
class Library:
    """ScaLAPACK as this process has loaded it, and which rank among how many this process is."""

    functions: CDLL
    core: str | None
    """The processor that the kernels of its BLAS are for, as far as it says so."""
    rank: int
    ranks: int
    panels: CDLL | None

    @classmethod
    def load(cls, library: str, panels: Path | None = None) -> Library:
        """Load it; if there is a library that sets the width of panels, that one first."""
        # What is global already goes before a function of the same name that is loaded later.
        width = None if panels is None else CDLL(str(panels), RTLD_GLOBAL)
        before = blas_cores()
        functions = CDLL(library, RTLD_GLOBAL)
        added = [core for path, core in blas_cores().items() if path not in before]
        rank, ranks = c_int(), c_int()
        functions.Cblacs_pinfo(byref(rank), byref(ranks))
        return cls(functions, added[0] if added else None, rank.value, ranks.value, width)

    def set_panel_width(self, columns: int) -> None:
        """Multiply panels of so many columns from now on."""
        if self.panels is None:
            raise RunError("ScaLAPACK was loaded with panels of one width")
        c_int.in_dll(self.panels, "panel_width").value = columns


def dealt(count: int, place: int, places: int, block: int) -> Array:
    """Which of so many rows or columns a place among several holds: blocks of them in turn.

    >>> dealt(300, 1, 2, 128)[[0, -1]].tolist()
    [128, 255]
    """
    every = np.arange(count)
    return every[every // block % places == place]


class ProcessGrid:
    """Ranks in rows and columns; along a side that has only one of them nothing is cut."""

    def __init__(self, library: Library, rows: int, columns: int, block: int) -> None:
        self.library = library.functions
        self.shape, self.block = (rows, columns), block
        self.place = divmod(library.rank, columns)
        self.context = c_int()
        self.library.Cblacs_get(-1, 0, byref(self.context))
        self.library.Cblacs_gridinit(byref(self.context), b"Row", rows, columns)

    def wait(self) -> None:
        """Return when all ranks are here."""
        self.library.Cblacs_barrier(self.context, b"All")

    def close(self) -> None:
        """Give the grid up; the ranks may form another."""
        self.library.Cblacs_gridexit(self.context)

    def mine(self, whole: Array) -> Array:
        """This rank's blocks of a matrix, as Fortran lays them out."""
        rows, columns = self._held(*whole.shape)
        return np.asfortranarray(whole[np.ix_(rows, columns)])

    def empty(self, rows: int, columns: int) -> Array:
        """Room for this rank's blocks of a matrix of that size."""
        shape = tuple(len(held) for held in self._held(rows, columns))
        return np.empty(shape, np.float32, order="F")

    def multiply(self, sizes: tuple[int, int, int], x: Array, y: Array, z: Array, add: int) -> None:
        """Z ← X·Y + add·Z, of m × k and k × n."""
        m, k, n = sizes
        self.library.psgemm_(
            byref(c_char(b"N")), byref(c_char(b"N")), byref(c_int(m)), byref(c_int(n)),
            byref(c_int(k)), byref(c_float(1)), *self._described(x, m, k),
            *self._described(y, k, n), byref(c_float(add)), *self._described(z, m, n),
        )  # fmt: skip

    def _described(self, array: Array, rows: int, columns: int) -> tuple[Any, ...]:
        blocks = self._blocks(rows, columns)
        lies = (c_int * 9)(
            1, self.context.value, rows, columns, *blocks, 0, 0, max(1, array.shape[0])
        )
        return array.ctypes.data_as(c_void_p), byref(c_int(1)), byref(c_int(1)), lies

    def _held(self, rows: int, columns: int) -> list[Array]:
        blocks = self._blocks(rows, columns)
        sides = zip((rows, columns), self.place, self.shape, blocks, strict=True)
        return [dealt(*side) for side in sides]

    def _blocks(self, rows: int, columns: int) -> tuple[int, int]:
        high, wide = self.shape
        return (self.block if high > 1 else rows, self.block if wide > 1 else columns)


def chain_on(grid: ProcessGrid, x: Mapping[str, Array]) -> Callable[[], Array]:
    """Computes this rank's blocks of (A·B) + (C·(D·E)); the inputs are dealt out before."""
    (i, j), (_, k), (_, m), (_, n), _ = (x[name].shape for name in "ABCDE")
    a, b, c, d, e = (grid.mine(x[name]) for name in "ABCDE")
    de, z = grid.empty(m, k), grid.empty(i, k)

    def compute() -> Array:
        grid.multiply((m, n, k), d, e, de, 0)
        grid.multiply((i, j, k), a, b, z, 0)
        grid.multiply((i, m, k), c, de, z, 1)
        return z

    return compute
