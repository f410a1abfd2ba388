"""All ranks of a device mesh in one process, with numbers: PyTorch's `LocalTensorMode`."""

from __future__ import annotations

import logging
from contextlib import contextmanager

import numpy as np
import torch
from torch.distributed._local_tensor import LocalTensor, LocalTensorMode
from torch.distributed.device_mesh import DeviceMesh

from eindecomp.frontends.torch.verify import pretended_group

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
