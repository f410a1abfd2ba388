"""Forks ranks of gloo that redistribute DTensors, as `ed.redistribution` does and as they do.

Arguments: the sizes of the mesh, such as 2x4, the tensor's shape, a folder, and how many pairs of
layouts are left out before the next one is tried.
"""

from __future__ import annotations

import multiprocessing
import sys
from itertools import product
from math import prod
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import eindecomp as ed
from eindecomp.frontends.given_layouts import layouts_of, mesh_of, tensor_of

# Nobody has given anything where this is only looked through for doctests.
GIVEN = sys.argv[1:] if __name__ == "__main__" else ["1", "1", ".", "1"]
MESH, SHAPE = (tuple(map(int, text.split("x"))) for text in GIVEN[:2])
FOLDER, STEP = Path(GIVEN[2]), int(GIVEN[3])


def pairs():
    """Sources, which may be partial, and targets, which may stay so: a part of all pairs."""
    plain = [Replicate(), *(Shard(dim) for dim in range(len(SHAPE)))]
    kinds = (plain, [*plain, Partial("sum")], [*plain, Partial("avg")], [*plain, Partial("max")])
    for given in kinds:
        sources = list(product(given, repeat=len(MESH)))
        for k, (source, target) in enumerate(product(sources, repeat=2)):
            stays = all(
                not own.is_partial() or own == before
                for own, before in zip(target, source, strict=True)
            )
            if stays and k % STEP == 0:
                yield source, target


def tensors(mesh, source):
    """A DTensor whose parts are different on every rank, as multiples that add up exactly."""
    plain = [Replicate() if own.is_partial() else own for own in source]
    whole = torch.arange(prod(SHAPE), dtype=torch.float64).reshape(SHAPE) * 12
    local = distribute_tensor(whole, mesh, plain, src_data_rank=None).to_local()
    along = [k for k, own in enumerate(source) if own.is_partial()]
    place = mesh.get_coordinate()
    factor = 1 + sum(place[k] * prod(MESH[:k]) for k in along)
    local = (local * factor).requires_grad_()
    shape, stride = whole.shape, whole.stride()
    return DTensor.from_local(local, mesh, source, run_check=False, shape=shape, stride=stride)


def check(mesh, source, target, collectives):
    """Compare values and gradients with those of DTensor's own redistribute."""
    way = ed.redistribution(SHAPE, mesh, source, target, dtype="float64", collectives=collectives)
    found, expected = [], []
    for into in (found, expected):
        start = tensors(mesh, source).detach().requires_grad_()
        moved = way.apply(start) if into is found else start.redistribute(placements=target)
        assert moved.placements == target
        into.append(moved.to_local().detach())
        if not any(own.is_partial() and own.reduce_op == "max" for own in source):
            weight = torch.arange(prod(SHAPE), dtype=torch.float64).reshape(SHAPE)
            plain = [Replicate() if own.is_partial() else own for own in target]
            scale = distribute_tensor(weight, mesh, plain, src_data_rank=None).to_local()
            moved.to_local().backward(scale)
            into.append(start.grad.full_tensor())
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, msg=lambda text: f"{source} → {target}: {text}")


def run(rank):
    torch.set_num_threads(1)
    ranks = prod(MESH)
    dist.init_process_group(
        "gloo", init_method=f"file://{FOLDER}/group", rank=rank, world_size=ranks
    )
    mesh = init_device_mesh("cpu", MESH, mesh_dim_names=tuple("xyz"[: len(MESH)]))
    for k, (source, target) in enumerate(pairs()):
        check(mesh, source, target, (None, True, False)[k % 3])
    block_by_block(mesh)
    dist.destroy_process_group()


def block_by_block(mesh):
    """The same for a rank's own block, in another type, and what is refused."""
    places = [Shard(0), *[Replicate()] * (len(MESH) - 1)]
    way = ed.redistribution(SHAPE, MESH, places, [Replicate()] * len(MESH), dtype=torch.bfloat16)
    whole = torch.arange(prod(SHAPE)).reshape(SHAPE).to(torch.bfloat16)
    local = distribute_tensor(whole, mesh, places, src_data_rank=None).to_local()
    assert torch.equal(way.apply(local), whole)
    assert torch.equal(way.apply(local, group=dist.group.WORLD), whole)
    for wrong in (whole[None], distribute_tensor(whole, mesh, way.target.placements), [1]):
        try:
            way.apply(wrong)
        except ed.InputError:
            continue
        raise AssertionError(wrong)
    number = ed.redistribution((), MESH, [Partial()] * len(MESH), [Replicate()] * len(MESH))
    ranks = dist.get_world_size()
    assert number.apply(torch.tensor(dist.get_rank())).item() == ranks * (ranks - 1) // 2
    given, tensor = mesh_of(mesh), tensor_of(SHAPE)
    assert layouts_of(given, tensor, places, {}, None)[1].held == way.source.held


if __name__ == "__main__":
    forking = multiprocessing.get_context("fork")
    ranks = [forking.Process(target=run, args=(rank,)) for rank in range(prod(MESH))]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    sys.exit(any(each.exitcode for each in ranks))
