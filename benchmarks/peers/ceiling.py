"""A program of somebody else's that prints what it reaches on this card, run on its own."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, field, replace
from threading import Timer
from time import perf_counter
from typing import TYPE_CHECKING

from eindecomp.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

_PATIENCE = 280.0  # seconds; what was printed until then counts
_STREAM = re.compile(r"stream (\d+) (\d+) slots 2 compiled ([\d.]+) ms")
_RESIDENT = re.compile(r"resident (\d+) (\d+) compiled ([\d.]+) ms")


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Seconds that it took to read so many sequences of so many tokens."""

    program: str
    failure: str | None = None
    """Why it did not print all that it would have."""
    resident: dict[str, float] = field(default_factory=dict[str, float])
    streamed: dict[str, float] = field(default_factory=dict[str, float])

    def take(self, line: str) -> None:
        """Note what a line says.

        >>> ceiling = Ceiling("by_hand.py")
        >>> ceiling.take("stream 16 1024 slots 2 compiled 351 ms peak 2.2 GB")
        >>> ceiling.take("resident 1 4096 compiled 94 ms peak 14.0 eager 105 ms 14.2")
        >>> ceiling.streamed, ceiling.resident
        ({'16x1024': 0.351}, {'1x4096': 0.094})
        """
        for pattern, found in ((_STREAM, self.streamed), (_RESIDENT, self.resident)):
            if (match := pattern.search(line)) is not None:
                batch, tokens, milliseconds = match.groups()
                found[f"{batch}x{tokens}"] = float(milliseconds) / 1e3


def check_program(program: Path) -> None:
    """Refuse a program that is not there."""
    if not program.is_file():
        raise InputError(f"--ceiling: there is no program {program}")


def run_ceiling(program: Path) -> Ceiling:
    """Run a program and read the lines that it prints; it is stopped if it takes too long."""
    found = Ceiling(program.name)
    lines: list[str] = []
    start = perf_counter()
    command = [sys.executable, "-u", str(program)]
    with subprocess.Popen(  # noqa: S603 - the user named it
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        clock = Timer(_PATIENCE, process.kill)
        clock.start()
        for line in process.stdout or ():
            lines.append(line)
            found.take(line)
        status = process.wait()
        clock.cancel()
    if status == 0 and (found.resident or found.streamed):
        return found
    said = " / ".join(line.strip() for line in lines[-3:]) or "nothing"
    if status == 0:
        ended = "it printed no time of a prompt"
    elif perf_counter() - start >= _PATIENCE:
        ended = f"it was stopped after {_PATIENCE:.0f} s"
    else:
        ended = f"it ended with status {status}"
    return replace(found, failure=f"{ended}; it said: {said}")
