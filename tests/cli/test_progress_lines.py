"""What long commands show on a terminal while they work, apart from standard output."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import eindecomp as ed
from eindecomp.cli.root import app
from eindecomp.show import progress

TEXT = "input X[i: 8, j: 8], Y[j, k: 8]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z\n"


@pytest.fixture
def terminal(tmp_path, monkeypatch):
    """Standard error as a terminal, and what was shown there."""
    monkeypatch.chdir(tmp_path)
    Path("graph.ein").write_text(TEXT)
    ed.plan(ed.parse(TEXT), 2).save("plan.json")
    shown = StringIO()
    console = Console(file=shown, force_terminal=True, width=100)
    monkeypatch.setattr(progress, "progress_console", lambda: console)
    return shown


@pytest.mark.parametrize(
    ("words", "stages"),
    [
        ("plan graph.ein -p 2", ["looking for alternatives"]),
        ("explain plan.json", ["looking for alternatives"]),
        ("draw plan.json --tiles Z", ["drawing"]),
        ("report graph.ein -p 2 -o plan.html", ["comparing strategies"]),
        ("simulate plan.json --machine cpu-cluster", ["simulating"]),
        ("run graph.ein -p 2 --random --check", ["computing the reference"]),
        ("llama nowhere --prompt x", ["loading nowhere"]),
    ],
)
def test_every_stage_is_told(words, stages, terminal):
    found = CliRunner().invoke(app, [*words.split(), "--json"])
    told = terminal.getvalue()
    places = [told.find(stage) for stage in stages]
    assert -1 not in places
    assert places == sorted(places)
    if found.exit_code == 0:
        assert json.loads(found.stdout)
    else:
        assert (found.exit_code, found.stdout) == (1, "")
