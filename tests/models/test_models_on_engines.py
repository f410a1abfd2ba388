"""The state of training and the weights of a model stay on the devices, whatever the engine."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import JAX, RAY, TORCH, without_torch

import eindecomp as ed
from cases import ALL
from eindecomp import models
from eindecomp.engines.tensor import Tensor
from eindecomp.models.llama import Config, Llama

every_engine = pytest.mark.parametrize(
    "engine", ["threads", "apart", TORCH, *([RAY] if ALL else [])]
)
DATA = models.Synthetic(8, 30, 6, nonzeros=6)
SMALL = Config(
    vocabulary=40, width=16, layers=2, heads=4, kv_heads=2, head_size=4, hidden=24, positions=128
)
PROMPT = [3, 1, 4, 1, 5]


def train(steps=4, optimizer="momentum", **more):
    graph = models.ffnn(8, 30, 12, 6, optimizer=optimizer)
    more = {"lr": 0.05, "devices": 4, **more}
    return models.fit(graph, DATA, models.initial(graph, seed=1), steps=steps, **more)


@pytest.fixture
def gathered(monkeypatch):
    """The names of the tensors that are gathered, in order."""
    names, gather = [], Tensor.numpy

    def note(self):
        names.append(self.name)
        return gather(self)

    monkeypatch.setattr(Tensor, "numpy", note)
    return names


@pytest.mark.one_in(2)
@pytest.mark.long("adam-jax")
@pytest.mark.parametrize("other", ["apart", TORCH, JAX])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_training_is_the_same_on_every_engine(optimizer, other):
    threads, apart = (train(optimizer=optimizer, engine=name) for name in ("threads", other))
    assert np.allclose(apart.losses, threads.losses, rtol=1e-5)
    assert set(apart.state) == set(threads.state)
    for name, array in threads.state.items():
        assert np.allclose(apart.state[name], array, rtol=1e-4, atol=1e-6)
    assert apart.bytes_moved == threads.bytes_moved == 4 * threads.plan.cost
    assert apart.bytes_placed == threads.bytes_placed == 0


def test_plans_without_ties_move_the_state_between_steps():
    graph = models.ffnn(8, 30, 12, 6)
    loose, tied = ed.plan(graph, 4, tie={}), ed.plan(graph, 4)
    assert loose.cost <= tied.cost
    fitted = train(plan=loose, optimizer="sgd")
    assert fitted.bytes_moved == 4 * loose.cost
    # What the plan of one step does not count is paid between two of them.
    assert 3 * tied.cost <= 3 * loose.cost + fitted.bytes_placed


@every_engine
def test_only_the_loss_is_gathered_between_steps(engine, gathered):
    seen = []
    fitted = train(engine=engine, on_step=lambda *_: seen.append(list(gathered)))
    assert seen == [["loss"] * step for step in (1, 2, 3, 4)]
    assert sorted(gathered[4:]) == sorted(f"new_{name}" for name in fitted.state)


@every_engine
def test_the_state_is_gathered_for_checkpoints(engine, gathered, tmp_path):
    path = tmp_path / "run"
    fitted = train(engine=engine, checkpoint=path, every=2)
    assert gathered.count("new_W1") == 3  # after steps 2 and 4, and at the end
    saved = models.load_checkpoint(path).state
    assert all(np.array_equal(saved[name], fitted.state[name]) for name in saved)
    assert train(engine=engine, checkpoint=path, steps=5).losses[:4] == fitted.losses


@every_engine
@pytest.mark.parametrize(("label", "lacking"), [("f", 0), ("c", 1 / 2)])
def test_bringing_new_parameters_to_where_they_are_wanted_is_counted(engine, label, lacking):
    net = ed.parse(
        "input X[b: 6, f: 8], W[f, c: 4], y[b, c]\nP[b,c] <- sum X[b,f] * W[f,c]\n"
        "loss[] <- sum (P[b,c] - y[b,c])**2\noutput loss"
    )
    graph = models.training_step(net, "loss", ["W"])
    plan = ed.plan(graph, 2, pin={"W": {"f": 2}, "new_W": {label: 2}}, tie={})
    data = [{"X": np.ones((6, 8)), "y": np.ones((6, 4))}] * 4
    fitted = models.fit(graph, data, models.initial(graph), lr=0.01, plan=plan, engine=engine)
    assert fitted.bytes_moved == 4 * plan.cost
    # The first step reads the caller's arrays; then each device lacks that much of its half.
    assert fitted.bytes_placed == 3 * lacking * 8 * 4 * 4


@every_engine
def test_the_first_state_is_the_callers(engine):
    graph = models.ffnn(8, 30, 12, 6)
    state = models.initial(graph)
    copies = {name: array.copy() for name, array in state.items()}
    for _ in range(2):
        fitted = models.fit(graph, DATA, state, lr=0.1, steps=3, devices=2, engine=engine)
        assert all(np.array_equal(state[name], copies[name]) for name in state)
    assert not np.array_equal(fitted.state["W1"], state["W1"])


def test_what_an_engine_does_not_know_is_refused_before_training():
    called = []
    for more, message in (
        ({"engine": "thread"}, "no engine 'thread'; did you mean 'threads'"),
        ({"options": {"worker": 1}}, "has no option 'worker'"),
        ({"options": {"workers": 0}}, "workers must be 1 or more"),
        ({"engine": "apart", "options": {"workers": 1}}, "'apart' has no option 'workers'"),
    ):
        with pytest.raises(ed.InputError, match=message):
            train(on_step=lambda *step: called.append(step), **more)
    assert not called
    assert train(options={"workers": 1}).losses == pytest.approx(train().losses, rel=1e-6)


@pytest.mark.one_in(2)
@pytest.mark.long("None-apart", "None-torch")
@pytest.mark.parametrize("other", ["apart", TORCH])
@pytest.mark.parametrize("strategy", [None, "megatron"])
def test_a_model_is_the_same_on_every_engine(strategy, other):
    threads, apart = (Llama.random(SMALL, 4, strategy, engine=name) for name in ("threads", other))
    caches = threads.cache(), apart.cache()
    logits = [m.prefill(PROMPT, c) for m, c in zip((threads, apart), caches, strict=True)]
    for token in (7, 9):
        assert np.allclose(*logits, rtol=1e-4, atol=1e-5)
        logits = [m.step([token], c) for m, c in zip((threads, apart), caches, strict=True)]
    assert np.allclose(*logits, rtol=1e-4, atol=1e-5)
    assert apart.counts.bytes_moved == threads.counts.bytes_moved


def test_weights_are_placed_once_for_all_plans(gathered):
    usual = Llama.random(SMALL, 2)
    wanted = [piece.token for piece in usual.generate(PROMPT, 4)]
    model = Llama.random(SMALL, 2, engine="apart")
    model.prefill(PROMPT)
    for array in model.weights.values():
        array[...] = np.nan  # the devices have them: nobody reads these again
    gathered.clear()
    assert [piece.token for piece in model.generate(PROMPT, 4)] == wanted
    assert not set(gathered) & set(model.weights)


def test_plans_share_the_weights_that_lie_alike():
    model = Llama.random(SMALL, 2, engine="apart")
    cache = model.cache()
    for prompt in (PROMPT, PROMPT * 2):
        model.prefill(prompt)
    model.prefill(PROMPT, cache)
    model.step([1], cache)
    for name, weight in model.weights.items():
        bound = [bound for _, bound in model._placed._executables.values() if bound._bound]
        tensors = [each._prepared.inputs[name] for each in bound]
        blocks = {id(arrays[0]) for t in tensors for arrays in t.held().values()}
        layouts = {layout for t in tensors for layout in t.tilings}
        assert len(tensors) == 3
        assert len(blocks) == len(layouts), weight.shape


@pytest.mark.long("torch-None", "apart-None", "apart-megatron", "threads-None")
@pytest.mark.parametrize(
    ("engine", "strategy"),
    [
        ("threads", None), ("threads", "megatron"), ("apart", None), ("apart", "megatron"),
        pytest.param("torch", None, marks=without_torch),
    ],
)  # fmt: skip
def test_keys_and_values_stay_where_they_are_from_token_to_token(engine, strategy, gathered):
    model = Llama.random(SMALL, 4, strategy, engine=engine)
    cache = model.cache()
    model.prefill(PROMPT, cache)
    gathered.clear()
    for token in range(66):  # one more than lie apart, and one after that
        before = model.counts.bytes_moved, model.counts.bytes_placed
        stores = cache.is_full
        model.step([token % 40], cache)
        moved = model.counts.bytes_moved - before[0]
        placed = model.counts.bytes_placed - before[1]
        plan = model.plan("step", 1, cache.room)
        assert set(plan.tie) == {"KL0", "VL0", "KL1", "VL1"}
        assert stores == (token == 64)
        if stores:
            assert moved == plan.cost + model.plan("store", 1, 64, cache.room).cost
        else:
            assert moved == plan.cost
            # What was stored by another plan is placed once.
            assert placed == 0
    assert set(gathered) == {"logits"}
    assert (cache.lengths.tolist(), cache.latest, cache.room) == ([71], 2, 128)


@pytest.mark.long
def test_caches_of_several_sequences_hold_what_one_alone_does():
    model = Llama.random(SMALL, 2)
    prompts = [PROMPT, PROMPT[:2], PROMPT * 3]
    together = model.cache(3)
    model.prefill(prompts, together)
    alone = [model.cache() for _ in prompts]
    for prompt, cache in zip(prompts, alone, strict=True):
        model.prefill(prompt, cache)
    for token in range(66):
        found = model.step([token % 40] * 3, together)
    for row, cache in zip(found, alone, strict=True):
        for token in range(66):
            wanted = model.step([token % 40], cache)
        assert np.allclose(row, wanted[0], rtol=1e-4, atol=1e-5)


def test_a_closed_model_refuses_to_compute():
    with Llama.random(SMALL, 2, engine="apart") as model:
        cache = model.cache()
        model.prefill(PROMPT, cache)
        pieces = model.generate(PROMPT, 3)
        next(pieces)
    model.close()
    for call in (
        lambda: model.prefill(PROMPT),
        lambda: model.step([1], cache),
        lambda: model.logits(PROMPT),
        lambda: next(pieces),
    ):
        with pytest.raises(ed.InputError, match="this model was closed"):
            call()


def test_engines_of_a_model_are_checked_when_it_is_made():
    with pytest.raises(ed.InputError, match="there is no engine 'nowhere'"):
        Llama.random(SMALL, 2, engine="nowhere")
    with pytest.raises(ed.InputError, match="has no option 'threads'"):
        Llama.random(SMALL, 2, options={"threads": 2})
