"""The kernel libraries that are installed here, for tests of what all of them keep."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from eindecomp.kernels.library import library_of


def _libraries() -> list[Any]:
    found = [pytest.param(library_of(np.ndarray), id="numpy")]
    # A folder of tests is called torch, too: the package is what has functions.
    if find_spec("torch") is None or find_spec("torch.nn") is None:
        skipped = pytest.mark.skip(reason="torch is not installed")
        return [*found, pytest.param(None, id="torch", marks=skipped)]
    from eindecomp.kernels.torch.library import TorchLibrary

    return [*found, pytest.param(TorchLibrary(), id="torch")]


every_library = pytest.mark.parametrize("library", _libraries())
