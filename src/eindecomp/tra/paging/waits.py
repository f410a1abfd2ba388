"""Waits: what actions must wait for, found from the memory that they touch.

An action that reads memory waits for the one that has written it; an action that writes waits for
all that have touched it since. Of these only those are kept that do not follow from the others and
from the order of the streams.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eindecomp.tra.paging.schedule import STREAMS, Fetch, Keep, Read, Run, Store

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eindecomp.tra.paging.schedule import Action
    from eindecomp.tra.paging.workload import Workload

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
            case Read(block=block):
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
            case Run():
                return self._run(number, action)

    def _run(self, number: int, action: Run) -> set[int]:
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
