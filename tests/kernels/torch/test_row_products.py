"""One row by a matrix: the kernel, on a GPU or interpreted, and when it is asked for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from eindecomp.kernels.torch.aggregations import times_rows  # noqa: E402
from eindecomp.kernels.torch.decoding import suits_rows  # noqa: E402

_IN_A_PROCESS = """
import torch
from eindecomp.kernels.torch.decoding_kernels import ROW_CONFIGS, row_kernel
torch.manual_seed(0)
torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
for rows, length in ((1, 1), (5, 7), (33, 1030), (6, 4096)):
    x, matrix = torch.randn(length), torch.randn(rows, length + 3)[:, :length]
    for config in ROW_CONFIGS:
        out = torch.full((rows,), torch.nan)
        grid = (-(-rows // config.kwargs["ROWS"]),)
        given = x, matrix, out, rows, length, matrix.stride(0)
        row_kernel[grid](*given, OVERLAP=False, EARLY=False, **config.kwargs)
        assert torch.allclose(out, matrix @ x, atol=1e-3), (rows, length, config)
"""


@pytest.mark.long
def test_the_kernel_multiplies_in_every_configuration():
    interpreted = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    environment = os.environ | interpreted
    found = subprocess.run(  # noqa: S603
        [sys.executable, "-c", _IN_A_PROCESS], env=environment, capture_output=True, check=False
    )
    assert found.returncode == 0, found.stderr.decode()


def test_rows_on_the_cpu_are_torchs_product():
    x, rows = torch.randn(1, 8), torch.randn(5, 8)
    assert not suits_rows(x, rows)
    assert torch.equal(times_rows(x, rows), x @ rows.mT)
