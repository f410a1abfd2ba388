"""Refuses what cannot fit in memory before anything runs."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from eindecomp.errors import InputError
from eindecomp.planner.memory import show_bytes

if TYPE_CHECKING:
    from eindecomp.engines.threads.memory import Key
    from eindecomp.engines.threads.program import Program


def needed_space(program: Program) -> tuple[int, str]:
    """The most bytes that calls hold at once beside the inputs, and the vertex where they do."""
    left = dict(program.reads)
    sizes = {key: prod(shape) * dtype.itemsize for key, (shape, dtype) in program.shapes.items()}
    held: set[Key] = set()
    total, most, where = 0, 0, ""
    made: dict[str, list[Key]] = {}
    for key in sizes:
        made.setdefault(key if isinstance(key, str) else key[0], []).append(key)
    for call in program.calls:
        for key in made.get(call.vertex, ()):
            if key not in held:
                held.add(key)
                total += sizes[key]
        if total > most:
            most, where = total, call.vertex
        for key in call.reads:
            if key in left:
                left[key] -= 1
                if left[key] == 0 and key in held:
                    total -= sizes[key]
    return most, where


def check_space(program: Program, spare: int = 0) -> None:
    """Raise if the machine has not got the memory that a run needs beside its inputs.

    `spare` are bytes that are held already, for the run to use.
    """
    needed, where = program.space
    free = available()
    if free is not None and needed > free + spare:
        raise InputError(
            f"running needs {show_bytes(needed)} for intermediate tensors and results when it "
            f"comes to {program.graph[where]}; {show_bytes(free)} are available"
        )


def available() -> int | None:
    """The bytes that can be allocated without swapping; None where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
