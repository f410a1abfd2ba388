"""The only rank of a job: what a GPU alone can show of NCCL, or the CPU of gloo."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from agreement import agree, arrays_for

import eindecomp as ed
from eindecomp.engines.spmd.exchange import PeerSpans
from eindecomp.engines.spmd.torch_ranks import as_bytes
from eindecomp.models.paper_graphs import ffnn

DTYPES = ("bool", "int8", "int16", "bfloat16", "float32", "float64", "complex64", "complex128")


def check_exchange(arrays: object, device: str) -> None:
    """A rank alone exchanges nothing, and elements of every type travel as their bytes."""
    nothing = PeerSpans(torch.zeros(4, device=device), {})
    arrays.carrier.exchange(nothing, nothing, 0, (0,)).wait()
    arrays.settle()
    for name in DTYPES:
        own = torch.arange(-3, 9, device=device).to(getattr(torch, name))
        assert torch.equal(as_bytes(own).view(own.dtype), own), name


def main() -> None:
    device = sys.argv[1]
    graph = ffnn(8, 96, 48, 60, optimizer="sgd")
    given = arrays_for(graph)
    plan = ed.plan(graph, 1)
    run = ed.compile(plan, engine="spmd", device=device)
    found = run(given)
    agree(found, ed.evaluate(graph, given), 1e-5)
    assert all(np.array_equal(run(given)[name], found[name]) for name in found)
    state = run.place({name: given[name] for name in graph.ties})
    placed = run({**given, **state}, donate=[*state])
    assert all(np.array_equal(placed[name], found[name]) for name in found)
    check_exchange(run.engine.arrays, device)
    for wrong, why in (("tpu", "not a device of torch's"), (3, "has a name"), ("meta", "runs on")):
        with pytest.raises(ed.InputError, match=why):
            ed.compile(plan, "spmd", device=wrong)
    if not torch.cuda.is_available():
        with pytest.raises(ed.InputError, match="'cuda' was asked for, and torch finds no GPU"):
            ed.compile(plan, "spmd", device="cuda")
    sys.stdout.write("all agree\n")


if __name__ == "__main__":
    main()
