"""The first call of a fresh process works: nothing has started CUDA or JAX before it."""

from __future__ import annotations

import pytest
from first_uses import FIRST_USES, START
from fresh_process import ROOT, run_fresh
from torch_ways import ON_GPU

# Where there is no GPU, a few show that this way of running them works.
FEW = ("run", "jax, four devices")
NAMES = [
    pytest.param(name, marks=[] if ON_GPU or name in FEW else pytest.mark.long)
    for name in FIRST_USES
]


@pytest.mark.parametrize("name", NAMES)
def test_a_first_use_works(name, tmp_path):
    pytest.importorskip("jax" if name.startswith("jax") else "torch")
    run_fresh(tmp_path, "-c", START + FIRST_USES[name], str(ROOT))
