"""The command line: what it prints, writes and how it exits."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from typer.testing import CliRunner

from eindecomp import __version__
from eindecomp.cli import request
from eindecomp.cli.options import work_from
from eindecomp.cli.root import app
from eindecomp.graph.text.elaborate import load, parse
from eindecomp.layout.mesh import PIECES
from eindecomp.planner.costs.price import OBJECTIVES
from eindecomp.planner.make import plan as make_plan
from eindecomp.planner.options import INPUTS, SOLVERS
from eindecomp.solve import read_contest
from eindecomp.store.plan_file import from_json

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


COMMAND = [sys.executable, "-m", "eindecomp"]


def run(*args: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """What a process would give, without the second that starting one takes."""
    found = CliRunner().invoke(app, args, input=given)
    return subprocess.CompletedProcess(
        args, found.exit_code, found.stdout_bytes, found.stderr_bytes
    )


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


def hard_problem() -> dict[str, object]:
    """A random problem that has many feasible choices, and that takes far longer to prove."""
    rng = np.random.default_rng(0)
    n, choices = 200, 8
    edges = [[i, j] for i in range(n) for j in rng.choice(n, 6, replace=False).tolist() if i != j]
    usages = rng.integers(0, 100, (n, choices))
    starts = rng.integers(0, 50, n)
    return {
        "problem": {
            "nodes": {
                "intervals": np.column_stack([starts, starts + 20]).tolist(),
                "costs": rng.integers(0, 10_000, (n, choices)).tolist(),
                "usages": usages.tolist(),
            },
            "edges": {
                "nodes": edges,
                "costs": rng.integers(0, 10_000, (len(edges), choices**2)).tolist(),
            },
            "usage_limit": int(usages.mean() * n * 20 / 70),
        }
    }


@pytest.mark.long
def test_an_interrupt_keeps_the_best_choice_so_far(tmp_path: Path) -> None:
    hard, out = tmp_path / "hard.json", tmp_path / "out.json"
    hard.write_text(json.dumps(hard_problem()))
    terminal, stderr = pty.openpty()
    process = subprocess.Popen(  # noqa: S603
        [*COMMAND, "solve", str(hard), "--time", "60", "-o", str(out)],
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(stderr)
    shown = b""
    while not re.search(rb"cost \d+(,\d{3})+  bound \d+", shown):
        shown += os.read(terminal, 1 << 16)  # an error once the process has ended
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=50)
    os.close(terminal)
    assert process.returncode == 0
    assert b"Traceback" not in shown
    written, problem = json.loads(out.read_text()), read_contest(hard)
    assert problem.feasible(written["solution"])
    assert 0 < written["bound"] < written["cost"] == problem.cost_of(written["solution"])
    assert f"{written['cost']:,}" in printed.decode()


def test_a_failure_leaves_the_output_as_it_was(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert run("solve", "nowhere.json", "-o", str(out)).returncode == 1
    assert list(tmp_path.iterdir()) == []
    out.write_text("before")
    assert run("solve", "-", "-o", str(out), given=b"{").returncode == 1
    assert out.read_text() == "before"
    assert list(tmp_path.iterdir()) == [out]


def test_output_replaces_what_a_link_points_to_and_keeps_its_mode(
    instance: Path, tmp_path: Path
) -> None:
    out, link = tmp_path / "out.json", tmp_path / "link.json"
    out.write_text("before")
    out.chmod(0o640)
    link.symlink_to(out)
    assert run("solve", str(instance), "-o", str(link)).returncode == 0
    assert link.is_symlink()
    assert json.loads(out.read_text())["cost"] == 5
    assert out.stat().st_mode & 0o777 == 0o640


def test_output_to_a_pipe_is_written_to_it(instance: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    os.mkfifo(out)
    reader = os.open(out, os.O_RDONLY | os.O_NONBLOCK)
    assert run("solve", str(instance), "-o", str(out)).returncode == 0
    assert json.loads(os.read(reader, 1 << 16))["cost"] == 5
    os.close(reader)
    assert out.is_fifo()


# Planning

MATMUL = "input X[i: 8, j: 8], Y[j, k: 8]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z\n"
ATTENTION = str(Path(__file__).parents[2] / "examples" / "multihead_attention.ein")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    found = run("plan", ATTENTION, "-p", "8", "--inputs", "sharded", "-o", str(path))
    assert found.returncode == 0
    assert found.stdout.decode().splitlines()[1].startswith("Cost 384 KiB (393,216 bytes)")
    assert len(found.stdout.splitlines()) == 4
    return path


def test_plan_explains_unless_it_is_written(tmp_path: Path) -> None:
    found = run("plan", ATTENTION, "-p", "8")
    assert found.returncode == 0
    assert found.stderr == b""
    shown = found.stdout.decode()
    assert "Cost 28 KiB (28,672 bytes)" in shown
    assert "Alternatives:" in shown
    out = str(tmp_path / "plan.json")
    both = run("plan", ATTENTION, "-p", "8", "-o", out, "--explain").stdout.decode()
    assert both.split("\n\n")[1:] == shown.split("\n\n")[1:]  # all but the time it took


def test_plan_reads_standard_input_and_prints_json() -> None:
    found = run("plan", "-", "-p", "6", "--objective", "bound", "--json", given=MATMUL.encode())
    plan = from_json(found.stdout)
    assert plan == make_plan(parse(MATMUL), 6, objective="bound")


def test_a_saved_plan_is_explained_and_compared(saved: Path) -> None:
    for file, given in ((str(saved), b""), ("-", saved.read_bytes())):
        shown = run("explain", file, given=given).stdout.decode()
        assert "Cost 384 KiB (393,216 bytes)" in shown
        compared = run("compare", file, given=given).stdout.decode()
        assert re.search(r"this plan +free +384 KiB +1.00× +optimal", compared)
        assert re.search(r"attention +h ", compared)


@pytest.mark.parametrize("command", ["plan", "explain", "compare", "run --random"])
def test_a_graph_without_an_output_is_refused(command: str) -> None:
    given = b"input X[i: 4]\nY[i] <- exp(X[i])\n"
    found = run(*command.split(), "-", "-p", "2", given=given)
    assert found.returncode == 1
    assert b"declares no output" in found.stderr
    assert b"output Y" in found.stderr
    assert b"Traceback" not in found.stderr


def test_explain_and_compare_print_json(saved: Path) -> None:
    explained = json.loads(run("explain", str(saved), "--json").stdout)
    assert explained["cost"] == sum(row["cost"] for row in explained["vertices"]) == 393216
    assert explained["gap"] == 0
    assert all(other["more"] >= 0 for other in explained["runners_up"])
    compared = json.loads(run("compare", str(saved), "--json", "--with", "h,s").stdout)
    assert [row["name"] for row in compared["rows"]] == ["this plan", "h,s"]
    assert compared["rows"][1]["strategy"] == ["h", "s"]
    assert compared["rows"][1]["ratio"] >= 1


def test_every_option_reaches_the_planner() -> None:
    asked = [
        "--solver=exact", "--strategy=h, s", "--inputs=sharded", "--mesh=node=2, gpu=4",
        "--memory=1GB", "--no-rewrite", "--time=30", "--objective=time", "--machine=cpu-cluster",
        "--pieces=ceil",
    ]  # fmt: skip
    found = run("plan", ATTENTION, "-p", "8", *asked, "--json")
    plan = from_json(found.stdout)
    assert plan == make_plan(
        load(ATTENTION), 8, solver="exact", strategy=["h", "s"], inputs="sharded",
        mesh={"node": 2, "gpu": 4}, memory="1GB", rewrite=False, objective="time",
        machine="cpu-cluster", pieces="ceil",
    )  # fmt: skip
    assert plan.graph == load(ATTENTION)
    own_mesh = run("plan", ATTENTION, "--machine", "gpu-server", "--json")
    assert from_json(own_mesh.stdout).devices == 8


def test_ties_reach_the_planner_and_stay_with_the_plan(tmp_path: Path) -> None:
    text = (
        "input W[i: 8, j: 8], X[b: 4, i]\nY[b,j] <- sum X[b,i] * W[i,j]\n"
        "new_W[i,j] <- sum W[i,j] + X[b,i] * Y[b,j]\noutput Y, new_W\n"
    )
    for ties, more, kept in (
        ("", ["--tie", "W=new_W"], {"W": "new_W"}),
        ("tie W <- new_W", [], {"W": "new_W"}),
        ("tie W <- new_W", ["--no-ties"], {}),
    ):
        out = tmp_path / "plan.json"
        run("plan", "-", "-p4", *more, "-o", str(out), given=(text + ties).encode())
        plan = from_json(out.read_bytes())
        assert plan.tie == kept
        assert plan.cost == make_plan(parse(text), 4, tie=kept).cost
        ran = run("run", "-", "-p4", *more, "--random", "--json", given=(text + ties).encode())
        assert json.loads(ran.stdout)["bytes_moved"] == plan.cost


def test_pins_reach_the_planner_and_stay_with_the_plan(tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    mesh = ["--mesh", "node=2,gpu=2"]
    pins = ["--pin", "X=i:2, j:gpu", "--pin", "Z=k:node+gpu"]
    shown = run("plan", "-", *mesh, *pins, "-o", str(out), given=MATMUL.encode())
    assert shown.returncode == 0
    assert "pinned X, Z" in shown.stdout.decode()
    plan = from_json(out.read_bytes())
    pin = {"X": {"i": 2, "j": "gpu"}, "Z": {"k": ["node", "gpu"]}}
    assert plan == make_plan(parse(MATMUL), mesh={"node": 2, "gpu": 2}, pin=pin)
    against = ["--with", "i", "--with", "k", "--json"]
    for found in (
        run("compare", str(out), *against),
        run("compare", "-", *mesh, *pins, *against, given=MATMUL.encode()),
    ):
        this, rows, columns = json.loads(found.stdout)["rows"]
        assert this["cost"] == plan.cost < columns["cost"]
        assert rows["refused"] == "found no plan that agrees with the pins"
    explained = run("explain", "-", *mesh, "--pin", "Z", given=MATMUL.encode()).stdout.decode()
    assert "Z j/4 no other cut is possible with these pins" in " ".join(explained.split())


def test_the_usual_order_can_be_asked_for() -> None:
    text = "input A[i: 8, j: 64], B[j, k: 8], C[k, l: 64]\nZ[i,l] <- sum A[i,j] * B[j,k] * C[k,l]"
    graph = parse(f"{text}\noutput Z")
    for work, wanted in (("usual", None), ("1.5", 1.5), ("inf", float("inf"))):
        shown = run("plan", "-", "-p4", "--work", work, "--json", given=str(graph).encode())
        made = make_plan(graph, 4, work=wanted)
        assert from_json(shown.stdout) == made
        assert (made.orders is None) == (wanted is None)


def test_options_are_those_of_the_planner() -> None:
    assert make_plan.__kwdefaults__["work"] == work_from(request.DEFAULT_WORK)
    assert get_args(request.ObjectiveName) == OBJECTIVES
    assert get_args(request.SolverName) == SOLVERS
    assert get_args(request.InputsName) == INPUTS
    assert get_args(request.PiecesName) == PIECES


@pytest.mark.long
def test_an_interrupt_of_planning_leaves_the_best_plan_so_far(tmp_path: Path) -> None:
    """A graph of which every vertex reads many others, so that proving takes its time."""
    rng = np.random.default_rng(0)
    lines = ["input V0[a: 64, b: 64, c: 64], V1[a, b, c], V2[a, b, c]"]
    for i in range(3, 30):
        one, two = rng.choice(i, 2, replace=False).tolist()
        first, second = (",".join(rng.permutation(list("abc")).tolist()) for _ in range(2))
        read = f"V{one}[{first}] * V{two}[{second}] + V{i - 1}[c,a,b]"
        lines.append(f"V{i}[a,b,c] <- {read}")
    slow, out = tmp_path / "slow.ein", tmp_path / "plan.json"
    slow.write_text("\n".join([*lines, "output V29"]))
    terminal, stderr = pty.openpty()
    process = subprocess.Popen(  # noqa: S603
        [*COMMAND, "plan", str(slow), "-p", "8", "--no-rewrite", "-o", str(out)],
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(stderr)
    shown = b""
    while not re.search(rb"cost \d+", shown):
        shown += os.read(terminal, 1 << 16)  # an error once the process has ended
    process.send_signal(signal.SIGINT)
    rest = []
    with suppress(OSError):
        while piece := os.read(terminal, 1 << 16):
            rest.append(piece)
    printed, _ = process.communicate(timeout=50)
    os.close(terminal)
    assert process.returncode == 0
    assert b"eindecomp: interrupted; this is the best plan so far" in b"".join(rest)
    assert b"Traceback" not in b"".join(rest)
    assert b", when interrupted. Another run may find another plan." in printed
    assert from_json(out.read_bytes()).stopped_by == "interrupt"


def test_the_version_is_shown() -> None:
    found = run("--version")
    assert (found.returncode, found.stdout.decode()) == (0, f"eindecomp {__version__}\n")
