"""Issues actions: turns windows into the transfers and runs of a schedule, in order, with waits.

An action that reads memory waits for the one that has written it; an action that writes waits for
all that have touched it since. Of these only those are kept that do not follow from the others and
from the order of the streams.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby

from eindecomp.tra.paging.place import START, Placement
from eindecomp.tra.paging.schedule import (
    STREAMS,
    Access,
    Action,
    Execute,
    Fetch,
    Keep,
    Stage,
    Store,
    accesses,
)
from eindecomp.tra.paging.workload import Begins, Paged, Staging, Workload


def issue(workload: Workload, placement: Placement, staging: Staging) -> tuple[Action, ...]:
    """All actions of a run, each as early in the list as what it waits for allows."""
    memories, order = defaultdict[str, _Memory](_Memory), _Order()
    done: list[Action] = []
    for number, action in enumerate(_in_order(workload, placement, staging)):
        needed: set[int] = set()
        for access in accesses(workload, action):
            if access.nbytes:
                needed |= memories[access.memory].touch(number, action.stream, access)
        done.append(replace(action, waits=order.add(number, action, needed)))
    return tuple(done)


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
            task, at = workload.tasks[number], placement.offsets[number]
            reads, writes = (tuple(at[t] for t in used) for used in (task.reads, task.writes))
            yield Execute(number, reads, writes)
        for renews, tensor in placement.renewals.get(number, {}).items():
            if nbytes := workload.tensors[tensor].nbytes:
                offset, into = placement.offsets[number][tensor], placement.resident[renews]
                yield Keep(tensor, offset, nbytes, renews, into)
        for tensor in stores.get(number, ()):
            if nbytes := workload.tensors[tensor].nbytes:
                yield Store(tensor, placement.stores[tensor], nbytes)
        for arrival in arrivals.get(number, ()):
            yield from ring.fetch(workload.tensors[arrival.tensor], arrival.offset)


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


@dataclass(slots=True)
class _Cell:
    """Memory that has been touched as a whole: by whom it was written, and read since."""

    writer: int = NONE
    readers: dict[str, int] = field(default_factory=dict[str, int])
    """By stream the last of its actions; those before it have ended by then."""


class _Memory:
    """The cells of one memory."""

    def __init__(self) -> None:
        self.starts, self.cells = [0], [_Cell()]

    def touch(self, number: int, stream: str, access: Access) -> set[int]:
        """Let an action read or write some bytes: the actions that it must come after."""
        low, high = self._cut(access.begin), self._cut(access.end)
        cells = self.cells[low:high]
        needed = {cell.writer for cell in cells}
        if access.writes:
            needed.update(reader for cell in cells for reader in cell.readers.values())
            self.cells[low:high] = [_Cell(number)]
            self.starts[low:high] = [access.begin]
        else:
            for cell in cells:
                cell.readers[stream] = number
        return needed - {NONE}

    def _cut(self, at: int) -> int:
        """Make a cell begin at an offset, and give its place."""
        place = bisect_left(self.starts, at)
        if place == len(self.starts) or self.starts[place] != at:
            cell = self.cells[place - 1]
            self.starts.insert(place, at)
            self.cells.insert(place, _Cell(cell.writer, dict(cell.readers)))
        return place


class _Order:
    """What has ended, by stream, when an action has: a vector clock for each."""

    def __init__(self) -> None:
        self.stream_of: list[int] = []
        self.ended: list[list[int]] = []
        self.latest: list[list[int]] = [[NONE] * len(STREAMS) for _ in STREAMS]
        """What has ended with the last action of every stream."""

    def add(self, number: int, action: Action, needed: Iterable[int]) -> tuple[int, ...]:
        """Put an action at the end of its stream; of those needed, keep what nothing implies."""
        stream = STREAMS.index(action.stream)
        ended = self.latest[stream]
        last = [NONE] * len(STREAMS)
        for other in needed:
            last[self.stream_of[other]] = max(last[self.stream_of[other]], other)
        open_ = {place: other for place, other in enumerate(last) if other > ended[place]}
        waits = [
            other
            for place, other in open_.items()
            if not any(self.ended[each][place] >= other for each in open_.values() if each != other)
        ]
        clocks = [ended, *(self.ended[other] for other in waits)]
        ended = [max(column) for column in zip(*clocks, strict=True)]
        ended[stream] = number
        self.latest[stream] = ended
        self.ended.append(ended)
        self.stream_of.append(stream)
        return tuple(waits)
