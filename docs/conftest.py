"""Documents run in a folder of their own, in which they find the examples and may write files."""

from pathlib import Path

import pytest

collect_ignore_glob = ["*.py"]  # there are no tests in them


@pytest.fixture(autouse=True)
def _in_a_folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if request.node.path.suffix == ".md":
        (tmp_path / "examples").symlink_to(Path(__file__).parents[1] / "examples")
        monkeypatch.chdir(tmp_path)
