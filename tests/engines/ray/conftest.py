"""One Ray for all tests of a process: it takes seconds to start."""

from __future__ import annotations

import pytest

pytest.importorskip("ray", reason="Ray is not installed")

from eindecomp.engines.ray.engine import RayEngine


@pytest.fixture(scope="session")
def engine():
    return RayEngine(workers=2)
