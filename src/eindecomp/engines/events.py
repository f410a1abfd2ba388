"""What an engine reports while it runs; bars, traces and counters are made of these."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunStarted:
    """So many tasks are about to run."""

    tasks: int


@dataclass(frozen=True, slots=True)
class KernelCompiled:
    """A kernel was compiled, or loaded from disk, before its first use."""

    what: str
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """A task of a vertex ran on a device, from and until some seconds after the run started."""

    vertex: str
    kind: str
    device: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class BytesMoved:
    """So many bytes reached devices for a vertex."""

    vertex: str
    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class TensorFreed:
    """A tensor was dropped after its last use."""

    tensor: str
    count: int


Event = RunStarted | KernelCompiled | TaskFinished | BytesMoved | TensorFreed
