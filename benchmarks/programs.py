"""Programs of plans for many devices: seconds and memory to make one, and a device's row of it.

The graph is LLaMA-7B's prefill, 32 layers, cut by a strategy, which is planned quickly; and two
matrix products with stored inputs. There is no peer: the figures asked for are in the first line.
"""

from __future__ import annotations

import tracemalloc
from time import perf_counter

from plan_llama import llama

import eindecomp as ed
from eindecomp.tra.program.make import program_of

ASKED = "asked for LLaMA-7B on 1,024 devices: program < 2 s and 200 MB, a row < 0.2 s after that"
PRODUCTS = """
input A[i: 8192, j: 8192], B[j, k: 8192], C[k, n: 8192]
X[i,k] <- sum A[i,j] * B[j,k]
Z[i,n] <- sum X[i,k] * C[k,n]
output Z
"""


def measure(title: str, plan: ed.Plan) -> None:
    """Make the program of a plan and some rows of it."""
    len(plan.decisions)  # made when they are first looked at
    start = perf_counter()
    program = program_of(plan)
    made = perf_counter() - start
    rows = []
    for device in (0, 1, plan.devices // 2, plan.devices - 1):
        start = perf_counter()
        program.on(device)
        rows.append(perf_counter() - start)
    same = "as planned" if program.moved == plan.cost else "NOT as planned"
    tracemalloc.start()
    again = program_of(plan)
    memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    shown = ", ".join(f"{1e3 * row:.0f}" for row in rows)
    print(
        f"{title}: {len(again.steps)} steps in {made:.2f} s, {memory / 2**20:.0f} MiB; "
        f"rows of four devices {shown} ms; {program.moved:,} bytes move, {same}",
        flush=True,
    )


def main() -> None:
    print(ASKED)
    graph = llama("7B", 8, 4096)
    for devices in (8, 64, 1024):
        for inputs in ("free", "sharded"):
            plan = ed.plan(graph, devices, strategy=["h", "f", "s"], inputs=inputs, time_limit=20)
            measure(f"LLaMA-7B, 32 layers, p={devices}, inputs {inputs}", plan)
    products = ed.plan(ed.parse(PRODUCTS), 1024, inputs="sharded", strategy="sqrt")
    measure("two products, p=1024, inputs sharded", products)


if __name__ == "__main__":
    main()
