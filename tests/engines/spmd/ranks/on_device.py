"""Every rank: tensors of torch's come in and go out, on the device that is asked for."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from agreement import agree, arrays_for

import eindecomp as ed
from eindecomp import models
from eindecomp.engines.spmd.job import connect

TEXT = """
scalar a
input T[n: 6, i: 8], index[r: 4] int64, W[i, k: 8]
ones[k: 8] <- fill k + a
X[r,i] <- T[index[r],i]
H[r,k] <- sum a * X[r,i] * W[i,k]
S[k] <- max H[r,k]
Z[r,k] <- exp(H[r,k] - S[k]) + ones[k]
output Z, W
"""
DATA = models.Synthetic(8, 30, 5, nonzeros=6)
GRAPH = models.ffnn(8, 30, 12, 5, optimizer="momentum")


def check_tensors(device: str) -> None:
    """What is given and what is asked for may be torch's or NumPy's."""
    graph = ed.parse(TEXT)
    ranks = connect().size
    arrays = arrays_for(graph)
    on_torch = {k: torch.from_numpy(v) for k, v in arrays.items() if k in graph} | {"a": 0.5}
    wanted = ed.evaluate(graph, arrays)
    for labels in (["k"], ["i"], ["r"]):
        plan = ed.plan(graph, ranks, strategy=labels, rewrite=False)
        run = ed.compile(plan, engine="spmd", device=device)
        found = run(on_torch)
        agree(found, wanted, 1e-5)
        assert found.stats.bytes_moved == plan.cost
        again = run({**arrays, **run.place({"T": on_torch["T"].t().contiguous().t()})})
        assert again["Z"].tobytes() == found["Z"].tobytes()
        whole = found.tensor("Z").array()
        assert whole.device.type == torch.device(device).type
        assert torch.from_dlpack(found.tensor("Z")).cpu().numpy().tobytes() == found["Z"].tobytes()
        # What lies in NumPy's arrays is of use on the device, and the other way round.
        host = ed.compile(plan, engine="spmd")
        there = run({**arrays, **host.place({"T": arrays["T"], "W": arrays["W"]})})
        assert there["Z"].tobytes() == found["Z"].tobytes()
        back = host({**arrays, **run.place({"T": arrays["T"], "W": arrays["W"]})})
        agree(back, wanted, 1e-5)
    with pytest.raises(ed.InputError, match="would lose information"):
        run({**on_torch, "index": torch.full((4,), 0.5)})


def look_beyond(device: str) -> None:
    """Give an index for which there is no row."""
    graph = ed.parse(TEXT)
    arrays = arrays_for(graph) | {"index": torch.full((4,), 6)}
    plan = ed.plan(graph, connect().size, strategy=["k"], rewrite=False)
    ed.run(plan, arrays, engine="spmd", device=device)


def check_training(device: str) -> None:
    """Training gives what it gives on threads."""
    more = {"steps": 4, "lr": 0.1, "devices": connect().size}
    state = models.initial(GRAPH, seed=3)
    fits = [
        models.fit(GRAPH, DATA, state, **more, engine=engine, options=options)
        for engine, options in (("spmd", {"device": device}), ("threads", {}))
    ]
    np.testing.assert_allclose(*(fit.losses for fit in fits), rtol=1e-4)


def main() -> None:
    if sys.argv[2:] == ["beyond"]:
        look_beyond(sys.argv[1])
    check_tensors(sys.argv[1])
    check_training(sys.argv[1])
    if connect().rank == 0:
        sys.stdout.write("all agree\n")


if __name__ == "__main__":
    main()
