"""What all tests and documents share: devices for JAX, and a folder for each document.

JAX reads the environment when it is imported, which no test does before this.
"""

import os
from pathlib import Path

import pytest

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "16")

collect_ignore_glob = ["docs/*.py"]  # which make the site


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what takes long to `make test-all`."""
    if os.environ.get("EINDECOMP_ALL"):
        return
    long = [item for item in items if item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.fixture(autouse=True)
def _in_a_folder(request: pytest.FixtureRequest):
    """Run documents in a folder of their own, in which they find the examples and may write."""
    if request.node.path.suffix == ".md":
        folder = request.getfixturevalue("tmp_path")
        (folder / "examples").symlink_to(Path(__file__).parent / "examples")
        request.getfixturevalue("monkeypatch").chdir(folder)
