"""Jobs of several ranks on this machine: starting them, and what ranks time together."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

Record = dict[str, Any]
ENVIRONMENT = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def launch(transport: str, ranks: int) -> list[str]:
    """The command that starts Python on so many ranks."""
    if transport == "mpi":
        mpirun = shutil.which("mpirun") or sys.exit("there is no mpirun")
        return [mpirun, "--oversubscribe", "-n", str(ranks), sys.executable]
    run = [sys.executable, "-m", "torch.distributed.run", "--master-addr", "127.0.0.1"]
    return [*run, "--master-port", "29533", "--nproc-per-node", str(ranks)]


def records(command: list[str]) -> list[Record]:
    """What a command has to say."""
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)  # noqa: S603
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def ranks_of(transport: str) -> tuple[Any, Callable[[], object]]:
    """This rank among others, and what returns when all of them are here."""
    from eindecomp.engines.spmd.job import connect

    found = connect(transport)
    return found, lambda: found.gather_counts(np.zeros(1, np.int64))


def timed(ways: dict[str, Callable[[], object]], ready: Callable[[], object], turns: int) -> Record:
    """Seconds of each way, in turns, after everybody is ready."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(turns + 1):
        for name, way in ways.items():
            ready()
            start = perf_counter()
            way()
            ready()
            if turn:
                found[name].append(perf_counter() - start)
    return found
