"""Checkpoints that ranks write: complete or not there, and read by any number of ranks."""

from __future__ import annotations

import json
import os
import shutil
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import launch, needs_mpi, run_command, run_job
from safetensors.numpy import load_file, save_file

import eindecomp as ed
from eindecomp import models
from eindecomp.engines.ranks import Alone, writers
from eindecomp.models.checkpoint_folder import CheckpointFolder
from eindecomp.store.field import Field
from eindecomp.store.sharded_tensors import (
    BlockFiles,
    ShardedArray,
    ShardedTensor,
    read_sharded,
    write_blocks,
)
from eindecomp.tra.program.make import program_of

EXAMPLE = Path(__file__).parents[3] / "examples" / "data_parallel.py"
DATA = models.Synthetic(8, 30, 5, nonzeros=6)
GRAPH = models.ffnn(8, 30, 12, 5, optimizer="momentum")


def losses_of(out):
    """What the example printed, by step."""
    lines = [line.split() for line in out.splitlines() if line.startswith("step")]
    return {int(line[1].rstrip(":")): float(line[3]) for line in lines}


def train(path=None, steps=6, **more):
    more = {"lr": 0.1, "devices": 2, "every": 2, **more}
    state = models.initial(GRAPH, seed=3)
    return models.fit(GRAPH, DATA, state, steps=steps, checkpoint=path, **more)


@pytest.fixture
def folder(tmp_path):
    """A folder as ranks write it, of two steps."""
    path = tmp_path / "run"
    path.mkdir()
    train(tmp_path / "run.safetensors", steps=2)
    models.save_checkpoint(path, GRAPH, models.load_checkpoint(tmp_path / "run.safetensors"))
    return path


def names(path):
    return sorted(each.name for each in path.iterdir())


@needs_mpi
def test_training_goes_on_after_a_kill_and_with_other_numbers_of_ranks(tmp_path):
    """2 ranks, one of which is killed, then 4, then 3, then one process: the same losses."""
    path = tmp_path / "run"
    options = ["--checkpoint", str(path), "--every", "2", "--strategy", "zero", "--steps"]
    killed = run_job("mpi", 2, "killed.py", 1, 2, *options, 6)
    assert killed.status != 0
    found = losses_of(killed.out)
    assert [name for name in names(path) if not name.startswith(".")] == ["step-000002"]
    assert any(name.startswith(".step-000004") for name in names(path))  # what was half-written
    for ranks, first, last in ((4, 3, 6), (3, 7, 8)):
        job = run_command([*launch("mpi", ranks), str(EXAMPLE), *options, str(last)])
        assert job.status == 0, job.err
        more = losses_of(job.out)
        assert sorted(more) == list(range(first, last + 1))
        found |= more
        assert models.load_checkpoint(path).losses[first - 1 :] == [*more.values()]
    assert names(path) == ["step-000006", "step-000008"]
    assert len({each.name for each in (path / "step-000008").iterdir()}) == 4  # 3 and the manifest

    at = models.load_checkpoint(path)
    data = models.Synthetic(24, 60, 12, nonzeros=8)
    plan = ed.plan(at.graph, 4, strategy="zero")
    options = {"lr": 0.01, "plan": plan, "steps": 9}
    alone = models.fit(at.graph, data, at.state, checkpoint=path, **options)
    assert alone.losses[:8] == [found[step] for step in range(1, 9)]
    assert names(path) == ["step-000008", "step-000009"]
    whole = models.fit(at.graph, data, models.initial(at.graph, seed=1), **options)
    np.testing.assert_allclose(alone.losses, whole.losses, rtol=1e-4)


@st.composite
def sharded(draw):
    """A tensor's layout over some devices, as plans have them."""
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    labels = "ijk"[: len(sizes)]
    text = ", ".join(f"{label}: {size}" for label, size in zip(labels, sizes, strict=True))
    at = ",".join(labels)
    graph = ed.parse(f"input X[{text}]\nZ[{at}] <- X[{at}] + 1\noutput Z")
    devices = draw(st.integers(1, 8))
    strategy = draw(st.sampled_from([None, list(labels), list(labels[::-1])]))
    program = program_of(ed.plan(graph, devices, strategy=strategy))
    sides = [sorted((draw(st.integers(0, n)), draw(st.integers(0, n)))) for n in sizes]
    return program, tuple(sizes), tuple(map(tuple, sides))


