"""Issues actions: turns windows into the transfers and runs of a schedule, in order, with waits.

An action that reads memory waits for the one that has written it; an action that writes waits for
all that have touched it since. Of these only those are kept that do not follow from the others and
from the order of the streams.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING

from eindecomp.tra.paging.arena import START
from eindecomp.tra.paging.schedule import STREAMS, Execute, Fetch, Keep, Stage, Store
from eindecomp.tra.paging.workload import Begins

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eindecomp.tra.paging.place import Placement
    from eindecomp.tra.paging.schedule import Action
    from eindecomp.tra.paging.workload import Paged, Staging, Workload


def issue(
    workload: Workload, placement: Placement, arena: int, staging: Staging
) -> tuple[Action, ...]:
    """All actions of a run, each as early in the list as what it waits for allows."""
    return with_waits(workload, arena, _in_order(workload, placement, staging))


def _in_order(workload: Workload, placement: Placement, staging: Staging) -> Iterator[Action]:
    """After every task what is kept, what it has made and must leave, what its end makes room for.

    What has no bytes stays where it is.
    """
    arrivals = {
        after: list(group) for after, group in groupby(placement.arrivals, lambda a: a.after)
    }
    stores: dict[int, list[int]] = {}
    for tensor in placement.stores:
        stores.setdefault(workload.uses[tensor][0], []).append(tensor)
    ring = _Ring(staging)
    for number in range(START, len(workload.tasks)):
        if number > START:
            yield _run(workload, placement, number)
        for renews, tensor in placement.renewals.get(number, {}).items():
            if nbytes := workload.tensors[tensor].nbytes:
                offset, into = placement.offsets[number][tensor], placement.resident[renews]
                yield Keep(tensor, offset, nbytes, renews, into)
        for tensor in stores.get(number, ()):
            if nbytes := workload.tensors[tensor].nbytes:
                yield Store(tensor, placement.stores[tensor], nbytes)
        for arrival in arrivals.get(number, ()):
            yield from ring.fetch(workload.tensors[arrival.tensor], arrival.offset)


def _run(workload: Workload, placement: Placement, number: int) -> Execute:
    task, at = workload.tasks[number], placement.offsets[number]
    reads, writes = (tuple(at[tensor] for tensor in used) for used in (task.reads, task.writes))
    return Execute(number, reads, writes)


class _Ring:
    """The staging blocks, which are filled in turn."""

    def __init__(self, staging: Staging) -> None:
        self.staging = staging
        self.filled = 0

    def fetch(self, tensor: Paged, offset: int) -> Iterator[Action]:
        """A tensor's way to its window: from the host as a whole, from disk block by block."""
        if tensor.begins is not Begins.DISK:
            if tensor.nbytes:
                yield Fetch(tensor.number, offset, 0, tensor.nbytes)
            return
        for start in range(0, tensor.nbytes, self.staging.block):
            nbytes = min(self.staging.block, tensor.nbytes - start)
            block = self.filled % self.staging.blocks
            self.filled += 1
            yield Stage(tensor.number, start, nbytes, block)
            yield Fetch(tensor.number, offset, start, nbytes, block)


NONE = -1
"""The number of an action that stands for none."""


def with_waits(workload: Workload, arena: int, actions: Iterable[Action]) -> tuple[Action, ...]:
    """The same actions, in the same order, each with the waits it needs and no other."""
    memory, order = _Memory(workload, arena), _Order()
    done: list[Action] = []
    for number, action in enumerate(actions):
        needed = memory.touch(number, action)
        done.append(replace(action, waits=order.add(number, action, needed)))
    return tuple(done)


@dataclass(slots=True)
class _Cell:
    """Memory that has been touched as a whole: by whom it was written, and read since."""

    writer: int = NONE
    readers: dict[str, int] = field(default_factory=dict[str, int])
    """By stream the last of its actions; those before it have ended by then."""

    def touched(self) -> set[int]:
        """All that must have ended before it is written again."""
        return {self.writer, *self.readers.values()} - {NONE}


