"""Training stops and resumes without a trace, and leaves a whole checkpoint or the one before."""

from __future__ import annotations

import json
import os
import resource
from contextlib import ExitStack, contextmanager
from stat import S_IMODE

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import eindecomp as ed
from eindecomp import models

DATA = models.Synthetic(8, 30, 5, nonzeros=6)


def train(path=None, steps=12, optimizer="adam", **more):
    graph = models.ffnn(8, 30, 12, 5, optimizer=optimizer)
    state = models.initial(graph, seed=3)
    more = {"lr": 0.01, "devices": 2, "every": 4, **more}
    return models.fit(graph, more.pop("data", DATA), state, steps=steps, checkpoint=path, **more)


def same(first, second):
    assert first.losses == second.losses
    assert set(first.state) == set(second.state)
    return all(first.state[k].tobytes() == second.state[k].tobytes() for k in first.state)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw"])
def test_resuming_gives_the_same_bits(tmp_path, optimizer):
    whole = train(optimizer=optimizer)
    path = tmp_path / "run.safetensors"
    train(path, steps=5, optimizer=optimizer)
    assert load_file(path)["fit.losses"].shape == (5,)
    assert same(train(path, optimizer=optimizer), whole)


def test_a_schedule_and_a_file_resume_as_well(tmp_path):
    DATA.write(tmp_path / "data.txt", 50)
    options = {
        "data": models.extreme_file(tmp_path / "data.txt", 8, window=16, seed=4),
        "lr": lambda step: 0.1 / step,
    }
    whole = train(**options)
    train(tmp_path / "run.safetensors", steps=7, **options)
    assert same(train(tmp_path / "run.safetensors", **options), whole)


def test_an_iterable_is_skipped_to_where_it_was(tmp_path):
    batches = [batch for _, batch in zip(range(6), DATA.batches(), strict=False)]
    whole = train(data=batches, steps=None)
    assert whole.step == 6
    train(tmp_path / "run.safetensors", data=batches, steps=2)
    assert same(train(tmp_path / "run.safetensors", data=batches, steps=None), whole)


def test_an_interrupt_leaves_the_last_checkpoint(tmp_path):
    path = tmp_path / "run.safetensors"

    def stop(step, _loss):
        if step == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(path, on_step=stop)
    with safe_open(path, "numpy") as file:
        assert file.metadata()["step"] == "8"
    assert list(tmp_path.iterdir()) == [path]
    assert same(train(path), train())


