"""Every rank runs again and again; the last one gets into trouble after a while."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import numpy as np

import eindecomp as ed
from eindecomp.engines.spmd.job import connect

TEXT = """
input X[i: 64, j: 64], W[j, k: 64]
H[i,k] <- sum X[i,j] * W[j,k]
Z[k] <- sum H[i,k]
output Z
"""


def fail(event: object) -> None:
    raise ValueError("the listener does not like this")


def hold_for(seconds: float) -> None:
    """Call what lets no other thread of the process run."""
    count, took = 10**6, 0.0
    while took < seconds:
        count = int(count * min(max(1.2 * seconds / max(took, 1e-3), 2), 100))
        start = time.monotonic()
        sum(range(count))
        took = time.monotonic() - start


def get_into(how: str, timeout: float, run: ed.Executable, arrays: dict[str, Any]) -> None:
    """Get into trouble."""
    match how:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop" | "stop0":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "delay":
            time.sleep(1000)
        case "end":
            sys.exit(0)
        case "hold":
            hold_for(1.5 * timeout + 1)
            sys.stdout.write("went on\n")
        case "fail":
            run(arrays, on_event=fail)
        case "diverge":
            run(arrays)["Z"]


def main() -> None:
    how, timeout, begin = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    transport = connect()
    text = TEXT
    if how == "graph" and transport.rank == 1:
        text = text.replace("sum H", "max H")
    labels = ["j"] if how == "plan" and transport.rank == 1 else ["i"]
    plan = ed.plan(ed.parse(text), transport.size, strategy=labels)
    arrays = {name: np.ones((64, 64), "float32") for name in ("X", "W")}
    try:
        ed.run(plan, arrays, engine="spmd", timeout=120)  # compiles kernels, which may take long
        run = ed.compile(plan, engine="spmd", timeout=timeout)
    except ed.InputError as error:
        sys.stdout.write(f"refused: {error}\n")
        sys.exit(3)
    for turn in range(1 << 30):
        if how == "hold" and turn > begin:
            return
        if transport.rank == (0 if how == "stop0" else transport.size - 1) and turn == begin:
            get_into(how, timeout, run, arrays)
        run(arrays)


if __name__ == "__main__":
    main()
