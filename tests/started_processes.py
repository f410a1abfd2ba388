"""The processes that a test started, also those whose parents are gone."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import sleep

import psutil

MARK = "EINDECOMP_STARTED_BY"  # a variable that processes hand to those that they start


def mark_started(test: str) -> None:
    """Let every process that is started from now on carry the name of a test."""
    os.environ[MARK] = _name(test)


def end_started(test: str) -> None:
    """Kill the processes that a test started, and wait until they are gone."""
    mark = f"{MARK}={_name(test)}".encode()
    left = [int(each.name) for each in Path("/proc").glob("[0-9]*") if _has(each, mark)]
    if any("raylet" in psutil.Process(each).name() for each in left):
        sys.modules["ray"].shutdown()  # or this process believes that its cluster is there
    for each in left:
        with suppress(psutil.NoSuchProcess):
            psutil.Process(each).kill()
    for each in gc.get_objects():
        # By its type, as objects of others warn when they are asked for their class.
        if type(each) is subprocess.Popen and each.pid in left:
            each.communicate()  # it closes its pipes, and does not complain when it is collected
    for each in left:
        with suppress(psutil.NoSuchProcess):
            psutil.Process(each).wait(10)


def _name(test: str) -> str:
    return f"{os.getpid()} {test}"


def _has(process: Path, mark: bytes) -> bool:
    try:
        variables = (process / "environ").read_bytes()
        while not variables and _is_starting(int(process.name)):
            sleep(0.001)
            variables = (process / "environ").read_bytes()
    except (OSError, psutil.NoSuchProcess):
        return False
    return mark in variables.split(b"\0")


def _is_starting(process: int) -> bool:
    """Whether a child of ours has no variables yet, as for a moment after it was started."""
    child = psutil.Process(process)
    return child.ppid() == os.getpid() and child.status() != psutil.STATUS_ZOMBIE