class _Memory:
    """The arena, the staging blocks and the host's copies of made tensors."""

    def __init__(self, workload: Workload, arena: int) -> None:
        self.workload = workload
        self.starts = [0, arena]
        self.cells = [_Cell()]
        """What lies between two neighbouring starts."""
        self.blocks: dict[int, _Cell] = {}
        self.copies: dict[int, _Cell] = {}

    def touch(self, number: int, action: Action) -> set[int]:
        """Carry out an action, and give the actions that it must come after."""
        match action:
            case Stage(block=block):
                before, self.blocks[block] = self.blocks.get(block, _Cell()), _Cell(number)
                return before.touched()
            case Fetch():
                needed = self._write(number, action.offset + action.start, action.nbytes)
                source = self.copies.get(action.tensor, _Cell())
                if action.block is not None:
                    source = self.blocks[action.block]
                source.readers[action.stream] = number
                return needed | ({source.writer} - {NONE})
            case Store():
                self.copies[action.tensor] = _Cell(number)
                return self._read(number, action.stream, action.offset, action.nbytes)
            case Keep(offset=offset, nbytes=nbytes):
                needed = self._read(number, action.stream, offset, nbytes)
                return needed | self._write(number, action.into, nbytes)
            case Execute():
                return self._run(number, action)

    def _run(self, number: int, action: Execute) -> set[int]:
        task = self.workload.tasks[action.task]
        needed: set[int] = set()
        for tensor, offset in zip(task.reads, action.reads, strict=True):
            nbytes = self.workload.tensors[tensor].nbytes
            needed |= self._read(number, action.stream, offset, nbytes)
        for tensor, offset in zip(task.writes, action.writes, strict=True):
            needed |= self._write(number, offset, self.workload.tensors[tensor].nbytes)
        return needed

    def _read(self, number: int, stream: str, offset: int, nbytes: int) -> set[int]:
        low, high = self._cut(offset), self._cut(offset + nbytes)
        cells = self.cells[low:high]
        for cell in cells:
            cell.readers[stream] = number
        return {cell.writer for cell in cells} - {NONE}

    def _write(self, number: int, offset: int, nbytes: int) -> set[int]:
        if not nbytes:
            return set()
        low, high = self._cut(offset), self._cut(offset + nbytes)
        needed = {each for cell in self.cells[low:high] for each in cell.touched()}
        self.cells[low:high] = [_Cell(number)]
        self.starts[low:high] = [offset]
        return needed

    def _cut(self, at: int) -> int:
        """Make a cell begin at an offset, and give its place."""
        place = bisect_left(self.starts, at)
        if self.starts[place] != at:
            cell = self.cells[place - 1]
            self.starts.insert(place, at)
            self.cells.insert(place, _Cell(cell.writer, dict(cell.readers)))
        return place


class _Order:
    """What has ended, by stream, when an action has: a vector clock for each."""

    def __init__(self) -> None:
        self.streams = {stream: place for place, stream in enumerate(STREAMS)}
        self.stream_of: list[int] = []
        self.ended: list[list[int]] = []
        self.latest: list[list[int]] = [[NONE] * len(STREAMS) for _ in STREAMS]
        """What has ended with the last action of every stream."""

    def add(self, number: int, action: Action, needed: Iterable[int]) -> tuple[int, ...]:
        """Put an action at the end of its stream; of those needed, keep what nothing implies."""
        stream = self.streams[action.stream]
        ended = self.latest[stream]
        last = [NONE] * len(STREAMS)
        for other in needed:
            last[self.stream_of[other]] = max(last[self.stream_of[other]], other)
        open_ = [other for place, other in enumerate(last) if other > ended[place]]
        waits = [other for other in open_ if not self._implied(other, open_)]
        clocks = [ended, *(self.ended[other] for other in waits)]
        ended = [max(column) for column in zip(*clocks, strict=True)]
        ended[stream] = number
        self.latest[stream] = ended
        self.ended.append(ended)
        self.stream_of.append(stream)
        return tuple(waits)

    def _implied(self, other: int, waits: Iterable[int]) -> bool:
        stream = self.stream_of[other]
        return any(self.ended[each][stream] >= other for each in waits if each != other)
