"""`plan.to_dtensor()`: every rank holds the block that the plan gives it."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch
from local_ranks import all_ranks, blocks_of
from random_graphs import random_graph
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.distributed.tensor.placement_types import _StridedShard

import eindecomp as ed
from eindecomp.frontends.placements import layouts_of, placed
from eindecomp.frontends.tensor_parallel import of_any_number
from eindecomp.frontends.torch.dtensor import torch_placements
from eindecomp.layout.cut import Span
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.tiling import box_on

MESHES = [{"a": 4}, {"a": 3, "b": 2}, {"a": 2, "b": 2, "c": 2}, {"a": 6}, {"a": 2, "b": 3}]
MLP = """
input X[s: 64, a: 32], W1[f: 128, a], W2[a, f]
H[s,f] <- sum X[s,a] * W1[f,a]
R[s,f] <- relu(H[s,f])
Y[s,o] <- sum R[s,f] * W2[o,f]
output Y
"""


def boxes_hold(mesh, cut, array, blocks):
    """Whether each rank has the block of an array that a cut gives it."""
    return all(
        np.array_equal(array[tuple(slice(*side) for side in box_on(mesh, cut, rank))], block)
        for rank, block in enumerate(blocks)
    )


def numbered(shape):
    return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)


def distributed(array, mesh, placements):
    whole = torch.from_numpy(array)
    return blocks_of(distribute_tensor(whole, mesh, placements, src_data_rank=None))


@given(
    seed=st.integers(0, 2**32),
    mesh=st.sampled_from(MESHES),
    inputs=st.sampled_from(["free", "sharded"]),
    pieces=st.sampled_from(["even", "ceil"]),
    fewest=st.booleans(),
)
def test_every_rank_holds_its_block(seed, mesh, inputs, pieces, fewest):
    graph = random_graph(seed, tree=False, moves=True)
    plan = ed.plan(graph, mesh=mesh, inputs=inputs, pieces=pieces, rewrite=False, time_limit=5)
    try:
        possible = plan.to_dtensor()
    except ed.PlanError:
        assert pieces == "ceil"  # even pieces can always be said
        assume(False)
    dims = possible.fewest_dims if fewest else possible.mesh_dims
    with all_ranks(dims.values()) as ranks:
        found = plan.to_dtensor(ranks)
        for name, cuts in layouts_of(plan).items():
            array = numbered(graph[name].shape)
            for cut, placements in zip(cuts, found.layouts[name], strict=True):
                assert boxes_hold(plan.mesh, cut, array, distributed(array, ranks, placements))


@pytest.mark.parametrize("axes", [o for n in (1, 2, 3) for o in permutations(range(3), n)])
def test_axes_in_any_order(axes):
    mesh = Mesh.of_axes({"x": 2, "y": 3, "z": 2})
    cut = (Span((), 2, 1, 0, 2), Span(axes, 24, 1, 0, 24))
    array = numbered((2, 24))
    placements = torch_placements(placed(mesh, cut, array.shape, "X"))
    strided = any(isinstance(own, _StridedShard) for own in placements)
    assert strided == (list(axes) != sorted(axes))
    with all_ranks(mesh.sizes) as ranks:
        assert boxes_hold(mesh, cut, array, distributed(array, ranks, placements))


@pytest.mark.parametrize("axes", [(0, 1, 2), (0, 2), (1, 0), (2, 0, 1)])
def test_uneven_chunks_are_cut_as_dtensor_cuts_them_or_refused(axes):
    mesh = replace(Mesh.of_axes({"x": 2, "y": 3, "z": 2}), pieces="ceil")
    with all_ranks(mesh.sizes) as ranks:
        for size in (1, 5, 7, 10, 13, 25):
            cut = (Span(axes, size, 1, 0, size),)
            array = numbered((size,))
            if list(axes) != sorted(axes):
                with pytest.raises(ed.PlanError, match=f"dimension 0 of X, {size} elements"):
                    placed(mesh, cut, (size,), "X")
                continue
            placements = torch_placements(placed(mesh, cut, (size,), "X"))
            assert boxes_hold(mesh, cut, array, distributed(array, ranks, placements))


def test_balanced_pieces_are_refused_with_the_reason():
    graph = ed.parse("input X[i: 5, j: 4]\nZ[i] <- sum X[i,j]\noutput Z")
    plan = ed.plan(graph, 2, strategy=["i"])
    with pytest.raises(ed.PlanError, match=r"dimension 0 of X, 5 elements in 2 parts.*'ceil'"):
        plan.to_dtensor()
    chunks = ed.plan(graph, 2, strategy=["i"], pieces="ceil").to_dtensor()
    assert chunks.placements["Z"] == (Shard(0),)


def test_blocks_of_merged_dimensions():
    text = "input X[i: 6, j: 2]\nZ[(i,j)] <- X[i,j]\noutput Z"
    plan = ed.plan(ed.parse(text), 4, pieces="ceil", strategy=["i"])
    assert plan.parts["Z"] == {"i": 4}
    with pytest.raises(ed.PlanError, match="by blocks of several elements"):
        plan.to_dtensor()


def test_partial_results_and_operands():
    found = ed.plan(ed.parse(MLP), mesh={"tp": 4}, strategy=["f"]).to_dtensor()
    assert found.partials == {"Y": (Partial("sum"),)}
    assert found.operands["Y"] == ((Shard(1),), (Shard(1),))
    assert found.placements["Y"] == (Shard(0),)
    assert found.weights == {"X": (Replicate(),), "W1": (Shard(0),), "W2": (Shard(1),)}


def test_meshes_are_checked():
    plan = ed.plan(ed.parse(MLP), mesh={"dp": 2, "tp": 4}, pin={"Y": {"s": ("dp",)}})
    with all_ranks((8,)) as ranks, pytest.raises(ed.PlanError, match=r"tp=4, not of \(8,\)"):
        plan.to_dtensor(ranks)
    with all_ranks((4, 2)) as ranks, pytest.raises(ed.PlanError, match=r"tp=4, not of \(4, 2\)"):
        plan.to_dtensor(ranks)
    with all_ranks((2, 1, 4)) as ranks:
        assert plan.to_dtensor(ranks).placements["Y"][1] == Replicate()


def test_axes_that_are_never_apart_are_one_dimension():
    plan = ed.plan(ed.parse(MLP), 8, strategy=["f"])
    assert plan.to_dtensor().mesh_dims == {"axis0": 2, "axis1": 2, "axis2": 2}
    assert plan.to_dtensor().fewest_dims == {"axis0_axis1_axis2": 8}
    with all_ranks((8,)) as ranks:
        assert plan.to_dtensor(ranks).placements["W1"] == (Shard(0),)
    with all_ranks((2, 4)) as ranks:
        assert plan.to_dtensor(ranks).placements["W1"] == (Shard(0), Shard(0))


def test_a_mesh_is_made_of_all_ranks():
    plan = ed.plan(ed.parse(MLP), 8, strategy=["f"])
    with pytest.raises(ed.PlanError, match="for 8 devices, the process group has 0 ranks"):
        plan.to_dtensor().make_mesh("cpu")
    with all_ranks((8,)):
        mesh = plan.to_dtensor().make_mesh("cpu")
        assert dict(zip(mesh.mesh_dim_names, mesh.shape, strict=True)) == {"axis0_axis1_axis2": 8}
        assert plan.to_dtensor(mesh).placements["W1"] == (Shard(0),)


def test_tensors_are_distributed():
    plan = ed.plan(ed.parse(MLP), mesh={"tp": 4}, strategy=["f"])
    with pytest.raises(ed.PlanError, match="over which device_mesh"):
        plan.to_dtensor().distribute({})
    with all_ranks((4,)) as ranks:
        found = plan.to_dtensor(ranks)
        made = found.distribute({"W1": torch.ones(128, 32), "W2": torch.ones(32, 128)})
        assert {name: each.placements for name, each in made.items()} == {
            "W1": (Shard(0),),
            "W2": (Shard(1),),
        }
        with pytest.raises(ed.InputError, match="no tensor 'W3'"):
            found.distribute({"W3": torch.ones(2)})
        with pytest.raises(ed.InputError, match=r"W1 has the shape \(128, 32\) in the plan"):
            found.distribute({"W1": torch.ones(32, 128)})


def test_a_megatron_plan_is_a_tp_plan():
    from transformers.distributed.tensor_parallel import (
        ALL_PARALLEL_STYLES,
        replace_layer_number_by_wildcard,
    )

    config = replace(ed.models.llama.CONFIGS["7B"], layers=1)
    text = str(ed.models.llama.prefill_graph(config, 1, 2048))
    graph = ed.parse(text.replace("output KR0, V0, logits", "output logits"))
    found = ed.plan(graph, mesh={"tp": 8}, strategy=["h", "f"]).to_dtensor().tp_plan()
    colwise = dict.fromkeys(["WQ0", "WK0", "WV0", "WG0", "WU0"], "colwise")
    assert colwise | {"WO0": "rowwise", "WD0": "rowwise"} == {
        name: found[name] for name in found if name.startswith("W")
    }
    assert set(found.values()) <= set(ALL_PARALLEL_STYLES.keys())
    for name in ("model.layers.3.mlp.up_proj", "h.11", "lm_head", "blocks.0.w1"):
        assert of_any_number(name) == replace_layer_number_by_wildcard(name)


def test_other_plans_are_no_tp_plans_and_say_where():
    plan = ed.plan(ed.parse(MLP), mesh={"tp": 4}, strategy=["s"])
    with pytest.raises(ed.PlanError, match=r"not tensor parallel at H: its weight W1.*cuts s 4"):
        plan.to_dtensor().tp_plan()


def test_a_weight_that_layers_share_is_cut_one_way():
    text = """
    input X[s: 64, a: 32], W[f: 32, a]
    H[s,f] <- sum X[s,a] * W[f,a]
    Y[s,o] <- sum relu(H[s,f]) * W[f,o]
    output Y
    """
    plan = ed.plan(ed.parse(text), mesh={"tp": 4}, strategy=["f"])
    with pytest.raises(ed.PlanError, match="W, which several layers share, is colwise in one"):
        plan.to_dtensor().tp_plan()


class Net(torch.nn.Module):
    """The net of `MLP`, its modules named like the graph's weights."""

    def __init__(self):
        super().__init__()
        self.W1 = torch.nn.Linear(32, 128, bias=False)
        self.W2 = torch.nn.Linear(128, 32, bias=False)

    def forward(self, x):
        return self.W2(torch.relu(self.W1(x)))


def test_parallelize_module_follows_the_plan():
    plan = ed.plan(ed.parse(MLP), mesh={"tp": 4}, strategy=["f"])
    net, x = Net(), torch.rand(64, 32)
    with torch.no_grad():
        wanted = net(x).numpy()
        with all_ranks((4,)) as ranks:
            found = plan.to_dtensor(ranks)
            styles = found.parallelize_module_plan()
            assert isinstance(styles["W1"], ColwiseParallel)
            assert isinstance(styles["W2"], RowwiseParallel)
            parallelize_module(net, ranks, styles, src_data_rank=None)
            for name in ("W1", "W2"):
                assert getattr(net, name).weight.placements == found.weights[name]
            blocks = net(x).wait()._local_tensors
    for rank in range(4):
        np.testing.assert_allclose(blocks[rank].numpy(), wanted, rtol=1e-5, atol=1e-6)
