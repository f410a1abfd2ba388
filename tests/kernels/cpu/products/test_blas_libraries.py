"""Which BLAS libraries of a process are called."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")

LISTED = """
import torch
from eindecomp.kernels.cpu.products.blas_libraries import blas_library, controller, pools
every = controller().select(user_api="blas").lib_controllers
kept = [pool for pool in every if getattr(pool, "threading_layer", "") != "openmp"]
assert pools() == (kept or every), (pools(), every)
assert blas_library().matrices
"""


@pytest.mark.long
def test_none_that_starts_threads_in_each_of_ours() -> None:
    """As torch's does on some machines, where a small product then took fifty times as long."""
    subprocess.run([sys.executable, "-c", LISTED], check=True)  # noqa: S603 - a process of ours
