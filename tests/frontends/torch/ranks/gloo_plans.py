"""Run by four ranks of gloo: blocks, results and moved bytes of plans that DTensor carries out."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch.distributed as dist
from agreement import agree, arrays_for

sys.path.insert(0, str(Path(__file__).parents[1]))
from local_ranks import KernelMaker

import eindecomp as ed
from eindecomp.frontends.layouts import layouts_of, of_shape
from eindecomp.frontends.torch.carry_out import Running
from eindecomp.frontends.torch.collectives import Recorder
from eindecomp.kernels.torch.library import TorchLibrary
from eindecomp.layout.tiling import box_on


def carried_out(path):
    """Check the blocks and the results of a plan; the bytes that its collectives moved."""
    rank, library, plan = dist.get_rank(), TorchLibrary(), ed.Plan.load(path)
    mesh = plan.to_dtensor().make_mesh("cpu")
    arrays = arrays_for(plan.graph)
    given = {v.name: library.from_numpy(arrays[v.name]) for v in plan.graph.inputs}
    for name, made in plan.to_dtensor(mesh).distribute(given).items():
        box = box_on(plan.mesh, layouts_of(plan)[name][0], rank)
        block = arrays[name][tuple(slice(*side) for side in box)]
        assert np.array_equal(library.to_numpy(made.to_local()), block)
    on = of_shape(plan, mesh.shape)
    running = Running(plan, mesh, KernelMaker(plan, on.mesh, arrays, rank), on)
    with Recorder() as recorder:
        for _ in running.steps():
            pass
    found = {name: library.to_numpy(out.full_tensor()) for name, out in running.outputs.items()}
    agree(found, ed.evaluate(plan.graph, arrays), 1e-5)
    return sum(each.nbytes for each in recorder.take())


if __name__ == "__main__":
    dist.init_process_group("gloo")
    counted = [carried_out(path) for path in sys.argv[1:]]
    if dist.get_rank() == 0:
        sys.stdout.write(json.dumps(counted))
    dist.destroy_process_group()
