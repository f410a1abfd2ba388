"""Issues actions: turns windows into the transfers and runs of a schedule, in order, with waits.

An action that reads memory waits for the one that has written it; an action that writes waits for
all that have touched it since. Of these only those are kept that do not follow from the others and
from the order of the streams.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import cycle, groupby

from eindecomp.tra.paging import schedule
from eindecomp.tra.paging.place import START, Placement
from eindecomp.tra.paging.schedule import Action
from eindecomp.tra.paging.workload import Begins, Paged, Staging, Workload


def issue(workload: Workload, placement: Placement, staging: Staging) -> tuple[Action, ...]:
    """All actions of a run, each as early in the list as what it waits for allows."""
    memories = defaultdict[str, _Memory](_Memory)
    ended: list[int] = []
    """For each action, as the bits of a number, those that have ended when it has."""
    latest: dict[str, int] = dict.fromkeys(schedule.STREAMS, 0)
    """The same for the last action of each stream."""
    actions: list[Action] = []
    for number, action in enumerate(_in_order(workload, placement, staging)):
        needed: set[int] = set()
        for touch in schedule.touches(workload, action):
            if touch.nbytes:
                needed |= memories[touch.memory].touch(number, action.stream, touch)
        before = latest[action.stream]
        waits: list[int] = []
        for other in sorted(needed, reverse=True):  # only later actions imply that one has ended
            if not before >> other & 1:
                waits.append(other)
                before |= ended[other]
        latest[action.stream] = before | 1 << number
        ended.append(latest[action.stream])
        actions.append(replace(action, waits=tuple(waits[::-1])))
    return tuple(actions)


def _in_order(workload: Workload, placement: Placement, staging: Staging) -> Iterator[Action]:
    """The actions of a run: after each task its renewals, its stores, and arrivals that now fit.

    Tensors without bytes stay where they are.
    """
    groups = groupby(placement.arrivals, lambda arrival: arrival.after)
    arrivals = {after: list(group) for after, group in groups}
    stores: dict[int, list[int]] = {}
    for made in placement.stores:
        stores.setdefault(workload.uses[made][0], []).append(made)
    blocks = cycle(range(staging.blocks))
    for number in range(START, len(workload.tasks)):
        if number > START:
            task, at = workload.tasks[number], placement.offsets[number]
            reads, writes = (tuple(at[t] for t in used) for used in (task.reads, task.writes))
            yield schedule.Execute(number, reads, writes)
        for renews, new in placement.renewals.get(number, {}).items():
            if nbytes := workload.tensors[new].nbytes:
                offset, into = placement.offsets[number][new], placement.resident[renews]
                yield schedule.Keep(new, offset, nbytes, renews, into)
        for made in stores.get(number, ()):
            if nbytes := workload.tensors[made].nbytes:
                yield schedule.Store(made, placement.stores[made], nbytes)
        for arrival in arrivals.get(number, ()):
            tensor = workload.tensors[arrival.tensor]
            yield from _fetches(tensor, arrival.offset, staging.block, blocks)


def _fetches(tensor: Paged, offset: int, size: int, blocks: Iterator[int]) -> Iterator[Action]:
    """A tensor's way to its window: from the host as a whole, from disk by blocks in turn."""
    if tensor.begins is not Begins.DISK:
        if tensor.nbytes:
            yield schedule.Fetch(tensor.number, offset, 0, tensor.nbytes)
        return
    for start in range(0, tensor.nbytes, size):
        nbytes, block = min(size, tensor.nbytes - start), next(blocks)
        yield schedule.Prefetch(tensor.number, start, nbytes, block)
        yield schedule.Fetch(tensor.number, offset, start, nbytes, block)


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

    def touch(self, number: int, stream: str, touch: schedule.Touch) -> set[int]:
        """Let an action read or write some bytes: the actions that it must come after."""
        low, high = self._cut(touch.begin), self._cut(touch.end)
        cells = self.cells[low:high]
        needed = {cell.writer for cell in cells}
        if touch.writes:
            needed.update(reader for cell in cells for reader in cell.readers.values())
            self.cells[low:high] = [_Cell(number)]
            self.starts[low:high] = [touch.begin]
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
