"""What is printed fits any terminal, pipe and encoding."""

from __future__ import annotations

import os
import subprocess
import sys
from io import BytesIO, TextIOWrapper

import pytest
from typer.testing import CliRunner

import eindecomp as ed
from eindecomp.cli.root import app
from eindecomp.cli.terminal import allow_any_terminal, columns

TEXT = "input X[i: 8, j: 8], Y[j, k: 8]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z\n"


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "plan.json"
    ed.plan(ed.parse(TEXT), 4, inputs="sharded").save(path)
    return str(path)


COMMANDS = {
    "explain": ["explain"],
    "compare": ["compare"],
    "draw": ["draw", "--tiles", "Z"],
    "simulate": ["simulate", "--machine", "cpu-cluster"],
    "help": ["plan", "--help"],
    "usage": ["explain", "-p", "0"],
}


@pytest.mark.parametrize(
    ("environment", "width"),
    [({}, 80), ({"COLUMNS": "60"}, 60), ({"COLUMNS": "120"}, 120), ({"COLUMNS": "1"}, 40)],
)
def test_the_width_is_that_of_the_terminal_or_80(environment, width, monkeypatch, capfd):
    monkeypatch.delenv("COLUMNS", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert columns() == width


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("command", COMMANDS)
def test_lines_are_no_wider_than_they_may_be(command, width, plan, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    first, *more = COMMANDS[command]
    found = CliRunner().invoke(app, [first, plan, *more])
    lines = (found.stdout + found.stderr).splitlines()
    assert lines
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize(
    "environment", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["pipe", "NO_COLOR", "dumb"]
)
@pytest.mark.parametrize("command", COMMANDS)
def test_pipes_get_no_escape_codes(command, environment, plan, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    first, *more = COMMANDS[command]
    found = CliRunner().invoke(app, [first, plan, *more])
    assert "\x1b" not in found.stdout + found.stderr


@pytest.mark.parametrize(
    ("encoding", "text", "shown"),
    [
        ("ascii", "2×4 ╭ é", b"2?4 ? ?"),
        ("latin-1", "2×4 ╭ é", "2×4 ? é".encode("latin-1")),
        ("utf-8", "2×4 ╭ é", "2×4 ╭ é".encode()),
    ],
)
def test_question_marks_stand_for_letters_that_cannot_be_shown(encoding, text, shown, monkeypatch):
    stream = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(stream, encoding))
    allow_any_terminal()
    print(text, end="", flush=True)  # noqa: T201
    assert stream.getvalue() == shown
    sys.stdout.detach()


def test_a_locale_without_utf_8_is_enough(plan):
    """Python reads and writes ASCII there."""
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "eindecomp", "run", plan, "--random"],
        env=os.environ | plain, capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"tasks on" in done.stdout
