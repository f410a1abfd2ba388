"""All ranks of a device mesh in one process, with numbers: PyTorch's `LocalTensorMode`."""

from __future__ import annotations

import logging
from contextlib import contextmanager

import numpy as np
import torch
from torch.distributed._local_tensor import (
    LocalTensor,
    LocalTensorMode,
    maybe_disable_local_tensor_mode,
)
from torch.distributed.device_mesh import DeviceMesh

from eindecomp.frontends.layouts import coarsest
from eindecomp.frontends.torch.carry_out import Running
from eindecomp.frontends.torch.verify import pretended_group
from eindecomp.graph.ops import Fill
from eindecomp.kernels.torch.library import TorchLibrary
from eindecomp.layout.boxes import shape_of, within
from eindecomp.layout.tiling import box_on

logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)


@contextmanager
def all_ranks(sizes, device="cpu"):
    """The device mesh of a shape, over ranks that all live here."""
    sizes = tuple(sizes) or (1,)
    count = int(np.prod(sizes))
    with pretended_group(count):
        names = tuple(f"d{k}" for k in range(len(sizes)))
        mesh = DeviceMesh(device, torch.arange(count).reshape(sizes), mesh_dim_names=names)
        with LocalTensorMode(count):
            yield mesh


def blocks_of(dtensor):
    """What each rank holds."""
    local = dtensor._local_tensor
    if not isinstance(local, LocalTensor):
        return [local.numpy()]
    return [block.numpy() for _, block in sorted(local._local_tensors.items())]


class KernelMaker:
    """Computes with the kernels of torch, on one rank or on all that live here."""

    def __init__(self, plan, mesh, arrays, rank=None):
        self.graph, self.mesh, self.arrays = plan.graph, mesh, arrays
        self.ranks = range(mesh.devices) if rank is None else [rank]
        self.together = LocalTensor if rank is None else lambda blocks: blocks[rank]
        self.library = TorchLibrary()
        self.scalars = [arrays[name] for name in self.graph.scalars]

    def each(self, make):
        with maybe_disable_local_tensor_mode():
            return self.together({rank: make(rank) for rank in self.ranks})

    def load(self, tensor, cut):
        op = self.graph[tensor].op

        def block(rank):
            box = box_on(self.mesh, cut, rank)
            if isinstance(op, Fill):
                scalars = {name: self.arrays[name] for name in self.graph.scalars}
                made = self.library.filled(op, box, scalars, self.graph.scalars)
                return made.expand(shape_of(box)).contiguous()
            index = tuple(slice(*side) for side in box)
            return self.library.from_numpy(np.array(self.arrays[tensor][index], copy=True))

        return self.each(block)

    def part(self, block, held, wanted):
        return self.each(
            lambda rank: _local(block, rank)[
                within(box_on(self.mesh, wanted, rank), box_on(self.mesh, held, rank))
            ]
        )

    def compute(self, step, operands, made):
        vertex = self.graph[step.vertex]
        kernel = self.library.kernel(self.graph, vertex)
        types = kernel.state if step.is_partial else (vertex.dtype,)

        def tile(rank):
            own = [None if x is None else _local(x, rank) for x in operands]
            shape = shape_of(box_on(self.mesh, made, rank))
            out = [self.library.empty(shape, each) for each in types]
            if step.is_partial:
                kernel.partial(own, out, self.scalars)
            else:
                kernel.whole(own, out[0], self.scalars)
            return out

        with maybe_disable_local_tensor_mode():
            tiles = {rank: tile(rank) for rank in self.ranks}
        return [
            self.together({rank: tiles[rank][k] for rank in self.ranks}) for k in range(len(types))
        ]

    def combine(self, vertex, states):
        kernel = self.library.kernel(self.graph, self.graph[vertex])

        def result(rank):
            stacked = [_local(state, rank) for state in states]
            into = [state[0].clone() for state in stacked]
            for k in range(1, len(stacked[0])):
                kernel.combine(into, [state[k] for state in stacked])
            out = self.library.empty(into[0].shape, self.graph[vertex].dtype)
            kernel.finish(into, out)
            return out

        return self.each(result)


def _local(tensor, rank):
    return tensor._local_tensors[rank] if isinstance(tensor, LocalTensor) else tensor


def run_over_dtensors(plan, arrays, on=None):
    """The outputs of a plan that DTensor carries out, as every rank has them after gathering."""
    on = coarsest(plan) if on is None else on
    with all_ranks(on.mesh.sizes) as mesh:
        running = Running(plan, mesh, KernelMaker(plan, on.mesh, arrays), on)
        for _ in running.steps():
            pass
        outputs = {name: each.full_tensor() for name, each in running.outputs.items()}
        with maybe_disable_local_tensor_mode():
            return {
                name: TorchLibrary().to_numpy(_local(whole, plan.devices - 1))
                for name, whole in outputs.items()
            }