@settings(deadline=None, max_examples=40)
@given(sharded())
def test_any_box_is_read_of_any_blocks(tmp_path_factory, case):
    program, shape, wanted = case
    array = np.arange(prod(shape), dtype=np.float32).reshape(shape)
    path = tmp_path_factory.mktemp("blocks")
    tiling = program.buffers[program.outputs["Z"]].tiling
    owners = writers(program.mesh, tiling)
    for box, rank in owners.items():
        where = tuple(slice(low, high) for low, high in box)
        write_blocks(path, rank, "token", {"Z": (box, array[where])})
    blocks = tuple((rank, box) for box, rank in owners.items())
    told = json.loads(json.dumps(ShardedTensor("Z", shape, array.dtype, blocks).to_json()))
    tensor = read_sharded("Z", Field(told), program.devices)
    assert tensor.blocks == blocks
    lies = ShardedArray(tensor, BlockFiles(path, "token"))
    where = tuple(slice(low, high) for low, high in wanted)
    np.testing.assert_array_equal(lies[where], array[where])
    np.testing.assert_array_equal(lies[...], array)
    np.testing.assert_array_equal(lies[0], array[0])


def test_only_the_files_that_are_needed_are_opened(tmp_path):
    array = np.arange(12.0)
    boxes = [((low, low + 4),) for low in (0, 4, 8)]
    for rank, ((low, high),) in enumerate(boxes):
        write_blocks(tmp_path, rank, "token", {"Z": (((low, high),), array[low:high])})
    (tmp_path / "rank-0002.safetensors").unlink()
    tensor = ShardedTensor("Z", (12,), array.dtype, tuple(enumerate(boxes)))
    lies = ShardedArray(tensor, BlockFiles(tmp_path, "token"))
    np.testing.assert_array_equal(lies[2:7], array[2:7])
    with pytest.raises(ed.InputError, match=r"rank-0002\.safetensors is missing"):
        lies[7:9]


def test_one_process_goes_on_from_what_ranks_have_written(folder):
    whole = train()
    assert names(folder) == ["step-000002"]
    again = train(folder)
    assert again.losses == whole.losses
    assert all(np.array_equal(again.state[name], whole.state[name]) for name in whole.state)
    assert names(folder) == ["step-000004", "step-000006"]
    assert train(folder).losses == whole.losses  # there is nothing left to do
    assert names(folder) == ["step-000004", "step-000006"]


def test_starting_over_leaves_nothing_of_the_run_before(folder):
    train(folder, steps=6)
    over = train(folder, steps=3, every=3, resume=False)
    assert names(folder) == ["step-000003"]
    assert models.load_checkpoint(folder).losses == over.losses
    assert train(folder, steps=6, resume=False).losses == train(folder).losses


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_an_end_at_any_moment_leaves_a_whole_checkpoint(folder, monkeypatch):
    """A process ends before its first, second, … change of the disk, as if it were killed."""
    before, after = models.load_checkpoint(folder), train(steps=4)
    later = models.Checkpoint(4, after.state, after.losses)
    seen, status, moment = set(), 9, 0
    while status == 9:
        moment += 1
        copy = folder.with_name(f"copy-{moment}")
        shutil.copytree(folder, copy)
        child = os.fork()
        if not child:
            end_at(monkeypatch, moment)
            models.save_checkpoint(copy, GRAPH, later)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        found = models.load_checkpoint(copy)
        wanted = {2: before, 4: later}[found.step]
        assert found.losses == wanted.losses
        assert all(np.array_equal(found.state[n], wanted.state[n]) for n in wanted.state)
        seen.add(found.step)
        models.save_checkpoint(copy, GRAPH, later)
        assert names(copy) == ["step-000004"]
    assert status == 0
    assert moment > 8
    assert seen == {2, 4}


def end_at(monkeypatch, moment):
    """End this process when it is about to change the disk for the n-th time."""
    done = []

    def counted(do):
        def call(*args, **more):
            done.append(do)
            if len(done) == moment:
                os._exit(9)
            return do(*args, **more)

        return call

    for owner, name in (
        (os, "fsync"), (Path, "rename"), (Path, "replace"), (Path, "mkdir"),
        (Path, "write_text"), (os, "unlink"), (os, "rmdir"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))


def edit(path, change):
    manifest = path / "step-000002" / "complete.json"
    content = json.loads(manifest.read_text())
    change(content)
    manifest.write_text(json.dumps(content))


