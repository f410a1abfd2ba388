"""Less memory than the tiles of a plan take: plans are cut finer, and say so, or are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from agreement import agree, arrays_for

import eindecomp as ed
from cases import ALL
from eindecomp import models
from eindecomp.engines.result import TaskStarted
from eindecomp.tra.paging.make import ArenaTooSmallError
from eindecomp.tra.paging.schedule import Fetch, Store, predicted_seconds
from eindecomp.tra.paging.workload import Links
from verify_schedule import verify_schedule

torch = pytest.importorskip("torch", reason="torch is not installed")

from eindecomp.engines.torch.engine import TorchEngine  # noqa: E402 - it needs torch

NOTHING = 64 << 20
"""A limit that leaves nothing for tensors."""
MATMUL = "input X[i: 256, j: 256], Y[j, k: 256]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"
CASES = {
    "a chain of maps": (
        "input X[i: 256, j: 256]\nA[i,j] <- exp(X[i,j])\nB[i,j] <- A[i,j] + 1\n"
        "S[i] <- sum B[i,j]\nC[i,j] <- B[i,j] / S[i]\noutput C",
        64 << 10,
    ),
    "a product": (MATMUL, 128 << 10),
    "two products": (
        "input X[i: 256, j: 256], V[j, k: 256], W[k, l: 256]\nH[i,k] <- sum X[i,j] * V[j,k]\n"
        "R[i,k] <- relu(H[i,k])\nZ[i,l] <- sum R[i,k] * W[k,l]\noutput Z",
        128 << 10,
    ),
    "attention": (
        "input Q[h: 4, s: 128, d: 16], K[h, t: 128, d], V[h, t, d]\n"
        "T[h,s,t] <- sum Q[h,s,d] * K[h,t,d]\nP[h,s,t] <- softmax[t] T[h,s,t]\n"
        "O[h,s,d] <- sum P[h,s,t] * V[h,t,d]\noutput O",
        40 << 10,
    ),
    "turned": ("input X[i: 256, j: 256]\nA[j,i] <- X[i,j] * X[j,i]\noutput A", 64 << 10),
    "a vector": ("input X[i: 65536]\nA[i] <- X[i] * 2\nB[] <- sum A[i]\noutput A, B", 64 << 10),
}


@pytest.mark.one_in(6)
@pytest.mark.long("3-two products")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("devices", [1, 3])
def test_activations_that_exceed_the_limit(case, devices):
    text, room = CASES[case]
    graph = ed.parse(text)
    plan = ed.plan(graph, devices)
    arrays = arrays_for(graph)
    limit = {"device": "cpu", "gpu_memory": NOTHING + room}
    with pytest.raises(ArenaTooSmallError, match="bytes are missing"):
        ed.compile(plan, "torch", **limit, finer=False)
    with ed.compile(plan, "torch", **limit) as executable:
        assert executable.plan is plan
        placed = executable.place(arrays)
        for inputs in (arrays, placed, placed):
            found = executable(inputs)
            agree(found, ed.evaluate(graph, arrays), 1e-4)
        assert found.stats.cut_into is not None
        assert found.stats.cut_into > devices
        assert found.stats.peak_memory <= room
        results = {name: found.tensor(name).numpy() for name in found}
    agree(results, ed.evaluate(graph, arrays), 1e-4)


def test_what_fits_is_not_cut():
    plan = ed.plan(ed.parse(MATMUL), 2)
    found = ed.run(plan, arrays_for(plan.graph), "torch", device="cpu", gpu_memory="100MB")
    assert found.stats.cut_into is None
    assert found.stats.bytes_moved == plan.cost


def test_what_no_cut_makes_fit_is_refused_with_what_is_missing():
    """A row that is looked up is read whole, however the lookup is cut."""
    graph = ed.parse("input E[v: 4096, a: 1], ids[b: 4] int64\nZ[b,a] <- E[ids[b], a]\noutput Z")
    plan = ed.plan(graph, 1)
    with pytest.raises(ArenaTooSmallError, match=r"Z: .* bytes are missing") as error:
        ed.compile(plan, "torch", device="cpu", gpu_memory=NOTHING + 8192)
    enough = NOTHING + 8192 + error.value.missing
    arrays = arrays_for(graph)
    found = ed.run(plan, arrays, "torch", device="cpu", gpu_memory=enough)
    agree(found, ed.evaluate(graph, arrays), 0)


@pytest.mark.parametrize("limit", [NOTHING - 10_000_000, NOTHING, NOTHING + 5000])
def test_what_is_missing_is_enough(limit):
    plan = ed.plan(ed.parse(MATMUL), 1)
    asked = {"device": "cpu", "finer": False}
    with pytest.raises(ArenaTooSmallError) as error:
        ed.compile(plan, "torch", gpu_memory=limit, **asked)
    missing = error.value.missing
    arrays = arrays_for(plan.graph)
    found = ed.run(plan, arrays, "torch", gpu_memory=limit + missing, **asked)
    agree(found, ed.evaluate(plan.graph, arrays), 1e-4)
    with pytest.raises(ArenaTooSmallError):
        ed.compile(plan, "torch", gpu_memory=limit + missing - 512, **asked)


def test_regions_of_many_small_tensors_fit_where_each_operation_does():
    names = [f"B{k}" for k in range(40)]
    lines = [f"H{k}[i] <- {f'H{k - 1}' if k else 'X'}[i] * B{k}[i]" for k in range(40)]
    text = f"input X[i: 16], {'[i], '.join(names)}[i]\n" + "\n".join(lines) + "\noutput H39"
    plan = ed.plan(ed.parse(text), 1, rewrite=False)
    arrays = arrays_for(plan.graph)
    found = ed.run(plan, arrays, "torch", device="cpu", gpu_memory=NOTHING + 3 * 512, finer=False)
    agree(found, ed.evaluate(plan.graph, arrays), 1e-4)


def test_no_more_is_taken_than_all_tensors_need():
    plan = ed.plan(ed.parse(MATMUL), 1)
    with ed.compile(plan, "torch", device="cpu", gpu_memory="1000000TB") as executable:
        found = executable(arrays_for(plan.graph))
        assert found.stats.peak_memory == executable.schedule.arena == 3 * 256 * 256 * 4


def test_executables_of_one_engine_share_its_arena():
    """Each finds its placed weights where it left them, or brings them again."""
    engine = TorchEngine(device="cpu", gpu_memory=NOTHING + (1 << 20))
    graph = ed.parse(MATMUL)
    first, second = (ed.compile(ed.plan(graph, p), engine) for p in (1, 2))
    arrays, others = arrays_for(graph, 1), arrays_for(graph, 2)
    one, two = first.place({"Y": arrays["Y"]}), second.place({"Y": others["Y"]})
    for executable, given, placed in 2 * [(first, arrays, one), (first, arrays, one)] + [
        (second, others, two), (first, arrays, one), (second, others, two), (second, arrays, one)
    ]:  # fmt: skip
        wanted = ed.evaluate(graph, given | {"Y": placed["Y"].numpy()})
        agree(executable({**given, **placed}), wanted, 1e-4)
    first.close()
    agree(second({**others, **two}), ed.evaluate(graph, others), 1e-4)


# Training


BATCH, FEATURES, HIDDEN, CLASSES = 16, 128, 256, 1024
STATE = 3 * 4 * (FEATURES * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES)
FAST = Links(to_gpu=55e9, to_host=50e9, from_disk=5e9)


def classifier():
    graph = models.ffnn(BATCH, FEATURES, HIDDEN, CLASSES, optimizer="adam")
    return graph, models.initial(graph, seed=1)


@pytest.mark.long("0.4")
@pytest.mark.parametrize("share", [2, 0.8, 0.4, 0.1] if ALL else [2, 0.4])
def test_training_under_a_limit_is_as_without(share):
    """State is parameters and moments, of which the limit holds all or some."""
    graph, state = classifier()
    data = models.Synthetic(BATCH, FEATURES, CLASSES, nonzeros=6)
    asked = {"lr": 0.01, "steps": 3, "devices": 1, "engine": "torch"}
    limit = NOTHING + int(share * STATE)
    free, paged = (
        models.fit(graph, data, state, **asked, options={"device": "cpu", **more})
        for more in ({}, {"gpu_memory": limit})
    )
    np.testing.assert_allclose(paged.losses, free.losses, rtol=1e-4)
    for name, array in free.state.items():
        np.testing.assert_allclose(paged.state[name], array, rtol=1e-2, atol=2e-3)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("share", "again"), [(4, 0.0), (1.5, 0.34), (0.8, 0.34), (0.4, 0.34)])
def test_a_step_of_training_moves_its_state_once(share, again):
    """Only parameters, a third of the state, come twice where they cannot stay for the way back."""
    graph, _ = classifier()
    engine = TorchEngine(device="cpu", gpu_memory=NOTHING + int(share * STATE))
    runner = engine.prepare(ed.plan(graph, 1)).runner
    schedule = runner.replay(frozenset(), {}).schedule
    verify_schedule(schedule)
    moved = dict.fromkeys((Fetch, Store), 0)
    for action in schedule.actions:
        if isinstance(action, Fetch | Store):
            moved[type(action)] += action.nbytes
    little = 0.05 * STATE  # the batch, activations, and what windows are rounded up to
    assert STATE <= moved[Fetch] <= (1 + again) * STATE + little
    assert STATE <= moved[Store] <= STATE + little


def test_copies_of_a_step_of_training_overlap():
    """Were kernels to take no time, a run would take little longer than its copies.

    Nothing can be stored before the parameters, a third of the state, have come.
    """
    graph, _ = classifier()
    engine = TorchEngine(device="cpu", gpu_memory=NOTHING + int(0.5 * STATE))
    schedule = engine.prepare(ed.plan(graph, 1)).runner.replay(frozenset(), {}).schedule
    tasks = tuple(replace(task, seconds=0.0) for task in schedule.workload.tasks)
    timed = replace(schedule, workload=replace(schedule.workload, tasks=tasks))
    floor = STATE / 3 / FAST.to_gpu + STATE / FAST.to_host
    assert predicted_seconds(timed, FAST) <= 1.2 * floor


def test_state_outlives_a_step_that_fails():
    graph, state = classifier()
    plan = ed.plan(graph, 1)
    batch = next(models.Synthetic(BATCH, FEATURES, CLASSES, nonzeros=6).batches(0))
    inputs = {**batch, "lr": 0.01, "step": 1}

    def listen(event):
        if isinstance(event, TaskStarted) and event.vertex == "new_W2":
            raise KeyError("enough")

    options = {"device": "cpu", "gpu_memory": NOTHING + STATE}
    with ed.compile(plan, "torch", **options) as executable:
        tensors = executable.place(state)
        with pytest.raises(KeyError, match="enough"):
            executable({**inputs, **tensors}, donate=state, on_event=listen)
        found = executable({**inputs, **tensors}, donate=state)
        wanted = ed.run(plan, {**inputs, **state}, "torch", device="cpu")
        agree(found, {name: wanted[name] for name in wanted}, 1e-3)
        with pytest.raises(ed.InputError, match="was donated or released"):
            executable({**inputs, **tensors})
