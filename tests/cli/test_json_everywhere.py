"""`--json`: every command prints one JSON object on standard output, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import eindecomp as ed
from eindecomp.cli.root import GROUPS, app, load_command

TEXT = "input X[i: 8, j: 8], Y[j, k: 8]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z\n"
PROBLEM = {
    "problem": {
        "nodes": {"intervals": [[0, 1]], "costs": [[3, 1]], "usages": [[1, 1]]},
        "edges": {"nodes": [], "costs": []},
        "usage_limit": 2,
    }
}
CASES = {
    "plan": "plan graph.ein -p 2",
    "plan, written": "plan graph.ein -p 2 -o made.json",
    "explain": "explain plan.json",
    "compare": "compare plan.json",
    "draw": "draw plan.json -o plan.svg",
    "draw, tiles": "draw plan.json --tiles Z",
    "report": "report plan.json -o plan.html --no-compare",
    "simulate": "simulate plan.json --machine cpu-cluster",
    "run": "run plan.json --random --check -o out.npz",
    "solve": "solve problem.json -o solved.json",
    "export": "export plan.json --to dtensor",
    "export, written": "export plan.json --to jax -o made.json",
}
ELSEWHERE = {"llama", "bench", "calibrate", "import torch", "import jax", "import hf"}
"""Tested where models, measurements and frameworks are."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("graph.ein").write_text(TEXT)
    Path("problem.json").write_text(json.dumps(PROBLEM))
    ed.plan(ed.parse(TEXT), 2, inputs="sharded").save("plan.json")
    return tmp_path


@pytest.mark.parametrize("case", CASES)
def test_one_object_and_nothing_else(case, folder):
    words = CASES[case].split()
    found = CliRunner().invoke(app, [*words, "--json"])
    assert found.exit_code == 0, found.output
    record = json.loads(found.stdout)
    assert isinstance(record, dict)
    assert record
    if "-o" in words:
        assert (folder / words[words.index("-o") + 1]).exists()


def test_no_command_is_left_out():
    names = {case.partition(",")[0] for case in CASES} | ELSEWHERE
    typed = {name for own in GROUPS.values() for name in own} - {"import"}
    assert names == typed | {f"import {name}" for name in load_command("import").commands}