def moved_box(content):
    [[_, box]] = content["tensors"]["W1"]["blocks"]
    box[0][1] -= 1


def second_box(content):
    content["tensors"]["W1"]["blocks"] *= 2


WRONG = {
    "version": (lambda c: c.update(version=2), "version: must be a whole number, 1 to 1, not 2"),
    "format": (lambda c: c.update(format="a plan"), "format: must be one of eindecomp checkpoint"),
    "step": (lambda c: c.update(step=3), "losses: must be those of 3 steps, not of 2"),
    "losses": (lambda c: c.update(losses=[1, None]), "losses: None is no number"),
    "graph": (lambda c: c.update(graph="input X[i: 3]"), "is of another graph"),
    "config": (lambda c: c.update(config=[]), "config: not an object"),
    "token": (lambda c: c.update({"token": "other"}), "was not written with the other files"),
    "a tensor less": (lambda c: c["tensors"].pop("W1"), "tensors.W1: is missing"),
    "a tensor more": (lambda c: c["tensors"].update(V={}), "the graph has no state 'V'"),
    "shape": (lambda c: c["tensors"]["b2"].update(shape=[6]), r"b2.blocks: do not hold every"),
    "type": (lambda c: c["tensors"]["b2"].update(dtype="F64"), r"b2: is of float64 \[5\]"),
    "a smaller box": (moved_box, r"W1.blocks: do not hold every element of \[30, 12\] once"),
    "two boxes": (second_box, r"W1.blocks: a rank has two blocks"),
    "rank": (lambda c: c["tensors"]["b2"]["blocks"][0].__setitem__(0, 7), "blocks.0.0: must be"),
    "extra": (lambda c: c.update(more=1), "there is no field 'more'"),
    "a checksum less": (lambda c: c["files"].clear(), "rank-0000.safetensors: is missing"),
    "checksums": (lambda c: c.update(files=[7]), r"files: must be an object, not \[7\]"),
}


@pytest.mark.parametrize("what", WRONG)
def test_manifests_that_are_wrong_are_refused(what, folder):
    change, message = WRONG[what]
    edit(folder, change)
    with pytest.raises(ed.InputError, match=message):
        train(folder)


@pytest.mark.parametrize("how", ["short", "other", "gone", "no json"])
def test_files_that_are_wrong_are_refused_without_checksums(how, folder):
    edit(folder, lambda content: content.pop("files"))
    path = folder / "step-000002" / "rank-0000.safetensors"
    message = "no whole safetensors file"
    if how == "short":
        os.truncate(path, path.stat().st_size // 2)
    elif how == "gone":
        path.unlink()
        message = "is missing"
    elif how == "no json":
        (folder / "step-000002" / "complete.json").write_text("{")
        message = "complete.json: not JSON"
    else:
        token = json.loads((folder / "step-000002" / "complete.json").read_text())["token"]
        arrays = load_file(path) | {"b2": np.zeros(4, np.float32)}
        save_file(arrays, path, {"token": token})
        message = r"has F32 \(4,\) for b2\[0:5\], not F32 \(5,\)"
    with pytest.raises(ed.InputError, match=message):
        train(folder)


def test_what_is_not_finite_is_not_saved(folder):
    at = models.load_checkpoint(folder)
    at.state["W1"][3, 4] = np.nan
    with pytest.raises(ed.RunError, match="W1 is not finite after step 2: it is not saved"):
        models.save_checkpoint(folder, GRAPH, at)
    assert np.isfinite(models.load_checkpoint(folder).state["W1"]).all()


def test_ranks_do_not_write_over_a_file(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(ed.InputError, match="is a file, as one process writes it"):
        CheckpointFolder(tmp_path / "run", Alone()).check()
    with pytest.raises(ed.InputError, match="has no complete checkpoint"):
        models.load_checkpoint(tmp_path)


@needs_mpi
def test_a_run_that_was_killed_goes_on_behind_what_it_has_written(tmp_path):
    killed = run_job("mpi", 3, "relations.py", "kill", tmp_path / "run")
    assert killed.status != 0
    [run] = (tmp_path / "run").iterdir()
    assert len(names(run)) == 1  # only the last one of two
    job = run_job("mpi", 3, "relations.py", "go on", tmp_path / "run")
    assert (job.status, job.out) == (0, "all agree\n"), job.err
