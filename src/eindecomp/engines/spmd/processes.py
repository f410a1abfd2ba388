"""How a process of this machine is, as far as Linux tells."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

RUNS, SLEEPS, STOPPED, GONE = "runs", "sleeps", "was stopped", "is gone"
_STATES = {"R": RUNS, "T": STOPPED, "t": STOPPED, "Z": GONE, "X": GONE}


def look_at(process: int) -> str:
    """What its first thread does: it runs or waits for a processor, sleeps, was stopped, is gone.

    >>> look_at(os.getpid())
    'runs'
    """
    with suppress(OSError, IndexError):
        status = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        return _STATES.get(status, SLEEPS)
    with suppress(PermissionError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return GONE
    return SLEEPS
