"""Checkpoints that were damaged on disk: that is told, or what is lost computed again."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import launch, needs_mpi, run_command, run_job
from test_checkpoint import EXAMPLE, GRAPH, losses_of, names, train

import eindecomp as ed
from cases import ALL, FACTOR
from eindecomp import models


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


FILE, JSON = "rank-0000.safetensors", "complete.json"


def before(step):
    return step.with_name("step-000004")


DAMAGE = {
    "first byte": (lambda step: flip(step / FILE, 0), "its digest differs"),
    "header": (lambda step: flip(step / FILE, 60), "its digest differs"),
    "a number": (lambda step: flip(step / FILE, -1000), "its digest differs"),
    "last byte": (lambda step: flip(step / FILE, -1), "its digest differs"),
    "short": (lambda step: os.truncate(step / FILE, 1000), "has 1000 bytes, but"),
    "empty": (lambda step: os.truncate(step / FILE, 0), "has 0 bytes, but"),
    "gone": (lambda step: (step / FILE).unlink(), "is missing"),
    "of another step": (lambda step: shutil.copy(before(step) / FILE, step), "its digest differs"),
    "manifest of another": (lambda step: shutil.copy(before(step) / JSON, step), "is of step 4"),
    "both of another": (
        lambda step: [shutil.copy(before(step) / name, step) for name in (FILE, JSON)],
        "is of step 4",
    ),
    "no manifest": (lambda step: (step / JSON).unlink(), "No such file"),
    "junk": (lambda step: (step / JSON).write_bytes(b"\xff\0junk"), "not JSON"),
    "zeros": (lambda step: (step / JSON).write_bytes(bytes(99)), "not JSON"),
    "half": (lambda step: os.truncate(step / JSON, 300), "not JSON"),
    "no object": (lambda step: (step / JSON).write_text("[]"), "must be an object"),
    "no fields": (lambda step: (step / JSON).write_text("{}"), "is not a manifest"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder in which steps 4 and 6 are left."""
    path = tmp_path_factory.mktemp("trained") / "run"
    train(path, steps=6)
    assert names(path) == ["step-000004", "step-000006"]
    return path


@pytest.fixture
def folder(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_told_and_the_step_before_offered(what, folder):
    damage, why = DAMAGE[what]
    damage(folder / "step-000006")
    told = (
        f"checkpoint is damaged: .*step-000006.*{why}.*; step 4 is undamaged: .* remove .*-000006"
    )
    for read in (lambda: models.load_checkpoint(folder), lambda: train(folder, steps=8)):
        with pytest.raises(ed.InputError, match=told):
            read()
    assert models.load_checkpoint(folder / "step-000004").step == 4
    with pytest.raises(ed.InputError, match=f"step-000006.*{why}"):
        models.load_checkpoint(folder / "step-000006")


def test_a_manifest_that_was_edited_is_no_less_json(folder):
    path = folder / "step-000006" / JSON
    manifest = json.loads(path.read_bytes())
    manifest["losses"] = [0.0] * len(manifest["losses"])
    path.write_text(json.dumps(manifest))
    with pytest.raises(ed.InputError, match=r"complete\.json: is not as it was written") as told:
        models.load_checkpoint(folder / "step-000006")
    assert "JSON" not in str(told.value)


def test_training_goes_on_from_the_step_before_once_the_damaged_one_is_removed(folder):
    flip(folder / "step-000006" / FILE, -1)
    shutil.rmtree(folder / "step-000006")
    again, whole = train(folder, steps=8), train(steps=8)
    assert again.losses == whole.losses
    assert all(np.array_equal(again.state[name], whole.state[name]) for name in whole.state)


def test_nothing_is_begun_anew_where_all_steps_are_damaged(folder):
    for step in folder.iterdir():
        flip(step / FILE, -1)
    with pytest.raises(ed.InputError, match="there is no undamaged step before it"):
        train(folder, steps=8)
    assert names(folder) == ["step-000004", "step-000006"]
    assert train(folder, steps=8, resume=False).losses == train(steps=8).losses
    assert models.load_checkpoint(folder).step == 8


def test_what_is_of_another_run_is_refused(folder):
    graph = models.ffnn(8, 30, 12, 5, optimizer="adam")
    for wanted, config in ((graph, None), (GRAPH, {"seed": 4})):
        with pytest.raises(ed.InputError, match=r"step-000006.complete\.json: is of another"):
            models.load_checkpoint(folder, wanted, config)


def test_a_file_that_nobody_wrote_changes_nothing(folder):
    wanted = models.load_checkpoint(folder)
    shutil.copy(folder / "step-000004" / FILE, folder / "step-000006" / "rank-0001.safetensors")
    assert same(models.load_checkpoint(folder), wanted)


def same(one, other):
    arrays = all(one.state[k].tobytes() == other.state[k].tobytes() for k in other.state)
    return arrays and (one.losses, one.config, one.graph) == (
        other.losses, other.config, other.graph
    )  # fmt: skip


@settings(deadline=None, max_examples=60 * FACTOR)
@given(st.sampled_from([FILE, JSON]), st.integers(0, 1 << 40), st.data())
def test_no_change_of_a_byte_goes_unnoticed(trained, name, where, data):
    """A bit is flipped, or bytes are replaced, inserted or left out: an error names the file."""
    path = trained / "step-000006" / name
    content = path.read_bytes()
    at = where % len(content)
    bit = data.draw(st.integers(0, 7))
    fresh = data.draw(
        st.one_of(
            st.just(bytes([content[at] ^ 1 << bit]) + content[at + 1 :]),
            st.binary(max_size=3).map(lambda more: more + content[at + 1 :]),
            st.binary(min_size=1, max_size=3).map(lambda more: more + content[at:]),
            st.just(b""),
        )
    )
    path.write_bytes(content[:at] + fresh)
    try:
        read = models.load_checkpoint(path.parent)
    except ed.InputError as error:
        read = str(error)
    finally:
        path.write_bytes(content)
    if isinstance(read, str):
        assert str(path) in read
    else:
        assert same(read, models.load_checkpoint(path.parent))


@pytest.mark.long
@needs_mpi
def test_ranks_find_damage_in_files_of_more_ranks_together(tmp_path):
    """4 ranks write, of whose files 2 ranks read two each; one finds damage, and both stop."""
    path = tmp_path / "run"
    options = [str(EXAMPLE), "--every", "2", "--strategy", "zero", "--checkpoint", str(path)]
    first = run_command([*launch("mpi", 4), *options, "--steps", "4"])
    assert first.status == 0, first.err
    flip(path / "step-000004" / "rank-0003.safetensors", -1)
    refused = run_command([*launch("mpi", 2), *options, "--steps", "6"])
    assert refused.status != 0
    assert "step-000004/rank-0003.safetensors has not the bytes" in refused.err
    assert "step 2 is undamaged" in refused.err
    shutil.rmtree(path / "step-000004")
    job = run_command([*launch("mpi", 2), *options, "--steps", "6"])
    assert job.status == 0, job.err
    assert sorted(losses_of(job.out)) == [3, 4, 5, 6]


@pytest.mark.long
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
        return "its digest differs"
    if how == "short":
        os.truncate(path, path.stat().st_size // 2)
        return "were written"
    path.unlink()
    return "is missing"
