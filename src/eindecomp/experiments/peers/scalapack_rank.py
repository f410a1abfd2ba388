"""One rank of ScaLAPACK, started by mpirun: `scalapack_rank LIBRARY FOLDER run|blas`.

The process grid is one row, so that a rank holds whole columns: blocks of them in turn.
"""

from __future__ import annotations

import sys
from ctypes import CDLL, RTLD_GLOBAL, byref, c_char, c_float, c_int, c_void_p
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import orjson

from eindecomp.experiments.blas import loaded_blas

Array = np.ndarray[Any, Any]
_BLOCK = 128


def columns_of(count: int, rank: int, ranks: int) -> Array:
    """The columns, of so many, that a rank holds.

    >>> columns_of(300, 1, 2)[[0, -1]].tolist()
    [128, 255]
    """
    every = np.arange(count)
    return every[every // _BLOCK % ranks == rank]


class _Grid:
    """The ranks in one row."""

    def __init__(self, library: str) -> None:
        self.library = CDLL(library, RTLD_GLOBAL)
        rank, ranks, context = c_int(), c_int(), c_int()
        self.library.Cblacs_pinfo(byref(rank), byref(ranks))
        self.library.Cblacs_get(-1, 0, byref(context))
        self.library.Cblacs_gridinit(byref(context), b"Row", 1, ranks)
        self.rank, self.ranks, self.context = rank.value, ranks.value, context

    def wait(self) -> None:
        self.library.Cblacs_barrier(self.context, b"All")

    def leave(self) -> None:
        self.library.Cblacs_gridexit(self.context)
        self.library.Cblacs_exit(0)

    def mine(self, whole: Array) -> Array:
        """This rank's columns, as Fortran lays them out."""
        return np.asfortranarray(whole[:, columns_of(whole.shape[1], self.rank, self.ranks)])

    def multiply(self, sizes: tuple[int, int, int], x: Array, y: Array, z: Array, add: int) -> None:
        """Z ← X·Y + add·Z, of m × k and k × n."""
        m, k, n = sizes
        one = c_int(1)

        def tensor(array: Array, rows: int, columns: int) -> tuple[Any, ...]:
            lies = (c_int * 9)(
                1, self.context.value, rows, columns, rows, _BLOCK, 0, 0, max(1, rows)
            )
            return array.ctypes.data_as(c_void_p), byref(one), byref(one), lies

        self.library.psgemm_(
            byref(c_char(b"N")), byref(c_char(b"N")), byref(c_int(m)), byref(c_int(n)),
            byref(c_int(k)), byref(c_float(1)), *tensor(x, m, k), *tensor(y, k, n),
            byref(c_float(add)), *tensor(z, m, n),
        )  # fmt: skip


def _compute(grid: _Grid, folder: Path) -> dict[str, Any]:
    whole = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in "ABCDE"}
    (i, j), (_, k), (_, m), (_, n), _ = (whole[name].shape for name in "ABCDE")
    a, b, c, d, e = (grid.mine(array) for array in whole.values())
    de = np.empty((m, b.shape[1]), np.float32, order="F")
    z = np.empty((i, b.shape[1]), np.float32, order="F")
    spent = 0.0
    for _ in range(2):
        grid.wait()
        start = perf_counter()
        grid.multiply((m, n, k), d, e, de, 0)
        grid.multiply((i, j, k), a, b, z, 0)
        grid.multiply((i, m, k), c, de, z, 1)
        grid.wait()
        spent = perf_counter() - start
    np.save(folder / f"Z{grid.rank}.npy", z)
    return {"seconds": spent}


def _core(library: str) -> dict[str, Any]:
    """What the kernels of the BLAS under ScaLAPACK are for, as far as it says so."""
    before = {blas.path for blas in loaded_blas()}
    CDLL(library, RTLD_GLOBAL)
    added = [blas.core for blas in loaded_blas() if blas.path not in before]
    return {"core": added[0] if added else None}


def main() -> None:
    """Rank 0 prints what was found."""
    library, folder, what = sys.argv[1:]
    core = _core(library)
    grid = _Grid(library)
    found = core if what == "blas" else _compute(grid, Path(folder))
    if grid.rank == 0:
        sys.stdout.buffer.write(orjson.dumps(found))
        sys.stdout.flush()
    grid.leave()


if __name__ == "__main__":
    main()
