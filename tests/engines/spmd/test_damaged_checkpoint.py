"""Checkpoints that were damaged on disk: the one before is taken, or what is lost made again."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from jobs import launch, needs_mpi, run_command, run_job
from test_checkpoint import EXAMPLE, GRAPH, losses_of, names, train

import eindecomp as ed
from cases import ALL
from eindecomp import models


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def without_checksums(step):
    manifest = step / "complete.json"
    content = json.loads(manifest.read_text())
    del content["files"]
    manifest.write_text(json.dumps(content))


def without_checksums_and_file(step):
    without_checksums(step)
    (step / FILE).unlink()


FILE = "rank-0000.safetensors"
DAMAGE = {
    "first byte": (lambda step: flip(step / FILE, 0), "its checksum differs"),
    "header": (lambda step: flip(step / FILE, 60), "its checksum differs"),
    "a number": (lambda step: flip(step / FILE, -1000), "its checksum differs"),
    "last byte": (lambda step: flip(step / FILE, -1), "its checksum differs"),
    "short": (lambda step: os.truncate(step / FILE, 1000), "has 1000 bytes, but"),
    "empty": (lambda step: os.truncate(step / FILE, 0), "has 0 bytes, but"),
    "gone": (lambda step: (step / FILE).unlink(), "is missing"),
    "gone, of old": (without_checksums_and_file, "is missing"),
    "no manifest": (lambda step: (step / "complete.json").unlink(), "No such file"),
    "junk": (lambda step: (step / "complete.json").write_bytes(b"\xff\0junk"), "not JSON"),
    "zeros": (lambda step: (step / "complete.json").write_bytes(bytes(99)), "not JSON"),
    "half": (lambda step: os.truncate(step / "complete.json", 300), "not JSON"),
    "no object": (lambda step: (step / "complete.json").write_text("[]"), "must be an object"),
    "no fields": (lambda step: (step / "complete.json").write_text("{}"), "format: is missing"),
}


@pytest.fixture
def folder(tmp_path):
    """A folder as ranks write it, of which the steps 4 and 6 are left."""
    path, file = tmp_path / "run", tmp_path / "run.safetensors"
    path.mkdir()
    train(file, steps=2)
    models.save_checkpoint(path, GRAPH, models.load_checkpoint(file))
    train(path, steps=6)
    assert names(path) == ["step-000004", "step-000006"]
    return path


@pytest.mark.parametrize(
    ("what", "steps"), [*((what, 8) for what in DAMAGE), ("gone", 6), ("no manifest", 7)]
)
def test_training_goes_on_from_the_step_before(what, steps, folder):
    damage, why = DAMAGE[what]
    damage(folder / "step-000006")
    told = f"the checkpoint of step 6 is damaged: .*{why}.*; that of step 4 is taken"
    with pytest.warns(RuntimeWarning, match=told):
        again = train(folder, steps=steps)
    whole = train(steps=steps)
    assert again.losses == whole.losses
    assert all(np.array_equal(again.state[name], whole.state[name]) for name in whole.state)
    assert models.load_checkpoint(folder).step == steps  # and no warning: nothing is damaged now


@pytest.mark.parametrize("what", DAMAGE)
def test_nothing_is_begun_anew_where_all_steps_are_damaged(what, folder):
    damage, why = DAMAGE[what]
    damage(folder / "step-000006")
    flip(folder / "step-000004" / FILE, -1)
    told = f"no undamaged checkpoint: .* step 6 .*{why}.* step 4 is damaged: .*checksum differs"
    with pytest.raises(ed.InputError, match=told):
        train(folder, steps=8)
    with pytest.raises(ed.InputError, match=told):
        models.load_checkpoint(folder)
    assert names(folder) == ["step-000004", "step-000006"]
    assert train(folder, steps=8, resume=False).losses == train(steps=8).losses
    assert models.load_checkpoint(folder).step == 8


def test_what_is_of_another_run_is_refused_although_a_step_is_damaged(folder):
    flip(folder / "step-000006" / FILE, -1)
    before = names(folder)
    graph = models.ffnn(8, 30, 12, 5, optimizer="adam")
    for wanted, config in ((graph, None), (GRAPH, {"seed": 4})):
        with pytest.raises(ed.InputError, match=r"step-000006.complete\.json: is of another"):
            models.load_checkpoint(folder, wanted, config)
    assert names(folder) == before


def test_manifests_without_checksums_are_read(folder):
    for step in folder.iterdir():
        without_checksums(step)
    assert train(folder, steps=8).losses == train(steps=8).losses


@needs_mpi
def test_ranks_find_damage_in_files_of_more_ranks_together(tmp_path):
    """4 ranks write, of whose files 2 ranks read two each; one finds damage, and both go back."""
    path = tmp_path / "run"
    options = [str(EXAMPLE), "--every", "2", "--strategy", "zero", "--steps"]
    first = run_command([*launch("mpi", 4), *options, "4", "--checkpoint", str(path)])
    assert first.status == 0, first.err
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    flip(path / "step-000004" / "rank-0003.safetensors", -1)
    (copy / "step-000004").rename(tmp_path / "gone")
    found = []
    for each in (path, copy) if ALL else (path,):
        job = run_command([*launch("mpi", 2), *options, "6", "--checkpoint", str(each)])
        assert job.status == 0, job.err
        found.append(losses_of(job.out))
        told = job.err.count("the checkpoint of step 4 is damaged")
        assert told == (each == path), job.err
    assert sorted(found[0]) == [3, 4, 5, 6]
    assert found[0] == found[-1]
    for step in path.iterdir():
        flip(step / "rank-0001.safetensors", -1)
    refused = run_command([*launch("mpi", 2), *options, "8", "--checkpoint", str(path)])
    assert refused.status != 0
    assert "has no undamaged checkpoint" in refused.err


@needs_mpi
@pytest.mark.parametrize("how", ["flipped", "short", "gone"] if ALL else ["flipped"])
def test_a_run_computes_again_what_was_damaged(how, tmp_path):
    killed = run_job("mpi", 3, "relations.py", "kill", tmp_path / "run")
    assert killed.status != 0
    [path] = (tmp_path / "run").glob("run-*/step-*/rank-0001.safetensors")
    why = spoil(path, how)
    job = run_job("mpi", 3, "relations.py", "damaged", tmp_path / "run")
    assert job.status == 0, job.err
    [line] = job.out.splitlines()  # one rank tells of it
    assert line.startswith("a checkpoint is damaged: ")
    assert why in line
    assert line.endswith("; what it had is computed again")


def spoil(path: Path, how: str) -> str:
    """Damage a file, and give what is said of it."""
    if how == "flipped":
        flip(path, -1)
        return "its checksum differs"
    if how == "short":
        os.truncate(path, path.stat().st_size // 2)
        return "is no whole safetensors file"
    path.unlink()
    return "is missing"
