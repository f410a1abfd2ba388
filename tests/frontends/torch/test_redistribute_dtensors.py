"""`ed.redistribution` of DTensors: their blocks, their bytes, and their own redistribute."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from jobs import run_command
from local_ranks import all_ranks, blocks_of
from redistribution import counted, device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

import eindecomp as ed
from eindecomp.frontends.torch.verify import pretended_group
from eindecomp.layout.tiling import box_on

GLOO = Path(__file__).parent / "ranks" / "gloo_redistribution.py"
PLAIN = [Replicate(), Shard(0), Shard(1)]


@pytest.mark.parametrize(
    ("mesh", "shape", "step"),
    [
        ("2x2", "5x6", 29),
        pytest.param("2x2", "5x6", 1, marks=pytest.mark.long),
        pytest.param("2x3", "7x6", 3, marks=pytest.mark.long),
        pytest.param("2x2x2", "4x8x6", 997, marks=pytest.mark.long),
    ],
)
def test_ranks_of_gloo_get_what_dtensor_gives_them(tmp_path, mesh, shape, step):
    job = run_command(
        [sys.executable, str(GLOO), mesh, shape, str(tmp_path), str(step)], timeout=500
    )
    assert job.status == 0, job.err


@pytest.mark.parametrize("sizes", [(2, 3), (4, 2), (2, 1, 2)])
def test_placements_give_every_rank_its_block(sizes):
    numbers = np.arange(5 * 7).reshape(5, 7)
    layouts = [*product(PLAIN, repeat=len(sizes))]
    if sizes == (4, 2):
        numbers = np.arange(16 * 7).reshape(16, 7)
        layouts.append((_StridedShard(0, split_factor=2), Shard(0)))
    with all_ranks(sizes) as mesh:
        for placements in layouts:
            way = ed.redistribution(numbers.shape, mesh, placements, [Replicate()] * len(sizes))
            dtensor = distribute_tensor(
                torch.from_numpy(numbers), mesh, placements, src_data_rank=None
            )
            for rank, block in enumerate(blocks_of(dtensor)):
                box = box_on(way.mesh, way.source.held.cut, rank)
                np.testing.assert_array_equal(block, numbers[tuple(slice(*side) for side in box)])


@pytest.mark.parametrize("sizes", [(2, 4), (2, 2, 2)])
@pytest.mark.parametrize("best", [False, True])
def test_dtensor_never_moves_less(sizes, best):
    sources = [*product([*PLAIN, Partial()], repeat=len(sizes))]
    targets = [*product(PLAIN, repeat=len(sizes))]
    ratios = []
    with pretended_group(8):
        mesh = device_mesh(sizes)
        for source, target in [*product(sources, targets)][:: 13 ** (len(sizes) - 1)]:
            way = ed.redistribution((16, 16), mesh, source, target)
            moved = counted(mesh, (16, 16), way, target, best)
            assert way.bytes <= moved
            ratios.append(moved / max(way.bytes, 1))
    assert max(ratios) > 1


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ([Shard(0)], [Replicate()] * 2, "1 placements for a mesh of 2 dimensions"),
        ([Shard(2), Shard(0)], [Replicate()] * 2, "has no dimension 2"),
        ([_StridedShard(0, split_factor=3), Shard(0)], [Replicate()] * 2, "more than one block"),
        ([_StridedShard(1, split_factor=4), Shard(1)], [Replicate()] * 2, "uneven dimension"),
        ([Replicate()] * 2, [Partial(), Replicate()], "along which the source is not"),
        ([Partial("sum"), Replicate()], [Partial("max"), Replicate()], "wait for 'max'"),
        ([Partial("sum"), Partial("max")], [Replicate()] * 2, "several ways, max, sum"),
        ([Partial("xor"), Replicate()], [Replicate()] * 2, "cannot be redistributed"),
    ],
)
def test_placements_that_cannot_be_are_refused(source, target, message):
    with pytest.raises(ed.PlanError) as error:
        ed.redistribution((16, 7), (2, 4), source, target)
    assert message in str(error.value)


def test_dialects_mix_and_pieces_follow_them():
    way = ed.redistribution((5, 8), {"x": 4}, [Shard(0)], {1: "x"})
    assert way.mesh.pieces == "ceil"
    assert [box_on(way.mesh, way.source.held.cut, k)[0] for k in range(4)] == [
        (0, 2), (2, 4), (4, 5), (5, 5)
    ]  # fmt: skip
    with pytest.raises(ed.PlanError, match="placements cut into pieces='ceil'"):
        ed.redistribution((5, 8), 4, [Shard(0)] * 2, {}, pieces="balanced")
    with pytest.raises(ed.InputError, match="needs a process group"):
        way.apply(torch.zeros(2, 8))
    with pytest.raises(ed.InputError, match="takes a DTensor, or a rank's block"):
        way.apply(np.zeros((2, 8)))
