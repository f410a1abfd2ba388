"""Engine `torch`: in one memory, in two, and paged; on the CPU under the least limit that works."""

from __future__ import annotations

import pytest
from agreement import agree, arrays_for, precise
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_graphs import random_graph, random_step
from test_ops import OPS, SIZES, parse
from torch_ways import ON_GPU, WAYS

import eindecomp as ed
from eindecomp.tra.paging.make import ArenaTooSmallError
from strategies import graphs

torch = pytest.importorskip("torch", reason="torch is not installed")

NOTHING = 64 << 20
"""A limit that leaves nothing for tensors."""
MATMUL = "input X[i: 4, j: 6], Y[j, k: 4]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"
FEW = settings(max_examples=settings.default.max_examples // 2)


def least_limit(plan, arrays):
    """The least `gpu_memory` under which a plan runs, as errors tell what is missing."""
    limit = NOTHING
    for _ in range(4):
        try:
            ed.run(plan, arrays, "torch", device="cpu", gpu_memory=limit, finer=False)
        except ArenaTooSmallError as error:
            limit += error.missing
        else:
            return limit
    raise AssertionError("the limit grows and grows")


def options(kind, plan, arrays):
    if kind == "paged" and not ON_GPU:
        return {"device": "cpu", "gpu_memory": least_limit(plan, arrays), "finer": False}
    return WAYS[kind]


every_kind = pytest.mark.parametrize("kind", ["resident", "two memories", "paged"])


def runs(kind, plan, graph, arrays, tolerance=1e-6):
    """Run a plan and check what it computes and moves."""
    found = ed.run(plan, arrays, "torch", **options(kind, plan, arrays))
    agree(found, ed.evaluate(graph, arrays), tolerance)
    assert found.stats.bytes_moved == plan.traffic.total
    return found


@every_kind
@FEW
@given(
    seed=st.integers(0, 2**32),
    devices=st.sampled_from([1, 2, 4, 6]),
    inputs=st.sampled_from(["free", "sharded"]),
    rewrite=st.booleans(),
)
def test_random_graphs(kind, seed, devices, inputs, rewrite):
    with precise():
        graph = random_graph(seed, tree=False, moves=True)
    arrays = arrays_for(graph, seed)
    try:
        ed.evaluate(graph, arrays)
    except ed.InputError:
        assume(False)  # an index is out of range
    plan = ed.plan(graph, devices, inputs=inputs, rewrite=rewrite, time_limit=5)
    runs(kind, plan, graph, arrays)


@pytest.mark.parametrize("kind", ["two memories", "paged"])
@FEW
@given(graph=graphs(), devices=st.sampled_from([1, 2, 3, 8]))
def test_graphs_of_every_kind(kind, graph, devices):
    plan = ed.plan(graph, devices, rewrite=False)
    runs(kind, plan, graph, arrays_for(graph), 1e-9)


@pytest.mark.parametrize("kind", ["two memories", "paged"])
@pytest.mark.parametrize("op", OPS)
def test_each_kind_of_vertex(kind, op):
    graph = parse(op, SIZES["uneven"])
    runs(kind, ed.plan(graph, 3, rewrite=False), graph, arrays_for(graph), 1e-4)


@pytest.mark.parametrize("kind", ["two memories", "paged"])
@FEW
@given(seed=st.integers(0, 2**32), donate=st.booleans())
def test_state_that_lives_on(kind, seed, donate):
    with precise():
        graph, tie = random_step(seed)
    plan = ed.plan(graph, 4, tie=tie)
    arrays = arrays_for(graph)
    with ed.compile(plan, "torch", **options(kind, plan, arrays)) as executable:
        state = executable.place({name: arrays[name] for name in tie})
        for _ in range(3):
            found = executable({**arrays, **state}, donate=state if donate else ())
            agree(found, ed.evaluate(graph, arrays), 1e-5)
            assert (found.stats.bytes_moved, found.stats.bytes_placed) == (plan.cost, 0)
            arrays |= {name: found[new].copy() for name, new in tie.items()}
            state = {name: found.tensor(new) for name, new in tie.items()}


TYPES = ["bool", "int8", "uint8", "uint16", "int64", "float16", "bfloat16", "float32", "complex64"]


@pytest.mark.parametrize("dtype", TYPES)
@every_kind
def test_each_type(kind, dtype):
    how, join = ("any", "and") if dtype == "bool" else ("sum", "*")
    text = f"input X[i: 6, j: 10] {dtype}, Y[j, k: 5] {dtype}\n"
    graph = ed.parse(f"{text}Z[i,k] <- {how} X[i,j] {join} Y[j,k]\noutput Z")
    plan = ed.plan(graph, 4, strategy=["j"])
    low = dtype in ("float16", "bfloat16")
    runs(kind, plan, graph, arrays_for(graph), 3e-2 if low else 1e-5)


def test_the_least_limit_is_the_least():
    plan = ed.plan(ed.parse(MATMUL), 2)
    arrays = arrays_for(plan.graph)
    limit = least_limit(plan, arrays)
    assert ed.run(plan, arrays, "torch", device="cpu", gpu_memory=limit)
    with pytest.raises(ArenaTooSmallError, match=r"512 bytes are missing"):
        ed.run(plan, arrays, "torch", device="cpu", gpu_memory=limit - 512, finer=False)


def test_paged_runs_in_less_memory_than_all_tensors_take():
    names = [f"W{k}" for k in range(6)]
    text = f"input X[i: 64, a: 64]\ninput {', '.join(f'{name}[a: 64, b: 64]' for name in names)}\n"
    last = "X[i,a]"
    for k, name in enumerate(names):
        text += f"H{k}[i,b] <- sum {last} * {name}[a,b]\n"
        last = f"H{k}[i,a]"
    graph = ed.parse(f"{text}output H5")
    plan = ed.plan(graph, 1, rewrite=False)
    arrays = arrays_for(graph)
    limit = least_limit(plan, arrays)
    with ed.compile(plan, "torch", device="cpu", gpu_memory=limit) as executable:
        assert executable.schedule is None  # before the first run
        weights = executable.place({name: arrays[name] for name in names})
        for seed in range(3):
            given = arrays | arrays_for(graph, seed) | {name: arrays[name] for name in names}
            found = executable({"X": given["X"], **weights})
            agree(found, ed.evaluate(graph, given), 1e-4)
        schedule = executable.schedule
    everything = sum(array.nbytes for array in arrays.values())
    assert schedule is not None
    assert schedule.fetched + schedule.resident_bytes == everything
    computing = sum(task.seconds for task in schedule.workload.tasks)
    assert found.stats.predicted == schedule.seconds > computing > 0
    assert found.stats.peak_memory == limit - NOTHING < everything


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")  # by torch of itself
def test_fused_regions_compute_the_same():
    graph = ed.parse(
        "input X[i: 3, j: 4], Y[j, k: 5]\nscalar s\n"
        "Z[i,k] <- sum X[i,j] * Y[j,k]\nW[i,k] <- exp(Z[i,k] * s) + 1\noutput W"
    )
    plan = ed.plan(graph, 2)
    with ed.compile(plan, "torch", device="cpu", fuse=True) as executable:
        for seed in range(2):
            arrays = arrays_for(graph, seed)
            agree(executable(arrays), ed.evaluate(graph, arrays), 1e-5)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")  # by torch of itself
def test_fused_regions_write_side_by_side():
    """A state of several types crosses regions: its arrays share one part of the arena."""
    graph = ed.parse(
        "monoid best(v, k; w, l) = "
        "(max(v, w), where(v > w, k, where(w > v, l, min(k, l)))) identity (-inf, 1000) finish k\n"
        "input X[i: 16, j: 8], Y[j, k: 16]\nC[k: 16] <- fill int32(k)\n"
        "Z[i,k] <- sum X[i,j] * Y[j,k]\nB[i] <- best (Z[i,k], C[k])\noutput B"
    )
    plan = ed.plan(graph, 4, strategy=["k"])
    arrays = arrays_for(graph, 0)
    limit = least_limit(plan, arrays)
    with ed.compile(plan, "torch", device="cpu", gpu_memory=limit, fuse=True) as executable:
        for seed in range(2):
            given = arrays_for(graph, seed)
            agree(executable(given), ed.evaluate(graph, given), 1e-5)
        schedule = executable.schedule
    assert schedule is not None
    assert {tensor.name for tensor in schedule.workload.tensors if tensor.made} > {"B[0:16]"}
