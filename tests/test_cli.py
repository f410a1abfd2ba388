"""The command line: what it prints, writes and how it exits."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

SMALL = {
    "problem": {
        "nodes": {
            "intervals": [[0, 2], [1, 3]],
            "costs": [[5, 1], [0, 10**18]],
            "usages": [[1, 4], [2, 2]],
        },
        "edges": {"nodes": [[0, 1]], "costs": [[0, 0, 7, 10**18]]},
        "usage_limit": 6,
    }
}


def run(*args: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "eindecomp.cli", *args]
    return subprocess.run(command, input=given, capture_output=True, check=False)  # noqa: S603


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("contest") / "small.json.gz"
    path.write_bytes(gzip.compress(json.dumps(SMALL).encode()))
    return path


def test_solve_shows_cost_bound_and_gap(instance: Path, tmp_path: Path) -> None:
    found = run("solve", str(instance), "--time", "5", "-o", str(tmp_path / "out.json"))
    assert found.returncode == 0
    shown = found.stdout.decode().split()
    assert shown[: shown.index("gap")] == ["cost", "5", "bound", "5"]
    assert found.stderr == b""
    expected = {"cost": 5, "bound": 5, "feasible": True, "solution": [0, 0]}
    assert json.loads((tmp_path / "out.json").read_text()) == expected


def test_solve_reads_standard_input_and_prints_json() -> None:
    found = run("solve", "-", "--json", given=json.dumps(SMALL).encode())
    assert json.loads(found.stdout)["cost"] == 5


@pytest.mark.parametrize(
    ("args", "given", "status", "message"),
    [
        (["solve", "-"], b"{", 1, "standard input: not JSON"),
        (["solve", "-"], b"\x1f\x8bxx", 1, "cannot be inflated"),
        (["solve", "nowhere.json"], b"", 1, "nowhere.json"),
        (["solve"], b"", 2, "Missing argument"),
        (["solve", "-", "--time", "soon"], b"", 2, "Invalid value"),
        (["sole"], b"", 2, "No such command"),
    ],
)
def test_mistakes_get_a_message_and_a_status(
    args: list[str], given: bytes, status: int, message: str
) -> None:
    found = run(*args, given=given)
    assert found.returncode == status
    assert message in found.stderr.decode()
    assert "Traceback" not in found.stderr.decode()
