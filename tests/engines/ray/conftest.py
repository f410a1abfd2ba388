"""One Ray for all tests of a process: it takes seconds to start."""

from __future__ import annotations

from importlib.metadata import packages_distributions

import pytest


@pytest.fixture(scope="session")
def engine():
    if "ray" not in packages_distributions():  # a folder of our tests goes by the same name
        pytest.skip("Ray is not installed")
    from eindecomp.engines.ray.engine import RayEngine

    return RayEngine(workers=2)
