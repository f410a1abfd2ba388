"""Run by four ranks of gloo: modules under plans of their own, against themselves alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.utils import _pytree

sys.path.insert(0, str(Path(__file__).parents[1]))
from tiny_models import made

import eindecomp as ed
from eindecomp.frontends.torch.verify import Recorder


def applied(name, path):
    """Check what a module returns over four ranks; the bytes that its collectives moved."""
    module, example = made(name)
    plan = ed.Plan.load(path)
    placed = plan.to_dtensor()
    run = plan.to_dtensor(placed.make_mesh("cpu")).apply(module, example)
    with Recorder() as recorder:
        found = run(**example)
        moved = sum(each.nbytes for each in recorder.take())
    with torch.no_grad():
        expected = module(**example)
    assert _pytree.tree_structure(found) == _pytree.tree_structure(expected)
    pairs = zip(_pytree.tree_leaves(found), _pytree.tree_leaves(expected), strict=True)
    for ours, theirs in pairs:
        assert isinstance(ours, DTensor)
        torch.testing.assert_close(ours.full_tensor(), theirs, rtol=1e-4, atol=1e-5)
    return moved


if __name__ == "__main__":
    dist.init_process_group("gloo")
    counted = [applied(Path(path).stem, path) for path in sys.argv[1:]]
    if dist.get_rank() == 0:
        sys.stdout.write(json.dumps(counted))
    dist.destroy_process_group()