@contextmanager
def full_disk(room=0):
    """No file can grow beyond so many bytes, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(tmp_path):
    path = tmp_path / "run.safetensors"
    train(path, steps=4)
    before = path.read_bytes()
    at = models.load_checkpoint(path)
    with full_disk(), pytest.raises(ed.EinDecompError, match=r"run.safetensors: cannot be written"):
        models.save_checkpoint(path, at.graph, at)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_does_not_lose_the_state(tmp_path):
    path = tmp_path / "run.safetensors"
    train(path, steps=4)
    before = path.read_bytes()
    with (
        full_disk(),
        pytest.warns(RuntimeWarning, match=r"run.safetensors: cannot be written.*goes on"),
        pytest.raises(models.NotSavedError, match=r"run.safetensors: .*after step 13") as caught,
    ):
        train(path, steps=13)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    assert same(caught.value.fitted, train(steps=13))


def test_a_disk_that_has_room_again_gets_the_checkpoint(tmp_path):
    path = tmp_path / "run.safetensors"
    with ExitStack() as full:

        def step(number, _loss):
            if number == 3:
                full.enter_context(full_disk())
            elif number == 5:
                full.close()

        with pytest.warns(RuntimeWarning, match="cannot be written"):
            train(path, on_step=step)
    assert models.load_checkpoint(path).step == 12


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_the_umask_says_who_may_read_a_checkpoint(tmp_path, umask):
    path = tmp_path / "run.safetensors"
    before = os.umask(umask)
    try:
        train(path, steps=1)
        assert S_IMODE(path.stat().st_mode) == 0o666 & ~umask
        path.chmod(0o640)
        train(path, steps=2)
        assert S_IMODE(path.stat().st_mode) == 0o640
    finally:
        os.umask(before)


def test_types_that_no_checkpoint_holds_are_refused_first(tmp_path):
    graph = ed.parse(
        "input W[i: 2] complex128\nnew_W[i] <- W[i]\nloss[] <- sum abs(W[i])\noutput loss, new_W"
    )
    state = {"W": np.zeros(2, np.complex128)}
    with pytest.raises(ed.InputError, match="W: no checkpoint can hold complex128"):
        models.fit(graph, [{}], state, lr=0.1, checkpoint=tmp_path / "run.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_is_enough_to_go_on_from(tmp_path):
    path = tmp_path / "run.safetensors"
    train(path, steps=5, config={"seed": 3})
    at = models.load_checkpoint(path)
    assert (at.step, at.config, len(at.losses)) == (5, {"seed": 3}, 5)
    assert at.graph == models.ffnn(8, 30, 12, 5, optimizer="adam")
    options = {"lr": 0.01, "devices": 2, "steps": 12, "checkpoint": path}
    assert same(models.fit(at.graph, DATA, at.state, **options), train())


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ("", "its graph has nothing to train: ''"),
        ("input W1[i: 3", "graph:1:"),
        ("Z[i] <- __import__('os')", "graph:1:"),
        ("input W1[i: 3]\nnew_W1[i] <- W1[i]\noutput new_W1", "W1 is of F32"),
        ("input V[i: 3]\nnew_V[i] <- V[i]\noutput new_V", "has no tensor 'V'"),
        ("x" * 10_000, "graph:1:"),
    ],
)
def test_the_graph_of_a_file_is_parsed_and_checked(tmp_path, graph, message):
    path = tmp_path / "run.safetensors"
    train(path, steps=2)
    with safe_open(path, "numpy") as file:
        metadata = {**file.metadata(), "graph": graph}
    save_file(load_file(path), path, metadata)
    with pytest.raises(ed.InputError, match=message) as caught:
        models.load_checkpoint(path)
    assert len(str(caught.value)) < 1500


def test_what_is_quoted_from_a_checkpoint_is_short(tmp_path):
    path = tmp_path / "run.safetensors"
    train(path, steps=2)
    tensors, long = load_file(path), "x" * 10_000
    with safe_open(path, "numpy") as file:
        known = file.metadata()
    for spoilt in (
        {"format": long},
        {"step": long},
        {"graph": long},
        {"config": f'{{"{long}":1}}'},
    ):
        save_file(tensors, path, {**known, **spoilt})
        with pytest.raises(ed.InputError) as caught:
            train(path, config={"seed": 1})
        assert len(str(caught.value)) < 1500


def test_low_precision_is_kept_as_it_is(tmp_path):
    graph = models.ffnn(8, 30, 12, 5, optimizer="adam", dtype="bfloat16")
    options = {"lr": 0.01, "devices": 2}
    whole = models.fit(graph, DATA, models.initial(graph), steps=6, **options)
    options["checkpoint"] = tmp_path / "run.safetensors"
    models.fit(graph, DATA, models.initial(graph), steps=3, **options)
    assert same(models.fit(graph, DATA, models.initial(graph), steps=6, **options), whole)


def test_the_arrays_given_are_only_read():
    graph = models.ffnn(8, 30, 12, 5)
    state = models.initial(graph)
    copies = {name: array.copy() for name, array in state.items()}
    models.fit(graph, DATA, state, lr=0.1, steps=4)
    assert all(np.array_equal(state[name], copies[name]) for name in state)


def test_large_arrays_are_used_again_without_mixing_up():
    data = models.Synthetic(8, 2048, 5, nonzeros=6)
    graph = models.ffnn(8, 2048, 256, 5, optimizer="momentum")
    # With as many workers both compute tiles as the plan cuts them, and round alike.
    asked = {"devices": 2, "options": {"workers": 2}}
    found = models.fit(graph, data, models.initial(graph), lr=0.1, steps=5, **asked)
    plan, state, losses = ed.plan(graph, 2), models.initial(graph), []
    for _, batch in zip(range(5), data.batches(), strict=False):
        result = ed.run(plan, {**batch, **state, "lr": 0.1}, workers=2)
        state = {name: result[f"new_{name}"] for name in state}
        losses.append(float(result["loss"]))
    assert found.losses == losses
    assert all(np.array_equal(found.state[name], state[name]) for name in state)


def test_metadata_says_what_it_is(tmp_path):
    path = tmp_path / "run.safetensors"
    train(path, steps=2, config={"optimizer": "adam", "seed": 3})
    with safe_open(path, "numpy") as file:
        metadata = file.metadata()
    assert metadata["step"] == "2"
    assert json.loads(metadata["config"]) == {"optimizer": "adam", "seed": 3}
    assert ed.parse(metadata["graph"]) == models.ffnn(8, 30, 12, 5, optimizer="adam")


def test_other_runs_are_refused(tmp_path):
    path = tmp_path / "run.safetensors"
    train(path, steps=2, config={"seed": np.int64(3)})
    assert train(path, steps=2, config={"seed": 3}).step == 2
    with pytest.raises(ed.EinDecompError, match="seed was 3 and is 4"):
        train(path, config={"seed": 4})
    with pytest.raises(ed.EinDecompError, match="is of another graph: it had"):
        train(path, optimizer="sgd", config={"seed": 3})
    assert train(path, optimizer="sgd", resume=False).step == 12


@pytest.mark.parametrize(
    ("tensors", "metadata", "message"),
    [
        ({"W1": None}, {}, "has no tensor 'W1'"),
        ({"W1": np.zeros((3, 12), "f4")}, {}, r"W1 is of F32 \(3, 12\); the graph's"),
        ({"b1": np.zeros(12)}, {}, "b1 is of F64"),
        ({"fit.losses": None}, {}, "has not the losses of 4 steps"),
        ({}, {"step": "-1"}, "'-1' is no number of steps"),
        ({}, {"step": "9"}, "has not the losses of 9 steps"),
        ({}, {"config": "{"}, "config: not JSON"),
        ({}, {"config": "[]"}, "config: not an object"),
        ({}, {"format": "model"}, "not a checkpoint: its format is 'model'"),
    ],
)
def test_spoilt_checkpoints_are_refused(tmp_path, tensors, metadata, message):
    path = tmp_path / "run.safetensors"
    train(path, steps=4)
    found = {k: v for k, v in {**load_file(path), **tensors}.items() if v is not None}
    with safe_open(path, "numpy") as file:
        metadata = {**file.metadata(), **metadata}
    save_file(found, path, metadata)
    with pytest.raises(ed.EinDecompError, match=message):
        train(path)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff" * 64])
def test_files_that_are_no_safetensors_are_refused(tmp_path, content):
    path = tmp_path / "run.safetensors"
    path.write_bytes(content)
    with pytest.raises(ed.EinDecompError, match=r"run.safetensors: not a safetensors file"):
        train(path)


def test_what_cannot_be_trained_is_refused():
    graph = ed.parse("input X[i: 3]\nloss[] <- sum X[i]\noutput loss")
    with pytest.raises(ed.EinDecompError, match="nothing to train"):
        models.fit(graph, DATA, {}, lr=0.1, steps=1)
    with pytest.raises(ed.EinDecompError, match="lacks W1"):
        models.fit(models.ffnn(8, 30, 12, 5), DATA, {}, lr=0.1, steps=1)
    with pytest.raises(ed.EinDecompError, match="the loss is"):
        train(steps=20, optimizer="sgd", lr=1e30)


def test_a_parameter_that_is_one_number_resumes(tmp_path):
    net = ed.parse("input X[b: 4], t[]\nloss[] <- sum (X[b] - t[])**2\noutput loss")
    graph = models.training_step(net, "loss", ["t"], "momentum")
    state = {v.name: np.zeros(v.shape, v.dtype) for v in graph.inputs if v.name != "X"}
    data = [{"X": np.arange(4, dtype=np.float32)}] * 6

    def trained(steps, path=None):
        return models.fit(graph, data, state, lr=0.01, steps=steps, checkpoint=path)

    trained(3, tmp_path / "run.safetensors")
    assert same(trained(6, tmp_path / "run.safetensors"), trained(6))


@pytest.mark.parametrize("wrong", [-1, 5, 77])
def test_targets_that_are_no_class_stop_training(wrong):
    batch = next(DATA.batches(0))
    batch["y"][2] = wrong
    with pytest.raises(ed.RunError, match="the loss is nan at step 1"):
        train(data=[batch])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"config": {"seed": {3}}}, r"config is not JSON: \{3\} is a set"),
        ({"loss": "los"}, "the loss 'los' is no output"),
        ({"loss": "new_W1"}, r"the loss 'new_W1' is of shape \(30, 12\)"),
    ],
)
def test_what_would_fail_later_is_refused_first(tmp_path, options, message):
    called = []
    with pytest.raises(ed.InputError, match=message):
        train(tmp_path / "run.safetensors", on_step=lambda *step: called.append(step), **options)
    assert not called


def test_places_that_cannot_hold_a_checkpoint_are_refused_first(tmp_path):
    with pytest.raises(ed.InputError, match="is no file"):
        train(tmp_path)
    with pytest.raises(ed.InputError, match=r"nowhere/run.safetensors cannot be written"):
        train(tmp_path / "nowhere" / "run.safetensors")


def test_a_step_that_ruins_the_parameters_leaves_the_checkpoint_before(tmp_path):
    path = tmp_path / "run.safetensors"
    train(path, steps=4, optimizer="sgd")
    before = path.read_bytes()
    with pytest.raises(ed.RunError, match="is not finite after step 5: it is not saved"):
        train(path, steps=5, optimizer="sgd", lr=1e39, every=1)
    assert path.read_bytes() == before


def test_types_that_numpy_has_not_are_refused(tmp_path):
    path = tmp_path / "run.safetensors"
    train(path, steps=2, optimizer="sgd")
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header["b1"] |= {"dtype": "F8_E4M3", "shape": [48]}
    fresh = json.dumps(header).encode()
    path.write_bytes(len(fresh).to_bytes(8, "little") + fresh + data[8 + length :])
    with pytest.raises(ed.InputError, match="b1 is of F8_E4M3"):
        train(path, steps=4, optimizer="sgd")


def test_the_loss_is_an_output_of_a_step_whatever_else_is():
    net = ed.parse("input X[i: 3], W[i]\nZ[i] <- X[i] * W[i]\nloss[] <- sum Z[i]\noutput Z")
    step = models.training_step(net, "loss", ["W"])
    assert [vertex.name for vertex in step.outputs] == ["Z", "loss", "new_W"]


def test_a_configuration_is_the_same_if_its_text_is(tmp_path):
    path = tmp_path / "run.safetensors"
    config = {"sizes": (1, 2), "limit": float("nan")}
    train(path, steps=2, config=config)
    assert train(path, steps=3).step == 3
    assert train(path, steps=4, config=config).step == 4
    with pytest.raises(ed.InputError, match="is of another configuration: sizes was"):
        train(path, steps=5, config={**config, "sizes": [1, 3]})
