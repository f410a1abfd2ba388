"""One piece of a program's work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eindecomp.engines.threads.memory import Key, Memory
    from eindecomp.tra.boxes import Box

Loads = tuple[tuple[str, int], ...]
"""Inputs of a graph, and how many bytes of each are read."""


@dataclass(frozen=True, slots=True)
class Call:
    """One piece of work: what to run, what must have run before, and which arrays it uses."""

    run: Callable[[Memory], None]
    after: tuple[int, ...]
    uses: tuple[Key, ...]
    """What it reads and what it writes: some write tiles that nobody reads, after the last read."""
    vertex: str
    kind: str
    devices: tuple[int, ...]
    """Those whose tile it is; several where tiles are computed as one."""
    box: Box
    loads: Loads = ()
    """The inputs of the graph that it reads, and how many bytes of each."""
