"""A run as torch's profiler sees it: a file for Perfetto with real copies beside real kernels."""

from __future__ import annotations

import gzip
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import orjson
from peers.race import failure
from torch.profiler import ProfilerActivity, profile

from eindecomp.engines.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from on_gpu.setting import Setting

NAME = "gpu.trace.json.gz"
_COPY, _KERNEL = "gpu_memcpy", "kernel"
Span = tuple[float, float]


def write_trace(setting: Setting, run: Callable[[], object], what: str) -> tuple[str, ...]:
    """Write a trace of a run; a sentence on what it shows, or on why there is none."""
    try:
        return (_traced(setting, run, what),)
    except Exception as error:  # what was measured before is worth more
        return (f"There is no trace of {what}: {failure(error)}",)


def _traced(setting: Setting, run: Callable[[], object], what: str) -> str:
    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * setting.on_gpu
    with profile(activities=kinds) as profiled:
        run()
    path = setting.folder / NAME
    with TemporaryDirectory() as folder:
        written = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(written))
        content = written.read_bytes()
    write_whole(path, gzip.compress(content))
    events: list[dict[str, Any]] = orjson.loads(content)["traceEvents"]
    copies, kernels = (_spans(events, category) for category in (_COPY, _KERNEL))
    told = f"{path.name} is a trace of one run of ours, {what}, for ui.perfetto.dev"
    if not copies or not kernels:
        return f"{told}: the profiler saw no copies and kernels of a GPU."
    both = length(copies) + length(kernels) - length(merged([*copies, *kernels]))
    return (
        f"{told}: copies take {length(copies) / 1e3:.1f} ms, kernels {length(kernels) / 1e3:.1f} "
        f"ms, and for {both / 1e3:.1f} ms of these both are at work."
    )


def _spans(events: Iterable[dict[str, Any]], category: str) -> list[Span]:
    """From when to when anything of a category is at work, in microseconds."""
    return merged(
        (event["ts"], event["ts"] + event.get("dur", 0))
        for event in events
        if event.get("cat") == category
    )


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same times, none of them twice.

    >>> merged([(5, 7), (0, 2), (1, 3)])
    [(0, 3), (5, 7)]
    """
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def length(spans: Iterable[Span]) -> float:
    """How long spans are in all, if none overlap."""
    return sum(end - begin for begin, end in spans)
