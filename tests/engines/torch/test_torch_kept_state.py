"""State that stays on the GPU from run to run has the values of the reference, whoever has it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from agreement import agree, arrays_for, precise
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_graphs import random_step

import eindecomp as ed
from eindecomp import models
from eindecomp.engines.result import TaskStarted
from eindecomp.tra.paging.make import ArenaTooSmallError, make_schedule
from eindecomp.tra.paging.schedule import Fetch, Keep, Store
from eindecomp.tra.paging.workload import Links
from verify_schedule import verify_schedule

torch = pytest.importorskip("torch", reason="torch is not installed")

from eindecomp.engines.torch.engine import TorchEngine  # noqa: E402
from eindecomp.engines.torch.paged_memory import Tenant  # noqa: E402 - it needs torch

NOTHING = 64 << 20
"""A limit that leaves nothing for tensors."""
BATCH, FEATURES, HIDDEN, CLASSES = 16, 128, 64, 256
STATE = 3 * 4 * (FEATURES * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES)
DECAY = """
input W[i: 8, j: 8], V[i, j], X[j]
H[i] <- sum W[i,j] * X[j]
new_W[i,j] <- 0.5 * W[i,j] + H[i] * X[j]
new_V[i,j] <- V[i,j] - H[i]
output new_W, new_V, H
"""
TIE = {"W": "new_W", "V": "new_V"}
SLOW = Links(to_gpu=1e6, to_host=1e6, from_disk=1e6)


@pytest.fixture(scope="module", autouse=True)
def _slow_links():
    """Copies take longer than kernels, so that whatever can stay does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eindecomp.engines.torch.paged.measure_links", lambda _: SLOW)
        yield


def engine_with(nbytes):
    return TorchEngine(device="cpu", gpu_memory=NOTHING + int(nbytes), finer=False)


def decay(engine=None):
    """A small step, ready to run where all of its state may stay, and its first inputs."""
    plan = ed.plan(ed.parse(DECAY), 2, tie=TIE, rewrite=False)
    return ed.compile(plan, engine or engine_with(1 << 20)), arrays_for(plan.graph)


def tensors_of(result, tie):
    return {name: result.tensor(new) for name, new in tie.items()}


def lies_in_arena(tensor):
    return isinstance(tensor.data, Tenant) and tensor.data.memory is not None


def after(graph, arrays, tie, steps):
    """The inputs after some steps of the reference."""
    for _ in range(steps):
        found = ed.evaluate(graph, arrays)
        arrays = arrays | {name: found[new] for name, new in tie.items()}
    return arrays


class Players:
    """Two executables of one engine, the state that one has made, and tensors that a user keeps."""

    def __init__(self, seed, room):
        with precise():
            self.graph, self.tie = random_step(seed)
        plan = ed.plan(self.graph, 2, tie=self.tie, rewrite=False)
        self.plan, self.engine = plan, engine_with(room)
        self.executable, self.other = (ed.compile(plan, self.engine) for _ in range(2))
        self.arrays = arrays_for(self.graph)
        self.state = self.executable.place({name: self.arrays[name] for name in self.tie})
        self.kept: list[tuple[ed.Tensor, np.ndarray]] = []

    def step(self, executable, donate):
        wanted = ed.evaluate(self.graph, self.arrays)
        found = executable({**self.arrays, **self.state}, donate=self.state if donate else ())
        agree(found, wanted, 1e-5)
        self.arrays |= {name: found[new].copy() for name, new in self.tie.items()}
        self.state = tensors_of(found, self.tie)

    def play(self, move):
        match move:
            case "step":
                self.step(self.executable, donate=True)
            case "borrow":
                self.step(self.executable, donate=False)
            case "elsewhere":
                self.step(self.other, donate=True)
            case "look":
                self.kept += [(t.array(), self.arrays[n]) for n, t in self.state.items()]
            case "keep":
                placed = self.other.place(self.state)
                self.kept += [(t, self.arrays[n]) for n, t in placed.items()]
            case "forget":
                self.kept += [(t, self.arrays[n]) for n, t in self.state.items()]
                self.state = self.executable.place({n: self.arrays[n] for n in self.tie})
            case "close":
                self.executable.close()
                self.executable = ed.compile(self.plan, self.engine)
            case _:
                raise AssertionError(move)

    def check(self):
        self.kept += [(tensor, self.arrays[name]) for name, tensor in self.state.items()]
        for tensor, wanted in self.kept:
            np.testing.assert_allclose(np.asarray(tensor), wanted, rtol=1e-6, atol=1e-9)


