"""Checkpoints that ranks write: complete or not there, and read by any number of ranks."""

from __future__ import annotations

import json
import os
import re
import shutil
from hashlib import blake2b
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import launch, needs_mpi, run_command, run_job
from safetensors.numpy import load_file

import eindecomp as ed
from eindecomp import models
from eindecomp.engines.safetensors_file import write_tensors
from eindecomp.engines.spmd.job import writers
from eindecomp.engines.step_folders import SavedStep
from eindecomp.layout.boxes import within
from eindecomp.models.checkpoint import read_sharded
from eindecomp.store.field import Field
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
    """A folder with the checkpoint of step 2."""
    train(tmp_path / "run", steps=2)
    return tmp_path / "run"


def names(path):
    return sorted(each.name for each in path.iterdir())


@pytest.mark.long
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
    tiling = program.buffers[program.outputs["Z"]].tiling
    shards = {rank: box for box, rank in writers(program.mesh, tiling).items()}
    blocks = [{"Z": shards[rank]} if rank in shards else {} for rank in range(program.devices)]
    lies = written(tmp_path_factory.mktemp("blocks"), program.graph["Z"], array, blocks)
    where = tuple(slice(low, high) for low, high in wanted)
    np.testing.assert_array_equal(lies[where], array[where])
    np.testing.assert_array_equal(lies[...], array)
    np.testing.assert_array_equal(lies[0], array[0])


def written(path, vertex, array, blocks):
    """An array in shards, each of which has some box of it or none."""
    shards = [{"boxes": each} for each in json.loads(json.dumps(blocks))]
    step = SavedStep(path, 1, {"shards": shards})
    for rank, boxes in enumerate(blocks):
        parts = {name: array[within(box, uncut(array.shape))] for name, box in boxes.items()}
        write_tensors(step.shard(rank), parts)
    labels = [f"i{k}" for k in range(array.ndim)]
    sides = [f"{label}: {size}" for label, size in zip(labels, array.shape, strict=True)]
    text = f"input Z[{', '.join(sides)}] {vertex.dtype}"
    graph = ed.parse(
        f"{text}\nV[{','.join(labels)}] <- Z[{','.join(labels)}]\noutput V\ntie Z <- V"
    )
    return read_sharded(step, Field(step.manifest)["shards"], graph)["Z"]


def uncut(shape):
    return tuple((0, size) for size in shape)


def test_only_the_files_that_are_needed_are_opened(tmp_path):
    vertex = ed.parse("input Z[i: 12]\nY[i] <- Z[i]\noutput Y")["Z"]
    array = np.arange(12, dtype=np.float32)
    blocks = [{"Z": ((low, low + 4),)} for low in (0, 4, 8)]
    lies = written(tmp_path, vertex, array, blocks)
    (tmp_path / "rank-0002.safetensors").unlink()
    np.testing.assert_array_equal(lies[2:7], array[2:7])
    with pytest.raises(ed.InputError, match=r"rank-0002\.safetensors is missing"):
        lies[7:9]


def test_training_keeps_the_last_two_steps(folder):
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


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("step", [1, 2, 4], ids=["over", "same", "next"])
def test_an_end_at_any_moment_leaves_a_whole_checkpoint(step, folder, monkeypatch):
    """A process ends before its first, second, … change of the disk, as if it were killed."""
    before, after = models.load_checkpoint(folder), train(steps=step, lr=0.2)
    later = models.Checkpoint(step, after.state, after.losses)
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
        wanted = before if found.losses == before.losses else later
        assert found.losses == wanted.losses
        assert all(np.array_equal(found.state[n], wanted.state[n]) for n in wanted.state)
        seen.add(found.losses[-1])
        models.save_checkpoint(copy, GRAPH, later)
        assert names(copy) == [f"step-{step:06d}"]
    assert status == 0
    assert moment > 8
    assert seen == {before.losses[-1], later.losses[-1]}


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
    """Change a manifest as one who knows how its digest is made."""
    manifest = path / "step-000002" / "complete.json"
    content = json.loads(manifest.read_text())
    del content["digest"]
    change(content)
    digest = blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=32).hexdigest()
    manifest.write_text(json.dumps({**content, "digest": digest}))


