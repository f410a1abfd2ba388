"""What a run takes of this machine: memory, which must be there before it runs, and time.

What can be had is what the machine has free, within the limits of control groups. Fresh memory
costs about as much as filling it, since the system clears it page by page; so whoever runs one plan
again and again, as training does, keeps what a run drops for the next (`Spare`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from eindecomp.errors import InputError
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill, Gather
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.work import is_product, operations
from eindecomp.lang.dtypes import Array, DType, Kind, kind
from eindecomp.planner.costs.byte_sizes import show_bytes
from eindecomp.tra.program.memory import Peak, peak_of, results_on
from eindecomp.tra.program.program import Program
from eindecomp.tra.program.steps import Compute

LARGE = 1 << 20
"""Bytes from which an array is worth keeping."""
_PRODUCTS, _LOOPS, _BYTES = 5e10, 2e9, 2e10  # operations and bytes a second of any core, about
_ROOT = Path("/")
_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = ("memory.max", "memory.current", "inactive_file")
_LITTLE = 1 << 24  # bytes that there always are: to look would take longer than to run


def check_space(
    graph: Graph, space: Peak, loads: int = 0, spare: Callable[[], int] = lambda: 0
) -> None:
    """Raise if the machine has not got the memory that a run needs beside what it is given.

    `loads` are bytes of tiles that are read; `spare` counts those that are held already for the
    run.
    """
    needed = space.bytes + loads
    if needed < _LITTLE:
        return
    free = available()
    if free is not None and needed > free and needed > free + spare():
        raise InputError(
            f"running needs {show_bytes(needed)} for tiles that it loads, intermediate "
            f"tensors and results when it comes to {graph[space.vertex]}; "
            f"{show_bytes(free)} are available"
        )


def is_little(program: Program) -> bool:
    """Whether all devices together could hold all tensors several times over, unseen."""
    total = sum(v.elements * v.dtype.itemsize for v in program.graph.vertices.values())
    return total * program.devices < _LITTLE


def needed_space(program: Program, devices: Sequence[int]) -> Peak:
    """The most bytes that devices of one memory hold at once beside the inputs."""
    return Peak(0, "") if is_little(program) else peak_of(results_on(program, devices))


def largest_tile(program: Program) -> Peak:
    """The most bytes that one task makes of a vertex on one device."""
    if is_little(program):
        return Peak(0, "")
    computing = (step for step in program.steps if isinstance(step, Compute))
    pairs = ((step, device) for step in computing for device in range(program.devices))
    tiles = (Peak(program.buffers[s.into].nbytes(program.mesh, d), s.vertex) for s, d in pairs)
    return max(tiles, key=lambda each: each.bytes, default=Peak(0, ""))


def _bytes_everywhere(program: Program, number: int) -> int:
    buffer = program.buffers[number]
    return sum(buffer.nbytes(program.mesh, device) for device in range(program.devices))


def output_space(program: Program) -> Peak:
    """The bytes of all outputs together, and the largest of them."""
    sizes = {name: _bytes_everywhere(program, k) for name, k in program.outputs.items()}
    largest = max(sizes, key=sizes.__getitem__, default="")
    return Peak(sum(sizes.values()), largest)


def bytes_of(program: Program, names: Collection[str]) -> int:
    """The bytes that tensors of a program take on all devices together, in one layout each."""
    return sum(_bytes_everywhere(program, program.inputs[name][0].number) for name in names)


# What can be had


def available(root: Path = _ROOT) -> int | None:
    """The bytes that can be allocated without swapping; None where the system does not say."""
    limits = [_free(root), *(_left(*group) for group in _groups(root))]
    return min((free for free in limits if free is not None), default=None)


def _free(root: Path) -> int | None:
    with suppress(OSError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _groups(root: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """The groups that this process is in, by their folders, and the names of their files.

    Groups lie within others, whose limits hold too; in a container some of them cannot be seen.
    """
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            inner = Path(path.lstrip("/"))
            for group in (inner, *inner.parents):
                if not controllers:
                    yield root / "sys/fs/cgroup" / group, _VERSION_2
                elif controllers == "memory":
                    yield root / "sys/fs/cgroup/memory" / group, _VERSION_1


def _left(group: Path, names: tuple[str, str, str]) -> int | None:
    limit, usage, cached = names
    # A group that has no limit says `max`, or has no such file.
    with suppress(OSError, ValueError):
        left = int((group / limit).read_text()) - int((group / usage).read_text())
        for line in (group / "memory.stat").read_text().splitlines():
            if line.startswith(f"{cached} "):
                left += int(line.split()[1])  # of files, and dropped when memory is needed
        return max(left, 0)
    return None


# Memory that is used again


class Spare:
    """Large arrays that nobody reads any more, by shape and type; safe to use from several threads.

    >>> spare, array = Spare(), np.ones((1024, 512), np.float32)
    >>> spare.give(array)
    >>> spare.make(array.shape, array.dtype) is array
    True
    """

    def __init__(self) -> None:
        self._arrays: dict[tuple[tuple[int, ...], DType], list[Array]] = {}

    def give(self, array: Array) -> None:
        """Keep an array that nobody reads any more, if nobody else has its memory."""
        if array.nbytes >= LARGE and array.base is None and array.flags.c_contiguous:
            self._arrays.setdefault((array.shape, array.dtype), []).append(array)

    def make(self, shape: tuple[int, ...], dtype: DType) -> Array:
        """An array with anything in it."""
        if not self._arrays:
            return np.empty(shape, dtype)
        try:
            return self._arrays[shape, dtype].pop()
        except (KeyError, IndexError):
            return np.empty(shape, dtype)

    @property
    def nbytes(self) -> int:
        """How much is kept."""
        return sum(array.nbytes for kept in self._arrays.values() for array in kept)


# Time


def seconds_of(graph: Graph, vertex: Vertex) -> float:
    """About how long one core takes to compute a vertex."""
    reading = vertex.elements * vertex.dtype.itemsize
    # Of what rows are looked up in, as many are read as written.
    for name in vertex.inputs[isinstance(vertex.op, Gather) :]:
        source = graph[name]
        reading += source.elements * source.dtype.itemsize
    work = operations(graph, vertex)
    # A loop is slower than memory from a few operations for each byte on; a product later.
    if isinstance(vertex.op, Fill) or work / _LOOPS < reading / _BYTES:
        return reading / _BYTES
    by_blas = is_product(vertex.op) and kind(vertex.dtype) >= Kind.FLOAT
    return max(reading / _BYTES, work / (_PRODUCTS if by_blas else _LOOPS))