MOVES = ["step", "step", "step", "borrow", "elsewhere", "look", "keep", "forget", "close"]


@settings(max_examples=settings.default.max_examples // 2)
@given(
    seed=st.integers(0, 2**32),
    room=st.sampled_from([8 << 10, 1 << 20]),
    moves=st.lists(st.sampled_from(MOVES), min_size=3, max_size=8),
)
def test_values_are_those_of_the_reference_whoever_has_them(seed, room, moves):
    try:
        players = Players(seed, room)
    except ArenaTooSmallError:
        assume(False)
    for move in moves:
        players.play(move)
    players.check()


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("share", "most"), [(4, 0.2), (0.8, 0.75), (0.4, 0.95)])
def test_a_step_of_training_keeps_what_it_can(share, most):
    """In what it keeps, neither the old state comes nor the new one goes: that is faster.

    Its tensors move in at most this share of the time that they take where nothing is kept.
    """
    graph = models.ffnn(BATCH, FEATURES, HIDDEN, CLASSES, optimizer="adam")
    data = models.Synthetic(BATCH, FEATURES, CLASSES, nonzeros=6)
    state = models.initial(graph, seed=1)
    plan = ed.plan(graph, 4)
    with ed.compile(plan, engine_with(share * STATE)) as executable:
        tensors = executable.place(state)
        for step, batch in zip(range(1, 4), data.batches(0), strict=False):
            found = executable({**batch, "lr": 0.01, "step": step, **tensors}, donate=tensors)
            tensors = tensors_of(found, graph.ties)
        schedule = executable.schedule
        assert any(lies_in_arena(tensor) for tensor in tensors.values())
    assert schedule is not None
    verify_schedule(schedule)
    kept = {a.tensor: a.renews for a in schedule.actions if isinstance(a, Keep)}
    if share >= 2:
        assert sum(schedule.workload.tensors[new].nbytes for new in kept) >= STATE
    assert kept.keys().isdisjoint(a.tensor for a in schedule.actions if isinstance(a, Store))
    fetched = {a.tensor for a in schedule.actions if isinstance(a, Fetch)}
    assert fetched.isdisjoint(kept.values())
    only_moved = tuple(replace(each, seconds=0.0) for each in schedule.workload.tasks)
    workload = replace(schedule.workload, tasks=only_moved)
    tensors_anew = tuple(replace(each, renewed_by=None) for each in workload.tensors)
    kept_or_not = workload, replace(workload, tensors=tensors_anew)
    seconds = [make_schedule(each, SLOW, schedule.arena).seconds for each in kept_or_not]
    assert seconds[0] < most * seconds[1]
    assert not any(lies_in_arena(tensor) for tensor in tensors.values())


def test_only_what_is_given_up_stays():
    executable, arrays = decay()
    state = executable.place({name: arrays[name] for name in TIE})
    first = tensors_of(executable({**arrays, **state}, donate=["W"]), TIE)
    assert lies_in_arena(first["W"])
    assert not lies_in_arena(first["V"])
    second = executable({**arrays, **first})
    wanted = after(executable.plan.graph, arrays, TIE, 2)
    for name, new in TIE.items():
        assert not lies_in_arena(second.tensor(new))
        np.testing.assert_allclose(second[new], wanted[name], rtol=1e-5)
    once = after(executable.plan.graph, arrays, TIE, 1)
    np.testing.assert_allclose(first["W"].numpy(), once["W"], rtol=1e-5)


