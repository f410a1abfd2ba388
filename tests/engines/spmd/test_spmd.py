"""Ranks that share nothing: real jobs over MPI and over torch.distributed."""

from __future__ import annotations

import os
import subprocess
import sys
from uuid import uuid4

import pytest
from jobs import HERE, LAUNCHERS, free_port, needs_mpi, run_command, run_job, skip_without

from cases import ALL

every_launcher = pytest.mark.parametrize("launcher", LAUNCHERS)


@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 8] if ALL else [2])
@needs_mpi
def test_plans_give_what_devices_apart_give(ranks):
    job = run_job("mpi", ranks, "laws.py", 0, 40 if ALL else 2)
    assert (job.status, job.out) == (0, "all agree\n"), job.err


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 3, 4] if ALL else [2])
def test_the_same_over_torch(ranks):
    pytest.importorskip("torch")
    job = run_job("torch", ranks, "laws.py", 100, 20 if ALL else 2)
    assert (job.status, job.out) == (0, "all agree\n"), job.err


@pytest.mark.long
@every_launcher
def test_rows_move_as_between_devices_apart(launcher):
    job = run_job(launcher, 2 if launcher == "torch" else 4, "rows.py")
    assert (job.status, job.out) == (0, "all agree\n"), job.err


@pytest.mark.long
@every_launcher
def test_what_waits_gives_what_devices_apart_give(launcher):
    job = run_job(launcher, 4, "pending.py")
    assert (job.status, job.out) == (0, "all agree\n"), job.err


@pytest.mark.long
@every_launcher
def test_tensors_stay_and_move(launcher):
    job = run_job(launcher, 2 if launcher == "torch" else 3, "lifecycle.py")
    assert (job.status, job.out) == (0, "all agree\n"), job.err


@pytest.mark.long
@every_launcher
def test_an_error_that_all_ranks_catch_ends_nothing(launcher):
    job = run_job(launcher, 2, "goes_on.py")
    assert (job.status, job.out) == (0, "all agree\n"), job.err


TROUBLE = {
    "stop": "dead or was stopped",
    "delay": "is stuck",
    "diverge": "do not run the same program",
}


HOW = ["kill", "stop", "delay", "end", "fail", "diverge"]
CASES = [(launcher, how) for launcher in ("mpi", "torch") for how in HOW]
FEW = [("mpi", "kill"), ("mpi", "stop"), ("mpi", "delay"), ("mpi", "fail"), ("torch", "kill")]


@pytest.mark.long("torch-kill", "mpi-delay", "mpi-fail", "mpi-stop", "mpi-kill")
@pytest.mark.parametrize(("launcher", "how"), CASES if ALL else FEW)
def test_trouble_of_a_rank_ends_the_job(launcher, how):
    skip_without(launcher)
    name = f"job-{uuid4().hex}"  # to find its processes by
    job = run_job(launcher, 2, "trouble.py", how, 3, 50, name, timeout=90)
    assert job.status != 0
    assert job.seconds < 60  # of which most goes to starting it on a busy machine
    assert "Z[k]" in job.err  # the vertex that the others were at
    assert "step" in job.err
    if how in TROUBLE:
        assert TROUBLE[how] in job.err
        # Of ranks that wait for each other either may notice.
        assert ("for rank" if how == "diverge" else "for rank 1") in job.err
    if how == "kill" and launcher == "torch":
        assert "rank 1 is gone" in job.err
    found = subprocess.run(["pgrep", "-f", name], capture_output=True, check=False)  # noqa: S603, S607
    assert not found.stdout


@pytest.mark.long
@needs_mpi
def test_a_rank_may_compute_for_longer_than_others_wait_even_if_it_tells_nothing():
    job = run_job("mpi", 2, "trouble.py", "hold", 3, 50)
    assert (job.status, job.out) == (0, "went on\n"), job.err


@pytest.mark.long
def test_a_stopped_rank_that_has_the_store_of_all_ends_the_job():
    """As it is where ranks are started by hand: the first one keeps what they tell each other."""
    pytest.importorskip("torch")
    own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    script = [sys.executable, str(HERE / "ranks" / "trouble.py"), "stop0", "3", "50"]
    with subprocess.Popen(script, env=os.environ | own | {"RANK": "0"}) as first:  # noqa: S603
        try:
            job = run_command(script, 90, own | {"RANK": "1"})
        finally:
            first.kill()
    assert job.status != 0
    assert "rank 0 was stopped" in job.err
    assert "Z[k]" in job.err


@pytest.mark.long
@pytest.mark.parametrize("what", ["graph", "plan"] if ALL else ["plan"])
@every_launcher
def test_ranks_with_different_plans_refuse_to_start(launcher, what):
    job = run_job(launcher, 2, "trouble.py", what, 3, 0)
    assert job.status != 0
    assert f"rank 1 was given another {what}" in job.out


@needs_mpi
def test_a_plan_for_another_number_of_devices_is_refused():
    code = (
        "import eindecomp as ed; g = ed.parse('input X[i: 8]\\nY[i] <- exp(X[i])\\noutput Y'); "
        "ed.compile(ed.plan(g, 4), engine='spmd')"
    )
    job = run_command([sys.executable, "-c", code])
    assert "the plan is for 4 devices, the job has 1 rank: start it with mpirun -n 4" in job.err
