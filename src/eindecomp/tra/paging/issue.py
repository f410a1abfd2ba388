"""Issues actions: turns windows into the transfers and runs of a schedule, in order."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from eindecomp.tra.paging.arena import START
from eindecomp.tra.paging.schedule import Fetch, Keep, Read, Run, Store
from eindecomp.tra.paging.waits import with_waits
from eindecomp.tra.paging.workload import Begins

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def _run(workload: Workload, placement: Placement, number: int) -> Run:
    task, at = workload.tasks[number], placement.offsets[number]
    reads, writes = (tuple(at[tensor] for tensor in used) for used in (task.reads, task.writes))
    return Run(number, reads, writes)


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
            yield Read(tensor.number, start, nbytes, block)
            yield Fetch(tensor.number, offset, start, nbytes, block)