def test_what_is_given_twice_or_for_another_input():
    executable, arrays = decay()
    graph = executable.plan.graph
    state = executable.place({name: arrays[name] for name in TIE})
    first = tensors_of(executable({**arrays, **state}, donate=TIE), TIE)
    once = after(graph, arrays, TIE, 1)
    swapped = executable({**arrays, "W": first["V"], "V": first["W"]}, donate=TIE)
    agree(swapped, ed.evaluate(graph, once | {"W": once["V"], "V": once["W"]}), 1e-5)
    both = swapped.tensor("new_W")
    value = both.numpy().copy()
    found = executable({**arrays, "W": both, "V": both}, donate=["W"])
    agree(found, ed.evaluate(graph, arrays | {"W": value, "V": value}), 1e-5)


def test_arrays_of_what_lies_in_the_arena_are_copies():
    executable, arrays = decay()
    state = executable.place({name: arrays[name] for name in TIE})
    tensors = tensors_of(executable({**arrays, **state}, donate=TIE), TIE)
    tensor = tensors["W"]
    assert lies_in_arena(tensor)
    views = [tensor.array(), tensor.numpy(), torch.from_dlpack(tensor), np.asarray(tensor)]
    wanted = tensor.numpy().copy()
    executable({**arrays, **tensors}, donate=TIE)
    for view in views:
        np.testing.assert_array_equal(np.asarray(view), wanted)


def test_other_engines_take_what_lies_in_the_arena():
    executable, arrays = decay()
    state = executable.place({name: arrays[name] for name in TIE})
    tensors = tensors_of(executable({**arrays, **state}, donate=TIE), TIE)
    wanted = ed.evaluate(executable.plan.graph, after(executable.plan.graph, arrays, TIE, 1))
    for engine in (engine_with(1 << 20), TorchEngine(device="cpu"), "threads"):
        agree(ed.compile(executable.plan, engine)({**arrays, **tensors}), wanted, 1e-5)


@pytest.mark.parametrize("vertex", ["H", "new_W", "new_V"])
def test_a_run_that_fails_gives_back_what_is_whole(vertex):
    executable, arrays = decay()
    graph = executable.plan.graph
    state = executable.place({name: arrays[name] for name in TIE})
    tensors = tensors_of(executable({**arrays, **state}, donate=TIE), TIE)
    once = after(graph, arrays, TIE, 1)

    def listen(event):
        if isinstance(event, TaskStarted) and event.vertex == vertex:
            raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        executable({**arrays, **tensors}, donate=TIE, on_event=listen)
    whole = {name: tensor for name, tensor in tensors.items() if tensor.data is not None}
    if vertex == "H":
        assert whole.keys() == TIE.keys()
    for name in TIE.keys() - whole.keys():
        with pytest.raises(ed.InputError, match=f"tensor 'new_{name}' was donated or released"):
            executable({**arrays, **tensors})
    for name, tensor in whole.items():
        np.testing.assert_allclose(tensor.numpy(), once[name], rtol=1e-5)
    agree(executable({**once, **whole}, donate=whole), ed.evaluate(graph, once), 1e-5)


def test_a_listener_cannot_read_what_was_given_up():
    executable, arrays = decay()
    state = executable.place({name: arrays[name] for name in TIE})
    tensors = tensors_of(executable({**arrays, **state}, donate=TIE), TIE)

    def listen(event):
        if isinstance(event, TaskStarted):
            tensors["W"].numpy()

    with pytest.raises(ed.InputError, match="tensor 'new_W' was donated or released"):
        executable({**arrays, **tensors}, donate=TIE, on_event=listen)
    once = after(executable.plan.graph, arrays, TIE, 1)
    np.testing.assert_allclose(tensors["W"].numpy(), once["W"], rtol=1e-5)
