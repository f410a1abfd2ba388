"""The chain in ScaLAPACK: a rank for each core under `mpirun`, each with one BLAS thread.

It multiplies panels of 32 columns unless its function `pilaenv` says otherwise, which takes half as
long again and more; `tuned` puts one in its place that says 256. Ranks would spin while they wait
for their turn, so that every turn starts them anew; they read the clock themselves, after a first
call that is not timed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from ctypes.util import find_library
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from eindecomp.errors import RunError
from eindecomp.experiments.measure import Lapse
from eindecomp.kernels.cores import cores
from peers.process_grid import blas_cores, dealt
from peers.race import Absent
from peers.scalapack_rank import BLOCK, PANELS

if TYPE_CHECKING:
    from eindecomp.experiments.measure import Way

    Array = np.ndarray[Any, Any]

_LIBRARIES = ("scalapack-openmpi", "scalapack-mpich", "scalapack")
_SLOW = ("prescott", "generic", "unknown", "core2", "armv8")
"""What OpenBLAS takes for processors that it does not know: several times too slow."""
_RANK = "peers.scalapack_rank"
_HERE = Path(__file__).parent.parent
"""The folder of benchmarks, which ranks find the module in."""
_WIDE_PANELS = b"""
int panel_width = 256;
int pilaenv_(int *context, char *kind) { return panel_width; }
"""


@contextmanager
def chain(x: Mapping[str, Array], tuned: bool) -> Generator[Way]:
    """(A·B) + (C·(D·E)) by `psgemm`, matrices in cyclic blocks of columns."""
    library = find()
    mpirun = which("mpirun")
    if mpirun is None:
        raise Absent("mpirun is not installed")
    with TemporaryDirectory(prefix="eindecomp-") as folder:
        for name in "ABCDE":
            np.save(Path(folder) / f"{name}.npy", x[name])
        command = [mpirun, "-n", str(cores()), sys.executable, "-m", _RANK, library, folder]
        if tuned:
            widen_panels(Path(folder))
        ranks = _Ranks(command)
        try:
            ranks.check_blas()
        except RunError as error:
            raise Absent(str(error)) from None
        yield ranks.turn


class _Ranks:
    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.setting = _setting()
        self.folder = Path(command[-1])

    def turn(self) -> Lapse:
        """Run once; the ranks leave their columns of the result in the folder."""
        seconds = self._run("run")["seconds"]
        parts = [np.load(self.folder / f"Z{rank}.npy") for rank in range(cores())]
        whole = np.empty((parts[0].shape[0], sum(part.shape[1] for part in parts)), np.float32)
        for rank, part in enumerate(parts):
            whole[:, dealt(whole.shape[1], rank, cores(), BLOCK)] = part
        return Lapse(seconds, whole)

    def check_blas(self) -> None:
        """A ratio to a BLAS that does not know the processor would say nothing."""
        if reason := unhealthy(self._run("blas")["core"]):
            raise Absent(reason)

    def _run(self, what: str) -> dict[str, Any]:
        try:
            done = subprocess.run(  # noqa: S603 - our own command
                [*self.command, what],
                capture_output=True,
                check=True,
                timeout=600,
                env=self.setting,
                cwd=_HERE,
            )
            return orjson.loads(done.stdout)
        except subprocess.CalledProcessError as error:
            last = error.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise RunError(f"mpirun failed: {' '.join(last)}") from None
        except (OSError, subprocess.TimeoutExpired, orjson.JSONDecodeError) as error:
            raise RunError(f"mpirun failed: {error}") from None


def find() -> str:
    """The name of the library that is installed."""
    library = next((found for name in _LIBRARIES if (found := find_library(name))), None)
    if library is None:
        raise Absent("no ScaLAPACK: libscalapack-openmpi or libscalapack-mpich is not installed")
    return library


def widen_panels(folder: Path) -> Path:
    """A library, made in this folder, with ScaLAPACK's function for the width of panels."""
    compiler = which("cc")
    if compiler is None:
        raise Absent("no C compiler to widen ScaLAPACK's panels with")
    library = folder / PANELS
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    try:
        subprocess.run(command, input=_WIDE_PANELS, capture_output=True, check=True, timeout=60)  # noqa: S603 - our own command
    except (OSError, subprocess.SubprocessError) as error:
        raise Absent(f"ScaLAPACK's panels cannot be widened: {error}") from None
    return library


def unhealthy(core: str | None) -> str | None:
    """What is wrong with a BLAS whose kernels are for such a core, if anything is.

    >>> unhealthy("Prescott")
    "unhealthy BLAS: ScaLAPACK's has kernels for 'Prescott'"
    """
    if core is None:
        return "unhealthy BLAS: ScaLAPACK's does not say what its kernels are for"
    if core.lower() in _SLOW:
        return f"unhealthy BLAS: ScaLAPACK's has kernels for {core!r}"
    return None


def blas_setting() -> dict[str, str]:
    """One thread, and the kernels that NumPy's BLAS takes here."""
    known = next(iter(blas_cores().values()), None)
    return {"OPENBLAS_NUM_THREADS": "1"} | ({} if known is None else {"OPENBLAS_CORETYPE": known})


def _setting() -> dict[str, str]:
    """A BLAS of one thread for each rank, which is not bound to a core."""
    setting = {
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    if os.geteuid() == 0:
        setting |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**os.environ, **blas_setting(), **setting}
