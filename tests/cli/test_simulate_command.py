"""`eindecomp simulate`: graphs and saved plans, as text, JSON and traces."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from eindecomp.cli.root import app

TEXT = "input X[i: 64, j: 64], Y[j, k: 64]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"


def run(*args):
    return CliRunner().invoke(app, ["simulate", *args])


@pytest.fixture
def graph(tmp_path):
    path = tmp_path / "product.ein"
    path.write_text(TEXT)
    return str(path)


@pytest.fixture
def plan(graph, tmp_path):
    path = str(tmp_path / "plan.json")
    options = ["-p", "4", "--inputs", "sharded", "--strategy", "i"]
    CliRunner().invoke(app, ["plan", graph, *options, "-o", path])
    return path


def test_a_graph_is_planned_and_simulated(graph):
    found = run(graph, "-p", "4", "--machine", "cpu-cluster", "--inputs", "sharded")
    assert found.exit_code == 0
    assert "on 4 devices" in found.stdout
    assert "critical path" in found.stdout


def test_a_saved_plan_is_simulated_as_json_with_a_trace(plan, tmp_path):
    trace = tmp_path / "trace.json"
    shown = run(
        plan, "--machine", "cpu-cluster", "--json", "--trace", str(trace), "--trace-device", "1"
    )
    assert shown.exit_code == 0
    found = json.loads(shown.stdout)
    assert found["devices"] == len(found["computing"]) == 4
    assert sum(step["seconds"] for step in found["critical_path"]) == pytest.approx(
        found["seconds"]
    )
    assert {e["pid"] for e in json.loads(trace.read_text())["traceEvents"]} == {1}


def test_a_machine_is_needed_and_a_plan_takes_no_options(plan):
    assert "needs a machine" in run(plan).stderr
    assert run(plan, "-p", "4", "--machine", "cpu-cluster").exit_code == 2
    direct = run(plan, "--machine", "cpu-cluster", "--gather", "direct", "--json")
    ring = run(plan, "--machine", "cpu-cluster", "--gather", "ring", "--json")
    assert json.loads(direct.stdout)["seconds"] < json.loads(ring.stdout)["seconds"]
