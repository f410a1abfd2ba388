"""The chain by ScaLAPACK's `psgemm`, on the ranks of a job that is running already."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
from peers import scalapack
from peers.process_grid import Library, ProcessGrid, chain_on
from peers.race import Absent

from eindecomp.experiments.measure import apart

Array = np.ndarray[Any, Any]
_BLOCKS = (128, 256)
_WIDTHS = (256, 512)
"""Of panels, whose products are computed at once; ScaLAPACK's own width of 32 is far slower."""
_ROUNDING = 1e-4


@dataclass(frozen=True, slots=True)
class Tuned:
    """One way to set ScaLAPACK up for a chain, with inputs dealt out."""

    library: Library
    grid: ProcessGrid
    width: int
    chain: Callable[[], Array]

    def __str__(self) -> str:
        rows, columns = self.grid.shape
        return (
            f"ScaLAPACK on {rows} × {columns} ranks, blocks of {self.grid.block}, panels of "
            f"{self.width}, one thread of a BLAS for {self.library.core}"
        )

    def compute(self) -> Array:
        """This rank's blocks of the result."""
        self.library.set_panel_width(self.width)
        return self.chain()

    def agrees(self, transport: Any, wanted: Array) -> bool:
        """Whether all ranks compute their blocks of a result; they ask together."""
        wrong = apart(self.compute(), self.grid.mine(wanted)) > _ROUNDING
        return not transport.gather_counts(np.array([wrong], np.int64)).sum()


def fastest(transport: Any, ready: Callable[[], object], x: Mapping[str, Array]) -> Tuned:
    """The fastest of all grids of these ranks with some blocks and panels; they ask together.

    Our own libraries should have been chosen before: ScaLAPACK's BLAS would be among them.
    """
    library = _library(transport)
    best: Tuned | None = None
    least = 0
    for setting in _settings(library, x):
        if best is None:
            setting.compute()  # connects ranks
        spent = _nanoseconds(transport, ready, setting)
        if best is None or spent < least:
            if best is not None:
                best.grid.close()
            best, least = setting, spent
        else:
            setting.grid.close()
    assert best is not None
    return best


def _settings(library: Library, x: Mapping[str, Array]) -> Iterator[Tuned]:
    for rows, block, width in product(range(1, library.ranks + 1), _BLOCKS, _WIDTHS):
        if library.ranks % rows == 0:
            grid = ProcessGrid(library, rows, library.ranks // rows, block)
            yield Tuned(library, grid, width, chain_on(grid, x))


def _nanoseconds(transport: Any, ready: Callable[[], object], setting: Tuned) -> int:
    """What it takes, all ranks' times together, so that they find the same one fastest."""
    ready()
    start = perf_counter()
    setting.compute()
    ready()
    return int(transport.gather_counts(np.array([1e9 * (perf_counter() - start)], np.int64)).sum())


def _library(transport: Any) -> Library:
    """ScaLAPACK in this process, if it can be measured fairly."""
    if transport.name != "mpi":
        raise Absent("ScaLAPACK needs ranks of MPI")
    library = _loaded()
    if library.ranks != transport.size:
        raise Absent("ScaLAPACK was built for another MPI than that of the job")
    if reason := scalapack.unhealthy(library.core):
        raise Absent(reason)
    return library


@cache
def _loaded() -> Library:
    os.environ.update(scalapack.blas_setting())  # read by the BLAS that is loaded next
    with TemporaryDirectory(prefix="eindecomp-") as folder:
        return Library.load(scalapack.find(), scalapack.widen_panels(Path(folder)))
