"""A rank is killed, stopped or delayed, again and again."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from pathlib import Path
from time import monotonic

import numpy as np
from on_ranks.jobs import ENVIRONMENT, launch


def trouble(transport: str, count: int) -> None:
    """A rank gets into trouble at a random moment: how long until the job has ended."""
    rng = np.random.default_rng(0)
    script = Path(__file__).parents[2] / "tests" / "engines" / "spmd" / "ranks" / "trouble.py"
    for how in ("kill", "stop", "delay"):
        took: list[float] = []
        right = 0
        for _ in range(count):
            begin = int(rng.integers(1, 4000))
            command = [*launch(transport, 2), str(script), how, "20", str(begin)]
            with tempfile.TemporaryFile("w+") as heard:
                start = monotonic()
                process = subprocess.Popen(  # noqa: S603
                    command, stdout=heard, stderr=heard, env=ENVIRONMENT, start_new_session=True
                )
                try:
                    status = process.wait(90)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    status = 0
                took.append(monotonic() - start)
                heard.seek(0)
                right += bool(status) and "Z[k]" in heard.read()
        print(f"{how}: {right} of {count} ended with a clear error, at most {max(took):.0f} s "
              "after the job was started", flush=True)  # fmt: skip
