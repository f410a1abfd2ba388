"""Ranks that read and write files: each its own part."""

from __future__ import annotations

import numpy as np
import pytest
from jobs import needs_mpi, run_job
from safetensors.numpy import save_file


@pytest.mark.long
@needs_mpi
@pytest.mark.parametrize(("ranks", "kind"), [(3, ".npy"), (4, ".zarr")])
def test_outputs_are_written_where_they_lie(ranks, kind, tmp_path):
    if kind == ".zarr":
        pytest.importorskip("zarr", reason="zarr is not installed")
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.standard_normal((10, 6)).astype("float32"))
    save_file({"weights": rng.standard_normal((6, 8))}, tmp_path / "y.safetensors")
    job = run_job("mpi", ranks, "files.py", tmp_path, kind)
    assert (job.status, job.out) == (0, "all agree\n"), job.err


@pytest.mark.long
@needs_mpi
def test_a_full_disk_is_told_by_all_ranks(small_disk):
    pytest.importorskip("zarr", reason="zarr is not installed")
    job = run_job("mpi", 2, "full_disk.py", small_disk)
    assert (job.status, job.out) == (0, "all agree\n"), job.err
