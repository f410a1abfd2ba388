"""Every rank: a long run that is killed goes on behind the last tensors that were written."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.engines.result import TaskStarted
from eindecomp.engines.spmd.job import connect

TEXT = """
input X[i: 24, j: 20], W[j, k: 20]
A[i,k] <- sum X[i,j] * W[j,k]
B[i,m: 20] <- max A[i,k] - W[m,k]
C[i,k] <- sum B[i,m] * W[m,k]
S[k] <- max C[i,k]
D[i,k] <- exp(C[i,k] - S[k]) + A[i,k]
E[i] <- sum D[i,k] * X[i,k]
output E, D
"""


def main() -> None:
    how, folder, *device = sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]
    options = {"engine": "spmd", "device": device[0] if device else None}
    ranks, rank = connect().size, connect().rank
    graph = ed.parse(TEXT)
    rng = np.random.default_rng(0)
    inputs = {v.name: rng.standard_normal(v.shape).astype("float32") / 4 for v in graph.inputs}
    plan = ed.plan(graph, ranks, strategy=["m", "k"], rewrite=False)
    started: list[str] = []

    def listen(event: object) -> None:
        if isinstance(event, TaskStarted):
            started.append(event.vertex)
            if how == "kill" and event.vertex == "D" and rank == ranks - 1:
                os.kill(os.getpid(), signal.SIGKILL)

    run = ed.compile(plan, **options, checkpoint=folder, checkpoint_at="A,C")
    if how == "kill":
        run(inputs, on_event=listen)
    wanted = ed.run(plan, inputs, **(options if device else {"engine": "apart"}))
    if how == "damaged":
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = run(inputs, on_event=listen)
        assert {"A", "B", "C", "D"} <= set(started)
        assert all(np.array_equal(found[name], wanted[name]) for name in ("D", "E"))
        for each in told:
            sys.stdout.write(f"{each.message}\n")
        return
    # Other inputs are another run, which begins at its beginning.
    run({**inputs, "X": inputs["X"] + 1}, on_event=listen)
    assert {"A", "B", "C", "D"} <= set(started)
    if rank == 0:
        left = sorted(path.name for path in folder.iterdir())
        assert len(left) == 1, left
    started.clear()
    found = run(inputs, on_event=listen)
    assert not {"A", "B", "C"} & set(started), started
    assert {"D", "E"} <= set(started)
    for name in ("D", "E"):
        assert np.array_equal(found[name], wanted[name]), name
    assert found.stats.bytes_moved < wanted.stats.bytes_moved
    if rank == 0:
        assert not [*folder.iterdir()]
        folder.rmdir()
        folder.touch()
    run.engine.ranks.gather_bytes(b"")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        again = run(inputs)
    assert [str(each.message).startswith("no checkpoint: ") for each in told] == [True, True][
        : 0 if rank else 2
    ]
    assert np.array_equal(again["E"], wanted["E"])
    with pytest.raises(ed.InputError, match="checkpoint_at: the planned graph computes no 'Q'"):
        ed.compile(plan, engine="spmd", checkpoint=folder, checkpoint_at=["Q"])
    if rank == 0:
        sys.stdout.write("all agree\n")


if __name__ == "__main__":
    main()
