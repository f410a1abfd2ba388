"""One piece of work as plain data: which blocks of which arrays it reads and writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eindecomp.engines.threads.memory import Key, Where
    from eindecomp.layout.boxes import Box

    Block = tuple[Key, Where]
    """A tile of an array."""

Loads = tuple[tuple[str, int], ...]
"""Inputs of a graph, and how many bytes of each are read."""


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One piece of work: what it computes of what, and what must have been done before."""

    kind: str
    """`compute`, `fill` or `reduce-scatter`."""
    vertex: str
    box: Box
    devices: tuple[int, ...]
    """Those whose tile it is; several where tiles are computed as one."""
    reads: tuple[Block | None, ...]
    """The operands in order, None for one that is not read; for a reduction the partial results."""
    writes: tuple[Block, ...]
    """The result; or, for a partial result, each number of its state."""
    after: tuple[int, ...]
    uses: tuple[Key, ...]
    """What it reads and what it writes: some write tiles that nobody reads, after the last read."""
    adds: bool = False
    """Whether the result is added to what is there."""
    is_partial: bool = False
    """For a tile, whether it is a partial result; for a reduction, whether its first is elsewhere
    than where the sum goes."""
    loads: Loads = ()
    """The inputs of the graph that it reads, and how many bytes of each."""
