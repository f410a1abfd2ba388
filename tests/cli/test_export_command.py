"""`eindecomp export`: saved plans in the words of other frameworks, without them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from eindecomp.cli.root import app

TEXT = """
input X[s: 64, a: 32], W1[f: 128, a], W2[a, f]
H[s,f] <- sum X[s,a] * W1[f,a]
R[s,f] <- relu(H[s,f])
Y[s,o] <- sum R[s,f] * W2[o,f]
output Y
"""


def run(*args):
    return CliRunner().invoke(app, ["export", *args])


def planned(folder, *options):
    graph, plan = folder / "net.ein", folder / "plan.json"
    graph.write_text(TEXT)
    made = CliRunner().invoke(app, ["plan", str(graph), *options, "-o", str(plan)])
    assert made.exit_code == 0
    return str(plan)


@pytest.fixture
def plan(tmp_path):
    return planned(tmp_path, "--mesh", "tp=4", "--strategy", "f")


def test_placements(plan):
    found = json.loads(run(plan, "--to", "dtensor").stdout)
    assert found["mesh"] == {"tp": 4}
    assert found["placements"] == {
        "X": ["Replicate()"],
        "W1": ["Shard(0)"],
        "W2": ["Shard(1)"],
        "H": ["Shard(1)"],
        "R": ["Shard(1)"],
        "Y": ["Shard(0)"],
    }


def test_partition_specs(plan):
    found = json.loads(run(plan, "--to", "jax").stdout)
    assert found["shardings"]["W2"] == [None, ["tp"]]
    assert found["shardings"]["X"] == [None, None]


def test_tp_plan(plan):
    assert json.loads(run(plan, "--to", "tp-plan").stdout) == {"W1": "colwise", "W2": "rowwise"}


def test_axes_that_are_never_apart_are_one_dimension(tmp_path):
    plan = planned(tmp_path, "-p", "8", "--strategy", "f")
    apart = json.loads(run(plan, "--to", "dtensor").stdout)
    assert (len(apart["mesh"]), apart["placements"]["H"]) == (3, ["Shard(1)"] * 3)
    found = json.loads(run(plan, "--to", "dtensor", "--fewest-dims").stdout)
    assert (found["mesh"], found["placements"]["H"]) == ({"axis0_axis1_axis2": 8}, ["Shard(1)"])


def test_a_file_is_written(plan, tmp_path):
    path = tmp_path / "placements.json"
    shown = run(plan, "--to", "dtensor", "-o", str(path))
    assert (shown.exit_code, shown.stdout) == (0, f"written: {path}\n")
    printed = run(plan, "--to", "dtensor", "-o", str(path), "--json").stdout
    assert json.loads(printed) == json.loads(path.read_text())
    assert json.loads(path.read_text()) == json.loads(run(plan, "--to", "dtensor").stdout)


def test_what_cannot_be_exported_is_refused_with_the_reason(tmp_path):
    by_rows = planned(tmp_path, "--mesh", "tp=4", "--strategy", "s")
    assert "not tensor parallel at H" in run(by_rows, "--to", "tp-plan").stderr
    uneven = planned(tmp_path, "-p", "3", "--strategy", "f")
    assert "which 3 does not divide" in run(uneven, "--to", "jax").stderr
    assert "plan it first" in run(str(tmp_path / "net.ein"), "--to", "jax").stderr
    assert run(by_rows, "--to", "mxnet").exit_code == 2
    assert run(by_rows).exit_code == 2


def test_no_framework_is_imported(plan):
    code = (
        "import sys; sys.argv[0] = 'eindecomp'\n"
        "import atexit; from eindecomp.cli import main\n"
        "atexit.register(lambda: print({'torch', 'jax'} & sys.modules.keys(), file=sys.stderr))\n"
        "main()"
    )
    args = [sys.executable, "-c", code, "export", plan, "--to", "dtensor"]
    done = subprocess.run(args, capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stderr.strip() == "set()"
