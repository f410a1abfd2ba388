"""What all tests and documents share: devices for JAX, and a folder for each document.

JAX reads the environment when it is imported, which no test does before this.
"""

import os
from pathlib import Path

import pytest

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "16")

collect_ignore_glob = ["docs/*.py"]  # which make the site


@pytest.fixture(autouse=True)
def _in_a_folder(request: pytest.FixtureRequest):
    """Run documents in a folder of their own, in which they find the examples and may write."""
    if request.node.path.suffix == ".md":
        folder = request.getfixturevalue("tmp_path")
        (folder / "examples").symlink_to(Path(__file__).parent / "examples")
        request.getfixturevalue("monkeypatch").chdir(folder)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what takes long, unless all is asked for."""
    for item in items:
        if item.get_closest_marker("long") and os.environ.get("EINDECOMP_ALL") != "1":
            item.add_marker(pytest.mark.skip(reason="it takes long: set EINDECOMP_ALL=1"))
