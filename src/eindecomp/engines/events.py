"""What an engine reports while it runs; bars, traces and counters are made of these.

Times are seconds after the run started. Workers are numbered within a run.
"""

from __future__ import annotations

from dataclasses import dataclass

PROGRAM = "program"
"""In place of a vertex: what an engine runs as a whole, whose vertices have no times."""


@dataclass(frozen=True, slots=True)
class RunStarted:
    """So many tasks are about to run."""

    tasks: int


@dataclass(frozen=True, slots=True)
class KernelCompiled:
    """A kernel was compiled within a task; one that was loaded from disk is not told of."""

    what: str
    device: int
    worker: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """A worker begins with a device's task."""

    vertex: str
    kind: str
    device: int
    worker: int
    start: float


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """A worker has done a device's task."""

    vertex: str
    kind: str
    device: int
    worker: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class BytesMoved:
    """So many bytes reached devices for a vertex; `kind` is that of the step that moves them."""

    vertex: str
    kind: str
    count: int
    time: float


@dataclass(frozen=True, slots=True)
class TensorFreed:
    """A tensor, or a part of its sum, was dropped after its last use."""

    tensor: str
    count: int


Event = RunStarted | KernelCompiled | TaskStarted | TaskFinished | BytesMoved | TensorFreed
