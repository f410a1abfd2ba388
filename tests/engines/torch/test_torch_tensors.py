"""Tensors of engine `torch`: given, placed, passed on, given up, and never written to."""

from __future__ import annotations

import gc
import weakref
from threading import Thread

import numpy as np
import pytest
from agreement import agree, arrays_for
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph
from torch_ways import DEVICE, PAGED, WAYS, every_way

import eindecomp as ed
from eindecomp.engines.result import TaskStarted
from eindecomp.engines.tensor import Tensor

torch = pytest.importorskip("torch", reason="torch is not installed")

MATMUL = "input X[i: 4, j: 6], Y[j, k: 4]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"
VIEWS = """
input X[i: 4, j: 6], V[i]
A[i,j] <- X[i,j]
B[j,i] <- X[i,j]
C[i,k] <- X[i, k in 1:3]
D[j] <- X[2, j]
E[i] <- V[i]
output A, B, C, D, E, X
"""


@settings(max_examples=settings.default.max_examples // 4)
@given(
    seed=st.integers(0, 2**32),
    ways=st.tuples(*[st.sampled_from([*WAYS.values()])] * 2),
    devices=st.tuples(st.sampled_from([2, 4]), st.sampled_from([2, 3, 4])),
)
def test_tensors_of_one_executable_are_taken_by_another(seed, ways, devices):
    """Of another mesh, in another layout, from the GPU's memory to the host's and back."""
    graph = random_graph(seed, tree=False)
    arrays = arrays_for(graph, seed)
    wanted = ed.evaluate(graph, arrays)
    first = ed.plan(graph, devices[0], inputs="free")
    second = ed.plan(graph, devices[1], inputs="sharded")
    one, two = (ed.compile(p, "torch", **w) for p, w in zip((first, second), ways, strict=True))
    placed = one.place({v.name: arrays[v.name] for v in graph.inputs})
    for executable in (two, one, two):
        found = executable({**arrays, **placed})
        agree(found, wanted, 1e-4)
        placed = executable.place(placed)
        again = executable({**arrays, **placed})
        agree(again, wanted, 1e-4)
        assert again.stats.bytes_placed == 0
    apart = ed.compile(second, "apart")
    other = {name: ed.compile(first, "apart").place({name: arrays[name]})[name] for name in placed}
    mine = {name: one.place({name: arrays[name]})[name] for name in placed}
    counted = [e({**arrays, **t}).stats.bytes_placed for e, t in ((apart, other), (two, mine))]
    assert counted[0] == counted[1]


@every_way
def test_results_are_torch_tensors_and_go_out_by_dlpack(way):
    plan = ed.plan(ed.parse(MATMUL), 4)
    arrays = arrays_for(plan.graph)
    tensor = ed.run(plan, arrays, "torch", **way).tensor("Z")
    assert isinstance(tensor.array(), torch.Tensor)
    own = [tensor.array().cpu(), torch.from_dlpack(tensor).cpu(), np.asarray(tensor)]
    if not tensor.array().is_cuda:
        own.append(np.from_dlpack(tensor))
    for found in own:
        np.testing.assert_allclose(np.asarray(found), arrays["X"] @ arrays["Y"], rtol=1e-5)


class OnlyDLPack:
    """An array of some other library."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


GIVEN = {
    "plain": lambda x: x,
    "turned": lambda x: x.t().contiguous().t(),
    "strided": lambda x: torch.stack([x, x], -1).flatten(-2)[:, ::2],
    "with a gradient": lambda x: x.clone().requires_grad_(),
    "computed with a gradient": lambda x: x.clone().requires_grad_() * 1,
    "a parameter": torch.nn.Parameter,
    "dlpack": OnlyDLPack,
    "wider": lambda x: x.double(),
    "whole numbers": lambda x: x.round().to(torch.int32),
    "bfloat16": lambda x: x.bfloat16(),
    "numpy": lambda x: x.cpu().numpy()[:, ::-1][:, ::-1],
}


@every_way
@pytest.mark.parametrize("kind", GIVEN)
def test_arrays_of_torch_are_taken(kind, way):
    plan = ed.plan(ed.parse(MATMUL), 4)
    x, y = torch.randn(4, 6, device=DEVICE), torch.randn(6, 4, device=DEVICE)
    given_x = GIVEN[kind](x)
    plain = given_x.array if kind == "dlpack" else given_x
    wanted = torch.as_tensor(plain).to(DEVICE).detach().float() @ y
    with ed.compile(plan, "torch", **way) as executable:
        for inputs in ({"X": given_x, "Y": y}, executable.place({"X": given_x, "Y": y})):
            found = executable(inputs).tensor("Z").array()
            torch.testing.assert_close(found.to(DEVICE), wanted)  # what is paged is on the host


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "complex64", "uint16", "bool"])
def test_types_of_torch_are_taken(dtype):
    graph = ed.parse(f"input X[i: 6] {dtype}\nZ[i] <- X[i]\noutput Z")
    x = torch.arange(6).to(getattr(torch, dtype))
    if dtype == "complex64":
        x = (x * 1j).conj()
    found = ed.run(ed.plan(graph, 2), {"X": x}, "torch").tensor("Z").array()
    assert found.dtype == x.dtype
    assert torch.equal(found.cpu(), x.resolve_conj())


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (torch.zeros(4, 5), r"input X\[i,j\] has shape \(4, 6\), got \(4, 5\)"),
        (torch.zeros(4, 6, dtype=torch.complex64), "would lose information"),
        (torch.zeros(4, 6).to_sparse(), r"input X\[i,j\] is sparse: make it dense first"),
        (torch.zeros(4, 6, device="meta"), r"input X\[i,j\] is a tensor on .* 'meta'"),
    ],
)
def test_what_does_not_fit_is_refused(array, message):
    plan = ed.plan(ed.parse(MATMUL), 2)
    with pytest.raises(ed.InputError, match=message):
        ed.run(plan, {"X": array, "Y": torch.zeros(6, 4)}, "torch")


@every_way
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("kind", ["numpy", "torch", "placed"])
def test_results_share_no_memory_with_what_was_given(kind, devices, way):
    graph = ed.parse(VIEWS)
    arrays = arrays_for(graph)
    wanted = {name: array.copy() for name, array in ed.evaluate(graph, arrays).items()}
    inputs = arrays if kind == "numpy" else {n: torch.from_numpy(x) for n, x in arrays.items()}
    with ed.compile(ed.plan(graph, devices, rewrite=False), "torch", **way) as executable:
        result = executable(executable.place(inputs) if kind == "placed" else inputs)
        own = [name for name in result if name != "X" or kind != "placed"]
        computed = {name: result[name] for name in own}
        for array in arrays.values():
            array[...] = np.nan
        agree(computed, {name: wanted[name] for name in own}, 1e-6)


@every_way
@settings(max_examples=settings.default.max_examples // 4)
@given(seed=st.integers(0, 2**32), devices=st.sampled_from([1, 2, 4]))
def test_nothing_given_is_written_to_and_no_result_changes_later(way, seed, devices):
    graph = random_graph(seed, tree=False)
    with ed.compile(ed.plan(graph, devices), "torch", **way) as executable:
        kept = []
        for turn in range(3):
            arrays = arrays_for(graph, seed + turn)
            for array in arrays.values():
                if isinstance(array, np.ndarray):
                    array.flags.writeable = False
            copies = {name: np.copy(array) for name, array in arrays.items()}
            found = executable(arrays)
            kept.append((found, {name: found[name].copy() for name in found}))
            for name, array in arrays.items():
                np.testing.assert_array_equal(array, copies[name])
        for found, copies in kept:
            for name in found:
                np.testing.assert_array_equal(found.tensor(name).numpy(), copies[name])


def blocks_of(tensor: Tensor):
    return [weakref.ref(block) for blocks in tensor.held().values() for block in blocks]


@pytest.mark.one_in(2)
@every_way
def test_donated_memory_goes_when_it_was_last_read(way):
    text = "input X[i: 8], Y[i]\nA[i] <- X[i] + 1\nB[] <- sum A[i] * Y[i]\nC[i] <- B[] * Y[i]\n"
    plan = ed.plan(ed.parse(text + "output C"), 2, rewrite=False)
    arrays = arrays_for(plan.graph)
    with ed.compile(plan, "torch", **way) as executable:
        placed = executable.place(arrays)
        gone, kept = blocks_of(placed["X"]), blocks_of(placed["Y"])
        agree(executable(placed, donate=["X"]), ed.evaluate(plan.graph, arrays), 1e-5)
        gc.collect()
        assert all(block() is None for block in gone)
        assert all(block() is not None for block in kept)
        with pytest.raises(ed.InputError, match="tensor 'X' was donated or released"):
            executable(placed)


def test_donated_memory_goes_while_the_run_goes_on():
    text = "input X[i: 8, j: 8], ids[b: 4] int64, Y[j, k: 8]\nA[b,j] <- X[ids[b], j]\n"
    plan = ed.plan(ed.parse(text + "B[b,k] <- sum A[b,j] * Y[j,k]\noutput B"), 1, rewrite=False)
    with ed.compile(plan, "torch", device="cpu") as executable:
        placed = executable.place(arrays_for(plan.graph))
        gone = blocks_of(placed["X"])
        there = {}

        def listen(event):
            if isinstance(event, TaskStarted):
                there[event.vertex] = [block() is not None for block in gone]

        executable(placed, donate=["X"], on_event=listen)
        assert there == {"A": [True], "B": [False]}


def test_threads_may_run_one_executable():
    plan = ed.plan(ed.parse(MATMUL), 2)
    found = {}
    with ed.compile(plan, "torch", **PAGED) as executable:

        def work(seed):
            arrays = arrays_for(plan.graph, seed)
            for _ in range(10):
                agree(executable(arrays), ed.evaluate(plan.graph, arrays), 1e-5)
            found[seed] = True

        workers = [Thread(target=work, args=(seed,)) for seed in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert len(found) == 3


@every_way
def test_a_closed_executable_leaves_its_results(way):
    plan = ed.plan(ed.parse(MATMUL), 2)
    arrays = arrays_for(plan.graph)
    with ed.compile(plan, "torch", **way) as executable:
        placed = executable.place(arrays)
        result = executable(placed)
    with pytest.raises(ed.InputError, match="this executable was closed"):
        executable(arrays)
    np.testing.assert_allclose(result["Z"], arrays["X"] @ arrays["Y"], rtol=1e-5)
    agree(ed.compile(plan, "torch")(placed), {"Z": result["Z"]}, 1e-6)


@pytest.mark.parametrize(("device", "share"), [("cpu", 1), (["cpu", "cpu"], 1 / 2)])
def test_the_peak_is_that_of_the_fullest_memory(device, share):
    graph = ed.parse("input X[i: 64, j: 64]\nZ[i,j] <- X[i,j] + 1\noutput Z")
    found = ed.run(ed.plan(graph, 4, strategy=["i"]), arrays_for(graph), "torch", device=device)
    most = 2 * 64 * 64 * 4 * share
    # One region after another: what they have read is let go of.
    assert most / 2 < found.stats.peak_memory <= most
