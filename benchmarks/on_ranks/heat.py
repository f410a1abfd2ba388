"""The heat equation on ranks: rows of a plate in strips, by our plan and with mpi4py by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
from on_ranks.jobs import Record, ranks_of, timed

import eindecomp as ed

Array = np.ndarray[Any, Any]


def text_of(size: int, steps: int) -> str:
    """So many steps, with a border of zeros."""
    lines = [f"input U0[i: {size}, j: {size}]"]
    for k in range(steps):
        u = f"U{k}"
        near = f"{u}[i - 1 else 0, j] + {u}[i + 1 else 0, j]"
        near += f" + {u}[i, j - 1 else 0] + {u}[i, j + 1 else 0]"
        lines.append(f"U{k + 1}[i,j] <- {u}[i,j] + 0.1 * ({near} - 4 * {u}[i,j])")
    return "\n".join([*lines, f"output U{steps}"])


@numba.njit(nogil=True)
def step(u: Array, z: Array, a: Any, b: Any) -> None:
    for i in range(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            near = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
            z[i, j] = u[i, j] + a * (near - b * u[i, j])


def by_hand(u: Array, rank: int, ranks: int, steps: int) -> Callable[[], Array]:
    """Two arrays in turns, with a border of zeros, whose rows beside neighbours they send."""
    from mpi4py import MPI

    world, size = MPI.COMM_WORLD, len(u)
    low, high = rank * size // ranks, (rank + 1) * size // ranks
    own = np.ascontiguousarray(u[low:high])
    pair = [np.zeros((high - low + 2, size + 2), u.dtype) for _ in range(2)]
    a, b = u.dtype.type(0.1), u.dtype.type(4)
    up = rank - 1 if rank else MPI.PROC_NULL
    down = rank + 1 if rank + 1 < ranks else MPI.PROC_NULL

    def compute() -> Array:
        now, then = pair
        now[1:-1, 1:-1] = own
        for _ in range(steps):
            world.Sendrecv(now[1], up, recvbuf=now[-1], source=down)
            world.Sendrecv(now[-2], down, recvbuf=now[0], source=up)
            step(now, then, a, b)
            now, then = then, now
        return now[1:-1, 1:-1].copy()

    return compute


def heat_inside(quick: bool) -> Iterator[Record]:
    transport, ready = ranks_of("mpi")
    size, steps = 4096, 20 if quick else 100
    u = np.random.default_rng(0).random((size, size), np.float32)
    graph = ed.parse(text_of(size, steps))
    plan = ed.plan_together(lambda: ed.plan(graph, transport.size, inputs="free"))
    run = ed.compile(plan, engine="spmd")
    held = run.place({"U0": u})
    hand = by_hand(u, transport.rank, transport.size, steps)
    first = run(held)[f"U{steps}"]
    low = transport.rank * size // transport.size
    mine = hand()
    note = "" if np.allclose(first[low : low + len(mine)], mine, atol=1e-5) else "ANOTHER RESULT"
    ways = {"ours": lambda: run(held), "by hand": hand}
    yield {"case": f"heat, {size}^2, {steps} steps", "note": note, **timed(ways, ready, 3)}
