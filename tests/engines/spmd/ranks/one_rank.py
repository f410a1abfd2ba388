"""The only rank of a job: what a GPU alone can show of NCCL, or the CPU of gloo."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from agreement import agree, arrays_for

import eindecomp as ed
from eindecomp.models.paper_graphs import ffnn

DTYPES = ("bool", "int8", "int16", "bfloat16", "float32", "float64", "complex64", "complex128")


def check_collectives(arrays: object, device: str) -> None:
    """A group of one gives every type back as it was."""
    group = arrays.carrier.group(((0,),))
    for name in DTYPES:
        own = torch.arange(-3, 9, device=device).to(getattr(torch, name)).reshape(3, 4)
        words = arrays.words(own)
        into = torch.zeros_like(words)
        group.all_gather(words, into, [len(words)]).wait()
        arrays.settle()
        assert torch.equal(into, words), name
        group.all_gather(None, into, [len(words)]).wait()
        nothing = [(0, 0)]
        group.all_to_all(words, nothing, into, nothing).wait()
        arrays.settle()
        assert torch.equal(into, words), name
    for name in ("float16", "bfloat16", "float32", "float64"):
        if arrays.carrier.sums(ed.parse(f"input X[i: 2] {name}\noutput X")["X"].dtype, equal=True):
            own = torch.arange(4, device=device).to(getattr(torch, name))
            into = torch.zeros_like(own)
            group.reduce_scatter(own, into, [4]).wait()
            arrays.settle()
            assert torch.equal(into, own), name


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
    check_collectives(run.engine.arrays, device)
    for wrong, why in (("tpu", "not a device of torch's"), (3, "has a name"), ("meta", "runs on")):
        with pytest.raises(ed.InputError, match=why):
            ed.compile(plan, "spmd", device=wrong)
    if not torch.cuda.is_available():
        with pytest.raises(ed.InputError, match="'cuda' was asked for, and torch finds no GPU"):
            ed.compile(plan, "spmd", device="cuda")
    sys.stdout.write("all agree\n")


if __name__ == "__main__":
    main()
