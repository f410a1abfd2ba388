"""What engine `torch` says when something is wrong, and that it says so before a kernel fails."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import agree, arrays_for
from hypothesis import given
from hypothesis import strategies as st
from torch_ways import HERE, every_way, torch

import eindecomp as ed
from eindecomp.engines.torch.engine import TorchEngine
from eindecomp.kernels.torch import kernel
from eindecomp.tra.paging.make import ArenaTooSmallError

GATHER = "input E[v: 4, a: 8], ids[b: 6] int64\nZ[b,a] <- E[ids[b], a]\noutput Z"
SCATTER = "input X[b: 6, a: 8], ids[b] int64\nZ[v: 4 = ids[b], a] <- sum X[b,a]\noutput Z"
COMPUTED = (
    "input E[v: 4, a: 8], ids[b: 6] int64\nJ[b] <- ids[b] + 1\n"
    "Z[b,a] <- E[J[b], a]\nY[a] <- sum Z[b,a]\noutput Y"
)
FILLED = (
    "input E[v: 4, a: 8]\nscalar n int64\nJ[b: 6] <- fill b + n\nZ[b,a] <- E[J[b], a]\noutput Z"
)


def error_of(plan, inputs, engine, **options):
    with pytest.raises(ed.EinDecompError) as found:
        ed.run(plan, inputs, engine, **options)
    return type(found.value), str(found.value)


@pytest.fixture
def _guarded(monkeypatch):
    """As on a GPU, an index out of range that reaches a kernel ends the process."""

    def guard(kernel):
        def call(op, table, index, *more):
            rows = more[0] if more else table.shape[op.axis]
            assert bool(((index >= 0) & (index < rows)).all()), "a kernel got a wrong index"
            return kernel(op, table, index, *more)

        return call

    for name in ("_gather", "_scatter_add"):
        monkeypatch.setattr(kernel, name, guard(getattr(kernel, name)))


@pytest.mark.usefixtures("_guarded")
@every_way
@pytest.mark.parametrize("bad", [9, -1])
@pytest.mark.parametrize("text", [GATHER, SCATTER, COMPUTED])
@pytest.mark.parametrize("devices", [1, 2, 3])
def test_indices_out_of_range_are_named_as_elsewhere(text, devices, bad, way):
    plan = ed.plan(ed.parse(text), devices, strategy=["b"], rewrite=False)
    inputs = arrays_for(plan.graph)
    inputs["ids"][4] = bad - (text is COMPUTED)
    kind, message = error_of(plan, inputs, "apart")
    assert f"on device {4 * devices // 6}: index {bad} is outside 0 to 3" in message
    assert error_of(plan, inputs, "torch", **way) == (kind, message)
    with ed.compile(plan, "torch", **way) as executable:
        placed = executable.place(inputs)
        with pytest.raises(kind) as found:
            executable(placed)
        assert str(found.value) == message
        inputs["ids"][4] = 1  # and nothing is left of it in the next run
        agree(executable(inputs), ed.evaluate(plan.graph, inputs), 1e-5)


@pytest.mark.usefixtures("_guarded")
@every_way
def test_filled_indices_are_checked_in_every_run(way):
    plan = ed.plan(ed.parse(FILLED), 2, rewrite=False)
    inputs = arrays_for(plan.graph)
    with ed.compile(plan, "torch", **way) as executable:
        for n in (-1, 5):
            with pytest.raises(ed.RunError, match="is outside 0 to 3"):
                executable(inputs | {"n": n})


@pytest.mark.usefixtures("_guarded")
@given(
    ids=st.lists(st.integers(-1, 4), min_size=6, max_size=6),
    devices=st.integers(1, 4),
    text=st.sampled_from([GATHER, SCATTER, COMPUTED]),
    label=st.sampled_from("ba"),
)
def test_any_indices(ids, devices, text, label):
    plan = ed.plan(ed.parse(text), devices, strategy=[label], rewrite=False)
    inputs = arrays_for(plan.graph) | {"ids": np.array(ids)}
    low, high = (0, 3) if text is not COMPUTED else (-1, 2)
    if all(low <= index <= high for index in ids):
        wanted = ed.run(plan, inputs, "apart")
        agree(ed.run(plan, inputs, "torch", **HERE), wanted, 1e-5)
    else:
        wanted = error_of(plan, inputs, "apart")
        assert error_of(plan, inputs, "torch", **HERE) == wanted


@every_way
def test_a_failing_kernel_names_its_vertex_and_tile(way, monkeypatch):
    def fail(*_):
        raise RuntimeError("CUDA out of memory")

    plan = ed.plan(ed.parse(GATHER), 2, strategy=["b"])
    with ed.compile(plan, "torch", **way) as executable:
        monkeypatch.setattr(kernel, "_gather", fail)
        wanted = r"Z\[b,a\], tile \[0:3, 0:8\] on device 0: RuntimeError: CUDA out of memory"
        with pytest.raises(ed.RunError, match=wanted):
            executable(arrays_for(plan.graph))


def test_a_limit_that_is_too_small_is_refused_before_anything_runs(monkeypatch):
    graph = ed.parse("input X[i: 64, j: 64]\nZ[i,j] <- X[i,j] + 1\noutput Z")
    called = []
    monkeypatch.setattr("eindecomp.engines.torch.region_code.RegionCode.__call__", called.append)
    with pytest.raises(ArenaTooSmallError, match=r"Z: its tensors take 32,768 bytes") as found:
        ed.compile(ed.plan(graph, 1), "torch", device="cpu", gpu_memory="64MiB")
    assert found.value.missing == 32768
    assert not called


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cuda:x"}, "'cuda:x' is not a device of torch's"),
        ({"device": "gpu"}, "'gpu' is not a device of torch's"),
        ({"device": "meta"}, "engine 'torch' runs on 'cuda' and 'cpu', not 'meta'"),
        ({"device": 0}, "a device has a name such as 'cuda:0' or 'cpu', not 0"),
        ({"device": ["cpu", None]}, "a device has a name such as 'cuda:0' or 'cpu', not None"),
        ({"device": []}, "device is one of torch's devices or several, not none"),
        ({"fuse": "no"}, "fuse is True or False, not 'no'"),
        ({"fuse": 2}, "fuse is True or False, not 2"),
        ({"fuse": 1}, "fuse is True or False, not 1"),
        ({"finer": None}, "finer is True or False, not None"),
        ({"gpu_memory": "١GB"}, "memory must be a number of bytes or a text such as '70GB'"),
        ({"gpu_memory": "much"}, "memory must be a number of bytes or a text such as '70GB'"),
        ({"gpu_memory": -1}, "memory must be a number of bytes or a text such as '70GB'"),
        ({"gpu_memory": "1GB", "device": ["cpu", "cpu"]}, "gpu_memory limits one GPU: name it"),
        ({"memory": "1GB"}, "engine 'torch' has no option 'memory'; did you mean 'gpu_memory'"),
    ],
)
def test_wrong_options_are_refused(options, message):
    plan = ed.plan(ed.parse(GATHER), 2)
    with pytest.raises(ed.EinDecompError, match=message):
        ed.compile(plan, "torch", **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_missed():
    with pytest.raises(ed.InputError, match="'cuda:1' was asked for, and torch finds no GPU here"):
        TorchEngine(device="cuda:1")


def test_devices_are_named_by_texts_lists_and_torch():
    names = ["cpu", "cpu, cpu", ["cpu"], ("cpu", "cpu"), torch.device("cpu"), "cpu:0"]
    counts = [len(TorchEngine(device=name).torch_devices) for name in names]
    assert counts == [1, 2, 1, 2, 1, 1]
    assert TorchEngine(device="cpu", fuse=None).fuse is False
