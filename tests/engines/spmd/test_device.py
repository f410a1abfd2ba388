"""Ranks whose tiles are torch's tensors: over gloo on the CPU, and over NCCL where a GPU is."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from jobs import launch, needs_mpi, run_command, run_job
from safetensors.numpy import save_file

import eindecomp as ed
from cases import ALL

torch = pytest.importorskip("torch", reason="torch is not installed")

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 3, 4] if ALL else [2])
def test_plans_give_what_devices_apart_give_up_to_rounding(ranks):
    # The job whose first seed is 0 tries every operation and type as well.
    job = run_job("torch", ranks, "laws.py", 0 if ranks == 2 else 200, 20 if ALL else 2, "cpu")
    assert (job.status, job.out) == (0, "all agree\n"), job.err


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 3, 4] if ALL else [2])
def test_the_order_of_messages_matches_them_as_nccl_needs_it(ranks):
    job = run_job("torch", ranks, "untagged.py", 300, 20 if ALL else 2, "cpu")
    assert (job.status, job.out) == (0, "all agree\n"), job.err


@pytest.mark.long
@pytest.mark.parametrize("script", ["lifecycle.py", "on_device.py"])
def test_tensors_stay_move_come_and_go(script):
    job = run_job("torch", 2, script, "cpu")
    assert (job.status, job.out) == (0, "all agree\n"), job.err


@pytest.mark.long
def test_an_index_out_of_range_is_named():
    job = run_job("torch", 2, "on_device.py", "cpu", "beyond")
    assert job.status != 0
    assert "X[r,i]" in job.err
    assert "index 6 is outside 0 to 5" in job.err


@pytest.mark.long
def test_outputs_are_written_where_they_lie(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.standard_normal((10, 6)).astype("float32"))
    save_file({"weights": rng.standard_normal((6, 8))}, tmp_path / "y.safetensors")
    job = run_job("torch", 2, "files.py", tmp_path, ".npy", "cpu")
    assert (job.status, job.out) == (0, "all agree\n"), job.err


@pytest.mark.long
def test_a_long_run_goes_on_where_it_was_killed(tmp_path):
    killed = run_job("torch", 2, "relations.py", "kill", tmp_path / "run", "cpu")
    assert killed.status != 0
    job = run_job("torch", 2, "relations.py", "go on", tmp_path / "run", "cpu")
    assert (job.status, job.out) == (0, "all agree\n"), job.err


@pytest.mark.long
def test_the_command_line_takes_a_device(tmp_path):
    file = tmp_path / "matmul.ein"
    file.write_text("input X[i: 4, j: 6], Y[j, k: 4]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z")
    words = ["-m", "eindecomp", "run", str(file), "--random", "--check", "--engine", "spmd"]
    job = run_command([*launch("torch", 2), *words, "--option", "device=cpu"])
    assert job.status == 0, job.err
    assert "on 2 workers" in job.out


@pytest.mark.long("cpu")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_a_gpu)])
def test_a_rank_alone(device):
    job = run_job("torch", 1, "one_rank.py", device)
    assert (job.status, job.out) == (0, "all agree\n"), job.err


@needs_mpi
def test_a_device_needs_the_transport_of_torch():
    code = (
        "import eindecomp as ed; g = ed.parse('input X[i: 8]\\nY[i] <- exp(X[i])\\noutput Y'); "
        "ed.compile(ed.plan(g, 1), engine='spmd', transport='mpi', device='cpu')"
    )
    job = run_command([sys.executable, "-c", code])
    assert "torch.distributed: start the job with torchrun" in job.err


@pytest.mark.long
def test_a_device_on_some_ranks_only_is_refused():
    code = (
        "import os; import eindecomp as ed; "
        "g = ed.parse('input X[i: 8]\\nY[i] <- exp(X[i])\\noutput Y'); "
        "device = 'cpu' if os.environ['RANK'] == '1' else None; "
        "ed.compile(ed.plan(g, 2), engine='spmd', device=device)"
    )
    job = run_command([*launch("torch", 2), "--no-python", sys.executable, "-c", code])
    assert job.status
    assert "device: it was given on rank 1, but not on all ranks" in job.err


def test_two_ranks_on_one_gpu_are_refused():
    from eindecomp.engines.spmd.torch_ranks import check_own_gpus

    check_own_gpus([b"a", b"b", b"c"])
    with pytest.raises(ed.InputError, match=r"ranks 1 and 3 are on one GPU \(b\)"):
        check_own_gpus([b"a", b"b", b"c", b"b"])
