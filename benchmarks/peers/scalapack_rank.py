"""One rank of ScaLAPACK, started by mpirun: `scalapack_rank LIBRARY FOLDER run|blas`.

The process grid is one row, so that a rank holds whole columns: blocks of them in turn.
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import orjson

from peers.process_grid import Library, ProcessGrid, chain_on

BLOCK = 128
PANELS = "panels.so"
"""The library in the folder, if there is one, that sets the width of ScaLAPACK's panels."""


def _compute(library: Library, folder: Path) -> dict[str, Any]:
    grid = ProcessGrid(library, 1, library.ranks, BLOCK)
    x = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in "ABCDE"}
    compute = chain_on(grid, x)
    compute()
    grid.wait()
    start = perf_counter()
    z = compute()
    grid.wait()
    spent = perf_counter() - start
    np.save(folder / f"Z{library.rank}.npy", z)
    grid.close()
    return {"seconds": spent}


def main() -> None:
    """Rank 0 prints what was found."""
    path, folder, what = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    panels = folder / PANELS
    library = Library.load(path, panels if panels.exists() else None)
    found = {"core": library.core} if what == "blas" else _compute(library, folder)
    if library.rank == 0:
        sys.stdout.buffer.write(orjson.dumps(found))
        sys.stdout.flush()
    library.functions.Cblacs_exit(0)


if __name__ == "__main__":
    main()
