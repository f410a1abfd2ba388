"""Writes what a run did as a trace for Perfetto or Chrome: one row for each device."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from eindecomp.engines.events import (
    BytesMoved,
    Event,
    KernelCompiled,
    TaskFinished,
    TensorFreed,
)
from eindecomp.planner.store.whole_file import check_writable, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_MICRO = 1e6


@contextmanager
def tracing(path: str | Path) -> Generator[Callable[[Event], None]]:
    """Collect events; write them when the run has ended, however it did."""
    output = Path(path)
    check_writable(output)
    rows: list[dict[str, Any]] = []
    devices: set[int] = set()

    def collect(event: Event) -> None:
        match event:
            case TaskFinished(vertex, kind, device, start, end):
                devices.add(device)
                rows.append(
                    {
                        "name": vertex, "cat": kind, "ph": "X", "pid": 0, "tid": device,
                        "ts": start * _MICRO, "dur": (end - start) * _MICRO,
                    }
                )  # fmt: skip
            case KernelCompiled(what, seconds):
                arguments = {"kernel": what, "seconds": seconds}
                rows.append({"name": "compiled", "ph": "i", "pid": 0, "s": "g", "ts": 0,
                             "args": arguments})  # fmt: skip
            case BytesMoved(vertex, kind, count):
                arguments = {"vertex": vertex, "kind": kind, "bytes": count}
                rows.append({"name": "moved", "ph": "i", "pid": 0, "s": "g", "ts": 0,
                             "args": arguments})  # fmt: skip
            case TensorFreed() | _:
                pass

    def write() -> None:
        names = [
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": device,
             "args": {"name": f"device {device}"}}
            for device in sorted(devices)
        ]  # fmt: skip
        write_whole(output, orjson.dumps({"traceEvents": [*names, *rows]}))

    try:
        yield collect
    except BaseException:
        with suppress(OSError):  # what ended the run is what the user must hear
            write()
        raise
    write()
