"""Training stops and resumes without a trace, and leaves a whole checkpoint or the one before."""

from __future__ import annotations

import os
from contextlib import ExitStack
from stat import S_IMODE

import numpy as np
import pytest

import eindecomp as ed
from eindecomp import models
from faults import content, full_disk

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


@pytest.mark.one_in(2)
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adamw"])
def test_resuming_gives_the_same_bits(tmp_path, optimizer):
    whole = train(optimizer=optimizer)
    path = tmp_path / "run"
    train(path, steps=5, optimizer=optimizer)
    assert models.load_checkpoint(path).step == 5
    assert same(train(path, optimizer=optimizer), whole)


def test_a_schedule_resumes_as_well(tmp_path):
    options = {"lr": lambda step: 0.1 / step}
    whole = train(**options)
    train(tmp_path / "run", steps=7, **options)
    assert same(train(tmp_path / "run", **options), whole)


def test_an_iterable_is_skipped_to_where_it_was(tmp_path):
    batches = [batch for _, batch in zip(range(6), DATA.batches(), strict=False)]
    whole = train(data=batches, steps=None)
    assert whole.step == 6
    train(tmp_path / "run", data=batches, steps=2)
    assert same(train(tmp_path / "run", data=batches, steps=None), whole)


def test_an_interrupt_leaves_the_last_checkpoint(tmp_path):
    path = tmp_path / "run"

    def stop(step, _loss):
        if step == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(path, on_step=stop)
    assert models.load_checkpoint(path).step == 8
    assert sorted(each.name for each in path.iterdir()) == ["step-000004", "step-000008"]
    assert same(train(path), train())


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(tmp_path):
    path = tmp_path / "run"
    train(path, steps=4)
    before = content(path)
    at = models.load_checkpoint(path)
    with (
        full_disk(),
        pytest.raises(
            ed.EinDecompError, match=r"run/step-000004/rank-0000.safetensors: File too l"
        ),
    ):
        models.save_checkpoint(path, at.graph, at)
    assert content(path) == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_does_not_lose_the_state(tmp_path):
    path = tmp_path / "run"
    train(path, steps=4)
    before = content(path)
    with (
        full_disk(),
        pytest.warns(
            RuntimeWarning, match=r"/step-0000(08|12)/rank-0000.*: File too large.*not saved"
        ),
        pytest.raises(models.NotSavedError, match=r"File too large.*after step 13") as caught,
    ):
        train(path, steps=13)
    assert content(path) == before
    assert list(tmp_path.iterdir()) == [path]
    assert same(caught.value.fitted, train(steps=13))


def test_a_disk_that_has_room_again_gets_the_checkpoint(tmp_path):
    path = tmp_path / "run"
    with ExitStack() as full:

        def step(number, _loss):
            if number == 3:
                full.enter_context(full_disk())
            elif number == 5:
                full.close()

        with pytest.warns(RuntimeWarning, match="File too large"):
            train(path, on_step=step)
    assert models.load_checkpoint(path).step == 12


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_the_umask_says_who_may_read_a_checkpoint(tmp_path, umask):
    before = os.umask(umask)
    try:
        train(tmp_path / "run", steps=1)
        for file in (tmp_path / "run").rglob("*.*"):
            assert S_IMODE(file.stat().st_mode) == 0o666 & ~umask
    finally:
        os.umask(before)


