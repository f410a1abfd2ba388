"""Writes a run as a trace for Perfetto or Chrome.

Each device appears as a process, with a row for each worker that ran its tasks: any worker may run
them, so tasks of one device can overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from eindecomp.engines.result import BytesMoved, Event, KernelCompiled, TaskFinished
from eindecomp.engines.whole_files import check_writable, write_whole

_MICRO = 1e6


@dataclass(frozen=True, slots=True)
class _Trace:
    """The rows of a trace so far, and which workers ran tasks of which device."""

    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    workers: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])

    def collect(self, event: Event) -> None:
        """Add what an event says."""
        match event:
            case TaskFinished(vertex, kind, device, worker, start, end):
                self.workers.add((device, worker))
                self._slice(vertex, kind, device, worker, start, end)
            case KernelCompiled(what, device, worker, start, end):
                self._slice(what, "compile", device, worker, start, end)
            case BytesMoved(vertex, kind, count, time):
                arguments = {"vertex": vertex, "kind": kind, "bytes": count}
                self.rows.append({"name": "moved", "ph": "i", "pid": 0, "tid": 0, "s": "g",
                                  "ts": time * _MICRO, "args": arguments})  # fmt: skip
            case _:
                pass

    def _slice(
        self, name: str, kind: str, device: int, worker: int, start: float, end: float
    ) -> None:
        self.rows.append({"name": name, "cat": kind, "ph": "X", "pid": device, "tid": worker,
                          "ts": start * _MICRO, "dur": (end - start) * _MICRO})  # fmt: skip

    def to_json(self) -> bytes:
        """The trace file, with names for devices and workers."""
        devices = sorted({device for device, _ in self.workers})
        names = [
            *({"name": "process_name", "ph": "M", "pid": device,
               "args": {"name": f"device {device}"}} for device in devices),
            *({"name": "thread_name", "ph": "M", "pid": device, "tid": worker,
               "args": {"name": f"worker {worker}"}} for device, worker in sorted(self.workers)),
        ]  # fmt: skip
        return orjson.dumps({"traceEvents": [*names, *self.rows]})


@contextmanager
def tracing(path: str | Path) -> Generator[Callable[[Event], None]]:
    """Collect events, and write them when the run has ended, whether or not it succeeded."""
    output = Path(path)
    check_writable(output)
    trace = _Trace()
    try:
        yield trace.collect
    except BaseException:
        if trace.rows:
            with suppress(OSError):  # the user must see the error that ended the run
                _write(output, trace)
        raise
    _write(output, trace)


def _write(output: Path, trace: _Trace) -> None:
    try:
        write_whole(output, trace.to_json())
    except OSError as error:
        reason = f"the trace was not written: {error.strerror}"
        raise OSError(error.errno, reason, str(output)) from None
