"""The ranks of a job that a launcher has started: of those that fail alike, the first says why."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from threading import current_thread, main_thread
from time import sleep

PATIENCE = 2.0
"""Seconds after which a launcher has ended the ranks of a job in which one has failed."""
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")


def launched_rank() -> int | None:
    """Which rank a launcher has made this process, as its environment tells; None without one."""
    torch = ("RANK",) if "WORLD_SIZE" in os.environ else ()
    given = next((os.environ[name] for name in (*torch, *_RANKS) if name in os.environ), "")
    return int(given) if given.isdecimal() else None


def let_first_speak() -> None:
    """Wait before an error is told, unless this is the first rank: it may be telling the same.

    Where it does, the launcher ends this process meanwhile; an error of this rank alone is told.
    """
    if not launched_rank():
        return
    if current_thread() is main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # without a word on where this rank was
    sleep(PATIENCE)


def leave_job(status: int) -> None:
    """End a rank that has failed at once: on a usual way out MPI waits for all other ranks."""
    if launched_rank() is None:
        return
    with suppress(OSError):  # as of a full disk, which was told already
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)