def boxes(content):
    return content["shards"][0]["boxes"]


LONG = "x" * 10_000
WRONG = {
    "version": (lambda c: c.update(version=2), "not a manifest of .*, version 1: .* version 2"),
    "format": (lambda c: c.update(format=LONG), "not a manifest of eindecomp checkpoint"),
    "step": (lambda c: c.update(step=3), "is of step 3"),
    "number of losses": (lambda c: c.update(losses=[1]), "must be those of 2 steps, not of 1"),
    "losses": (lambda c: c.update(losses=[1, None]), "losses: None is no number"),
    "config": (lambda c: c.update(config=[]), "config: not an object"),
    "no config": (lambda c: c.pop("config"), "config: is missing"),
    "no shards": (lambda c: c.pop("shards"), "its shards are not listed"),
    "shards": (lambda c: c.update(shards=[7]), "its shards are not listed"),
    "no digest": (lambda c: c["shards"][0].pop("blake2b"), "its shards are not listed"),
    "a tensor less": (lambda c: boxes(c).pop("W1"), r"do not hold every element of W1 \[30, 12\]"),
    "a tensor more": (lambda c: boxes(c).update(V=[]), "boxes.V: the graph has no such state"),
    "a smaller box": (lambda c: boxes(c).update(b2=[[0, 4]]), r"not hold every element of b2 \[5"),
    "a larger box": (lambda c: boxes(c).update(b2=[[0, 6]]), r"b2.0.1: must be a whole number"),
    "a flat box": (lambda c: boxes(c).update(W1=[[0, 6]]), r"W1: must be a box of 2 sides"),
    "no graph": (lambda c: c.update(graph=""), "its graph has nothing to train: ''"),
    "half a graph": (lambda c: c.update(graph="input W1[i: 3"), "graph:1:"),
    "code": (lambda c: c.update(graph="Z[i] <- __import__('os')"), "graph:1:"),
    "a long graph": (lambda c: c.update(graph=LONG), "graph:1:"),
    "another graph": (
        lambda c: c.update(graph="input b2[i: 5]\nV[i] <- b2[i]\noutput V\ntie b2 <- V"),
        "the graph has no such state",
    ),
    "another type": (
        lambda c: c.update(graph=re.sub(r"(?m)^input .*\]$", r"\g<0> float64", c["graph"])),
        r"has F32 \(30, 12\) for W1_sum\[0:30, 0:12\], not F64",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_manifests_that_are_wrong_are_refused(what, folder):
    change, message = WRONG[what]
    edit(folder, change)
    with pytest.raises(ed.InputError, match=rf"(?s)step-000002.*{message}") as caught:
        models.load_checkpoint(folder)
    assert len(str(caught.value)) < 1500


def test_what_is_not_finite_is_not_saved(folder):
    at = models.load_checkpoint(folder)
    at.state["W1"][3, 4] = np.nan
    with pytest.raises(ed.RunError, match="W1 is not finite after step 2: it is not saved"):
        models.save_checkpoint(folder, GRAPH, at)
    assert np.isfinite(models.load_checkpoint(folder).state["W1"]).all()


def test_shards_are_files_that_others_read(folder):
    at = models.load_checkpoint(folder)
    path = folder / "step-000002" / "rank-0000.safetensors"
    assert {name: array.tobytes() for name, array in load_file(path).items()} == {
        name: array.tobytes() for name, array in at.state.items()
    }


@pytest.mark.long
@needs_mpi
def test_a_run_that_was_killed_goes_on_behind_what_it_has_written(tmp_path):
    killed = run_job("mpi", 3, "relations.py", "kill", tmp_path / "run")
    assert killed.status != 0
    [run] = (tmp_path / "run").iterdir()
    assert len(names(run)) == 1  # only the last one of two
    job = run_job("mpi", 3, "relations.py", "go on", tmp_path / "run")
    assert (job.status, job.out) == (0, "all agree\n"), job.err
