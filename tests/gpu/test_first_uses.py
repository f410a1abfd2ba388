"""The first call of a fresh process works: nothing has started CUDA or JAX before it."""

from __future__ import annotations

import pytest
from first_uses import FIRST_USES, START
from fresh_process import ROOT, run_fresh


@pytest.mark.parametrize("name", FIRST_USES)
def test_a_first_use_works(name, tmp_path):
    pytest.importorskip("jax" if name.startswith("jax") else "torch")
    run_fresh(tmp_path, "-c", START + FIRST_USES[name], str(ROOT))
