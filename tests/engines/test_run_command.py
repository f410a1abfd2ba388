"""`eindecomp run`: from files to files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.cli import main

TEXT = "input X[i: 4, j: 6], Y[j, k: 4]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "matmul.ein"
    path.write_text(TEXT)
    return path


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["eindecomp", "run", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_:
        main()
    return exit_.value.code or 0


def test_random_inputs_are_checked(file, monkeypatch, capsys):
    assert run(monkeypatch, file, "-p", 2, "--random", "--check") == 0
    shown = capsys.readouterr().out
    assert "tasks on" in shown
    assert "Z[i,k]" in shown


def test_files_go_in_and_come_out(file, tmp_path, monkeypatch, capsys):
    x, y = np.arange(24, dtype=np.float32).reshape(4, 6), np.ones((6, 4), np.float32)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "data.npz", X=x, Y=y)
    out, trace = tmp_path / "out.npz", tmp_path / "trace.json"
    assert run(monkeypatch, file, "-p", 2, "--inputs", tmp_path / "data.npz", "-o", out,
               "--trace", trace, "--json") == 0  # fmt: skip
    assert np.array_equal(np.load(out)["Z"], x @ y)
    record = json.loads(capsys.readouterr().out)
    assert record["outputs"] == {"Z": {"shape": [4, 4], "dtype": "float32"}}
    events = json.loads(trace.read_text())["traceEvents"]
    named = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert named == {"device 0", "device 1"}
    assert sum(e["ph"] == "X" and e["cat"] != "compile" for e in events) == record["tasks"]


def test_a_saved_plan_runs(file, tmp_path, monkeypatch):
    ed.plan(ed.load(file), 4).save(tmp_path / "plan.json")
    assert run(monkeypatch, tmp_path / "plan.json", "--random", "--check") == 0


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["-p", "2"], 2, "say where inputs come from"),
        (["-p", "2", "--random", "--inputs", "a.npz"], 2, "say where inputs come from"),
        (["-p", "2", "--inputs", "W=w.npy"], 1, "'W' is no input of the graph"),
        (["-p", "2", "--inputs", "X=bad.npy"], 1, "bad.npy is no .npy file of numbers"),
        (["-p", "2", "--inputs", "bad.npy"], 1, "bad.npy is no .npz file of numbers"),
        (["-p", "2", "--inputs", "missing.npz"], 1, "missing.npz"),
        (["--random"], 2, "say how many devices there are"),
    ],
)
def test_mistakes(arguments, status, message, file, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("bad.npy").write_bytes(b"nonsense")
    assert run(monkeypatch, file, *arguments) == status
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_pickled_objects_are_refused(file, tmp_path, monkeypatch, capsys):
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert run(monkeypatch, file, "-p", 2, "--inputs", f"X={tmp_path / 'x.npy'}") == 1
    assert "is no .npy file of numbers" in capsys.readouterr().err