def test_types_that_no_checkpoint_holds_are_refused_first(tmp_path):
    graph = ed.parse(
        "input W[i: 2] complex128\nV[i] <- W[i]\nloss[] <- sum abs(W[i])\n"
        "output loss, V\ntie W <- V"
    )
    state = {"W": np.zeros(2, np.complex128)}
    with pytest.raises(ed.InputError, match="W: no checkpoint can hold complex128"):
        models.fit(graph, [{}], state, lr=0.1, checkpoint=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_is_enough_to_go_on_from(tmp_path):
    path = tmp_path / "run"
    train(path, steps=5, config={"seed": 3})
    at = models.load_checkpoint(path)
    assert (at.step, at.config, len(at.losses)) == (5, {"seed": 3}, 5)
    assert at.graph == models.ffnn(8, 30, 12, 5, optimizer="adam")
    options = {"lr": 0.01, "devices": 2, "steps": 12, "checkpoint": path}
    assert same(models.fit(at.graph, DATA, at.state, **options), train())


def test_low_precision_is_kept_as_it_is(tmp_path):
    graph = models.ffnn(8, 30, 12, 5, optimizer="adam", dtype="bfloat16")
    options = {"lr": 0.01, "devices": 2}
    whole = models.fit(graph, DATA, models.initial(graph), steps=6, **options)
    options["checkpoint"] = tmp_path / "run"
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


def test_other_runs_are_refused(tmp_path):
    path = tmp_path / "run"
    train(path, steps=2, config={"seed": np.int64(3)})
    assert train(path, steps=2, config={"seed": 3}).step == 2
    with pytest.raises(ed.EinDecompError, match="seed was 3 and is 4"):
        train(path, config={"seed": 4})
    with pytest.raises(ed.EinDecompError, match="is of another graph: it had"):
        train(path, optimizer="sgd", config={"seed": 3})
    assert train(path, optimizer="sgd", resume=False).step == 12


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

    trained(3, tmp_path / "run")
    assert same(trained(6, tmp_path / "run"), trained(6))


@pytest.mark.parametrize("wrong", [-1, 5, 77])
def test_targets_that_are_no_class_stop_training(wrong):
    batch = next(DATA.batches(0))
    batch["y"][2] = wrong
    with pytest.raises(ed.RunError, match="the loss is nan at step 1"):
        train(data=[batch])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"config": {"seed": {3}}}, "config is not JSON: .*set"),
        ({"loss": "los"}, "the loss 'los' is no output"),
        ({"loss": "new_W1"}, r"the loss 'new_W1' is of shape \(30, 12\)"),
    ],
)
def test_what_would_fail_later_is_refused_first(tmp_path, options, message):
    called = []
    with pytest.raises(ed.InputError, match=message):
        train(tmp_path / "run", on_step=lambda *step: called.append(step), **options)
    assert not called


def test_places_that_cannot_hold_a_checkpoint_are_refused_first(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ed.InputError, match="file is a file; checkpoints need a folder"):
        train(tmp_path / "file")
    with pytest.raises(ed.InputError, match="file: Not a directory"):
        models.load_checkpoint(tmp_path / "file")
    with pytest.raises(ed.InputError, match=r"nowhere/run cannot be written"):
        train(tmp_path / "nowhere" / "run")


def test_a_step_that_ruins_the_parameters_leaves_the_checkpoint_before(tmp_path):
    path = tmp_path / "run"
    train(path, steps=4, optimizer="sgd")
    before = content(path)
    with pytest.raises(ed.RunError, match="is not finite after step 5: it is not saved"):
        train(path, steps=5, optimizer="sgd", lr=1e39, every=1)
    assert content(path) == before


def test_the_loss_is_an_output_of_a_step_whatever_else_is():
    net = ed.parse("input X[i: 3], W[i]\nZ[i] <- X[i] * W[i]\nloss[] <- sum Z[i]\noutput Z")
    step = models.training_step(net, "loss", ["W"])
    assert [vertex.name for vertex in step.outputs] == ["Z", "loss", "new_W"]


def test_a_configuration_is_the_same_if_its_text_is(tmp_path):
    path = tmp_path / "run"
    config = {"sizes": (1, 2), "limit": float("nan")}
    train(path, steps=2, config=config)
    assert train(path, steps=3).step == 3
    assert train(path, steps=4, config=config).step == 4
    with pytest.raises(ed.InputError, match="is of another configuration: sizes was"):
        train(path, steps=5, config={**config, "sizes": [1, 3]})


@pytest.mark.parametrize("engine", ["threads", "apart", "torch"])
def test_micro_batches_and_what_is_computed_again_give_the_same_losses(engine):
    graph = models.ffnn(24, 10, 12, 5)
    data, state = models.Synthetic(24, 10, 5), models.initial(graph)
    wanted = models.fit(graph, data, state, lr=0.1, steps=3, devices=1).losses
    plan = ed.plan(graph, 2, microbatches={"b": 3}, recompute="layers", time_limit=2)
    fitted = models.fit(graph, data, state, lr=0.1, steps=3, plan=plan, engine=engine)
    np.testing.assert_allclose(fitted.losses, wanted, rtol=1e-5)
    assert (fitted.bytes_moved, fitted.bytes_placed) == (3 * plan.cost, 0)
