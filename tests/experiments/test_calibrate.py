"""`eindecomp calibrate`: it measures, writes what `machine=` takes, and says what it cannot do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from shutil import which
from typing import TYPE_CHECKING

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.cli import main
from eindecomp.experiments.calibrate import Profile, calibrate
from eindecomp.experiments.calibrate.kernels import (
    FUNCTIONS,
    SHAPES,
    TurnTimer,
    chain,
    plan_of,
    repeated,
)
from eindecomp.experiments.calibrate.links import alike_together
from eindecomp.graph.work import operations
from eindecomp.kernels.cores import cores
from eindecomp.planner.costs.machine import COLLECTIVES, INTENSITIES, Curve

if TYPE_CHECKING:
    from pathlib import Path

GRAPH = ed.parse("input X[i: 64, j: 64], Y[j, k: 64]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z")


def command(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["eindecomp", "calibrate", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_:
        main()
    return int(exit_.value.code or 0)


def check(machine: ed.Machine) -> None:
    """What every profile has; how fast it is, is for no test to say."""
    assert isinstance(machine.flops, dict)
    assert all(rate > 0 for rate in machine.flops.values())
    assert machine.memory_bandwidth > 0
    plan = ed.plan(GRAPH, 4, "time", inputs="sharded", machine=machine)
    assert 0 < plan.bound <= plan.cost * (1 + 1e-9)


@pytest.mark.long
def test_threads_from_command_to_plan(tmp_path: Path, monkeypatch, capsys):
    path = tmp_path / "machine.json"
    assert command(monkeypatch, "--quick", "--noisy", "-o", path) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Gflop/s of a device: " in shown
    assert ", huge " in shown
    assert "times its best in half of its turns" in shown
    assert f"written: {path}" in shown
    machine = ed.Machine.load(path)
    check(machine)
    assert machine.task_overhead > 0
    # Moving is free where memory is shared, reducing is not.
    assert machine.bandwidth == float("inf")
    assert set(machine.transfers) == ({"reduce_scatter"} if cores() > 1 else set())


MPI = "mpirun", "--oversubscribe", "-n", "2", sys.executable
TORCH = sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"


@pytest.mark.long
@pytest.mark.parametrize(
    "launch",
    [
        pytest.param(
            MPI,
            marks=pytest.mark.skipif(
                find_spec("mpi4py") is None or which("mpirun") is None, reason="needs MPI"
            ),
            id="mpi",
        ),
        pytest.param(
            TORCH,
            marks=[
                pytest.mark.skipif(find_spec("torch") is None, reason="needs torch"),
                pytest.mark.long,
            ],
            id="torch",
        ),
    ],
)
def test_ranks_from_command_to_plan(tmp_path: Path, launch, request):
    path = tmp_path / "machine.json"
    rooted = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    found = subprocess.run(  # noqa: S603
        [*launch, "-m", "eindecomp", "calibrate", "--engine", "spmd", "--quick", "--noisy",
         "--mesh", "rank=2", "-o", str(path)],
        env=os.environ | rooted, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("written:") == 1
    about = json.loads(path.read_bytes())["about"]
    assert about["transport"] == request.node.callspec.id
    assert float(about["spread"].split()[0]) >= 1
    machine = ed.Machine.load(path)
    check(ed.Machine(machine.flops, machine.memory_bandwidth, 1, transfers=machine.transfers))
    assert set(machine.transfers) == set(COLLECTIVES)
    assert all(set(curves) == {"*"} for curves in machine.transfers.values())
    assert dict(machine.mesh) == {"rank": 2}
    assert ed.plan(GRAPH, objective="time", machine=path).mesh.names == ("rank",)


def test_the_command_line_takes_a_profile(tmp_path: Path, monkeypatch, capsys):
    path, graph = tmp_path / "machine.json", tmp_path / "graph.ein"
    ed.Machine(1e9, 1e9, 1e9, task_overhead=1e-3, mesh={"rank": 2}).save(path)
    graph.write_text(str(GRAPH))
    asked = ["eindecomp", "explain", str(graph), "--objective", "time", "--machine", str(path)]
    monkeypatch.setattr(sys, "argv", asked)
    with pytest.raises(SystemExit) as exit_:
        main()
    assert not exit_.value.code
    shown = " ".join(capsys.readouterr().out.split())
    assert "2 devices (mesh rank=2)" in shown
    assert "takes 1 ms more than its work" in shown


def test_axes_that_are_alike_share_a_curve():
    slow, slower, fast = (Curve(((10, t), (1000, 9 * t))) for t in (1.0, 1.21, 0.1))
    curves = {"all_gather": {"a": slow, "b": slower, "c": fast}}
    found = alike_together(curves, "abc")["all_gather"]
    assert found["a"] == found["b"] == found["*"]
    assert found["a"].points[0] == pytest.approx((10, 1.1))
    assert found["c"].points[0] == pytest.approx((10, 0.1))
    assert set(alike_together(curves, "ab")["all_gather"]) == {"*"}


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_every_device_computes_one_tile_of_the_shape(devices):
    for name, shape in {**SHAPES, "functions": FUNCTIONS}.items():
        graph = repeated(shape, devices, 2)
        plan = plan_of(graph, devices)
        assert plan.cost == 0
        for vertex in graph.outputs:
            parts = plan.parts[vertex.name]
            assert parts == {label: devices if label == "b" else 1 for label in parts}
        if name in INTENSITIES:
            touched = sum(graph[n].elements for n in ("X", "Y", "Z0"))
            intensity = operations(graph, graph["Z0"]) / touched
            assert intensity == pytest.approx(INTENSITIES[name], rel=0.05)


def test_tiny_vertices_in_a_row_stay_on_their_devices():
    plan = plan_of(chain(3, 2), 2)
    assert plan.cost == 0
    assert all(plan.parts[name] == {"b": 2} for name in ("Z0", "Z1", "Z2"))


def test_turns_that_are_far_apart_write_no_file(tmp_path: Path, monkeypatch, capsys):
    machine = ed.Machine(1e9, 1e9, 1e9)
    profile = Profile(machine, {"spread": "1.60 (loops)"}, "loops", 1.6)
    monkeypatch.setattr("eindecomp.experiments.calibrate.calibrate", lambda *_, **__: profile)
    path = tmp_path / "machine.json"
    assert command(monkeypatch, "-o", path) == 1
    heard = " ".join(capsys.readouterr().err.split())
    assert "the machine was not quiet: loops took at least 1.60 times its best" in heard
    assert not path.exists()
    assert command(monkeypatch, "--noisy", "--json", "-o", path) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(path.read_bytes())
    assert ed.Machine.load(path) == machine


def test_the_clock_tells_how_far_turns_are_apart():
    turns = iter([9.0, 9.0, 1.0, 3.0, 2.0])
    clock = TurnTimer(3, lambda *_: next(turns))
    assert clock.best("that", int) == 1.0
    assert clock.spreads == {"that": 2.0}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"engine": "apart"}, "engine 'apart' is not one of threads, spmd"),
        ({"mesh": {"a": 2}}, "a mesh is for the ranks of engine 'spmd'"),
    ],
)
def test_what_cannot_be_measured_is_said(asked, message):
    with pytest.raises(ed.InputError, match=message):
        calibrate(**asked)


@pytest.mark.skipif(find_spec("mpi4py") is None, reason="needs mpi4py")
def test_one_rank_has_no_collectives(tmp_path: Path):
    found = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "eindecomp", "calibrate", "--engine", "spmd",
         "-o", str(tmp_path / "machine.json")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert found.returncode == 1
    assert "mpirun -n 2 eindecomp calibrate --engine spmd" in found.stderr
    assert not (tmp_path / "machine.json").exists()


def test_rates_by_shape_make_thin_products_slower():
    shapes = {"vector": 1e9, "thin": 5e9, "large": 2e10, "loops": 1e9}
    machine = ed.Machine(shapes, 1e15, 1e9)
    rng = np.random.default_rng(0)
    for _ in range(20):
        i, j, k = (int(n) for n in rng.integers(1, 300, 3))
        graph = ed.parse(
            f"input X[i: {i}, j: {j}], Y[j, k: {k}]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"
        )
        rate = 2 * i * j * k / ed.plan(graph, 1, "time", machine=machine).cost
        assert 1e9 * (1 - 1e-9) <= rate <= 2e10 * (1 + 1e-9)
