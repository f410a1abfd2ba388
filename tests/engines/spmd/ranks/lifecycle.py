"""Every rank: tensors that stay, other layouts, ties, listeners, kernel errors."""

from __future__ import annotations

import sys

import numpy as np

import eindecomp as ed
from eindecomp.engines.result import BytesMoved, TaskFinished
from eindecomp.engines.spmd.job import connect
from eindecomp.models.paper_graphs import ffnn
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.memory import fullest

DEVICE = sys.argv[1] if len(sys.argv) > 1 else None


def check_memory(ranks: int) -> None:
    """The state of training takes no more memory than planned: the old one goes as it is read."""
    graph = ffnn(8, 300, 300, 50, optimizer="adam")
    plan = ed.plan_together(lambda: ed.plan(graph, ranks))
    planned = fullest(program_of(plan)).bytes
    rng = np.random.default_rng(0)
    arrays = {v.name: rng.random(v.shape).astype(v.dtype) for v in graph.inputs}
    arrays |= dict.fromkeys(graph.scalars, 1.0)
    run = ed.compile(plan, engine="spmd", device=DEVICE)
    state = run.place({name: arrays[name] for name in graph.ties})
    for _ in range(2):
        result = run({**arrays, **state}, donate=[*state])
        state = {name: result.tensor(new) for name, new in graph.ties.items()}
        assert result.stats.peak_memory <= 1.02 * planned, (result.stats.peak_memory, planned)


def main() -> None:
    ranks, rank = connect().size, connect().rank
    rng = np.random.default_rng(0)
    graph = ed.parse("""
    input X[i: 12, j: 20], W[j, k: 9]
    H[i,k] <- sum X[i,j] * W[j,k]
    Z[k] <- sum H[i,k]
    output Z, H
    """)
    x, w = (rng.standard_normal(shape).astype("float32") for shape in ((12, 20), (20, 9)))

    def executable(labels: list[str]) -> ed.Executable:
        return ed.compile(ed.plan(graph, ranks, strategy=labels), engine="spmd", device=DEVICE)

    by_rows, by_columns = executable(["i"]), executable(["k"])
    expected = by_rows({"X": x, "W": w})
    placed = by_rows.place({"X": x, "W": w})
    again = by_rows(placed)
    assert np.array_equal(again["H"], expected["H"])
    assert again.stats.bytes_placed == 0
    # Tensors of another layout are brought to where they are wanted, and that is counted apart.
    moved = by_columns(placed)
    np.testing.assert_allclose(moved["H"], expected["H"], rtol=1e-5)
    assert moved.stats.bytes_moved == by_columns.plan.cost
    assert moved.stats.bytes_placed > 0
    square = ed.parse("input H[i: 12, k: 9]\nS[i] <- sum H[i,k] * H[i,k]\noutput S")
    summed = ed.compile(ed.plan(square, ranks, strategy=["k"]), engine="spmd", device=DEVICE)
    held = expected.tensor("H")
    np.testing.assert_allclose(summed({"H": held})["S"], (x @ w) ** 2 @ np.ones(9), rtol=1e-4)
    summed({"H": held}, donate=["H"])
    try:
        held.numpy()
        raise AssertionError("a donated tensor was read")
    except ed.InputError:
        pass

    check_memory(ranks)

    events = []
    by_rows({"X": x, "W": w}, on_event=events.append)
    assert {event.device for event in events if isinstance(event, TaskFinished)} == {rank}
    told = sum(event.count for event in events if isinstance(event, BytesMoved))
    assert told <= by_rows.plan.cost

    scaled = ed.parse("scalar a\ninput X[i: 8]\nY[i] <- a * X[i]\noutput Y, X")
    found = ed.run(
        ed.plan(scaled, ranks), {"X": np.arange(8), "a": 0.5}, engine="spmd", device=DEVICE
    )
    assert np.array_equal(found["Y"], np.arange(8) / 2)
    assert np.array_equal(found["X"], np.arange(8))
    if rank == 0:
        sys.stdout.write("all agree\n")


if __name__ == "__main__":
    main()
