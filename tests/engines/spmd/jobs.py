"""Starting real jobs: `mpirun` or `torchrun`, with a script that every rank runs."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from types import MappingProxyType

import pytest

HERE = Path(__file__).parent
TESTS = HERE.parents[1]
MPIRUN = shutil.which("mpirun")
needs_mpi = pytest.mark.skipif(
    MPIRUN is None or find_spec("mpi4py") is None, reason="there is no mpirun, or no mpi4py"
)
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
LAUNCHERS = [
    pytest.param("mpi", marks=needs_mpi),
    pytest.param("torch", marks=needs_torch),
]


def skip_without(launcher: str) -> None:
    """Skip the test if jobs cannot be started so."""
    if launcher == "torch":
        pytest.importorskip("torch")
    elif MPIRUN is None or find_spec("mpi4py") is None:
        pytest.skip("there is no mpirun, or no mpi4py")


@dataclass(frozen=True)
class Job:
    """What a job left: its exit status, what it wrote, and how long it took."""

    status: int
    out: str
    err: str
    seconds: float


def run_job(launcher: str, ranks: int, script: str, *args: object, timeout: float = 150) -> Job:
    """Run a script of the folder `ranks` on so many ranks."""
    command = [*launch(launcher, ranks), str(HERE / "ranks" / script), *map(str, args)]
    return run_command(command, timeout)


def launch(launcher: str, ranks: int) -> list[str]:
    """The command that starts Python on so many ranks."""
    if launcher == "mpi":
        # Other tests run beside it: ranks are bound to no core, and yield theirs while they wait.
        shared = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
        return [str(MPIRUN), *shared, "-n", str(ranks), sys.executable]
    port = ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    return [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), *port,
    ]  # fmt: skip


def run_command(
    command: list[str],
    timeout: float = 150,
    more: Mapping[str, str] = MappingProxyType({}),
    given: str | None = None,
) -> Job:
    """Run a command to its end, on what it is given to read; all of its processes end with it."""
    folders = [TESTS, TESTS / "engines", TESTS / "planner", TESTS / "kernels", HERE]
    env = os.environ | {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMP_NUM_THREADS": "1",
        "NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING": "1",  # which ends with colour codes
        "PYTHONPATH": os.pathsep.join(
            [*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
        **more,
    }
    start = monotonic()
    with subprocess.Popen(  # noqa: S603
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
        start_new_session=True, stdin=None if given is None else subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(given, timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            pytest.fail(f"the job hung:\n{out}\n{err}")
    return Job(process.returncode, out, err, monotonic() - start)


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]
