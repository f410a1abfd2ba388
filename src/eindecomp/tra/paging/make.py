"""Makes schedules: keeps those tensors resident with which a run is predicted to be fastest."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from eindecomp.errors import PlanError
from eindecomp.planner.costs.byte_sizes import parse_bytes
from eindecomp.tra.paging.issue import issue
from eindecomp.tra.paging.place import place
from eindecomp.tra.paging.residents import fastest, largest_task
from eindecomp.tra.paging.schedule import Schedule, Window
from eindecomp.tra.paging.simulate import simulate
from eindecomp.tra.paging.workload import Staging
from eindecomp.tra.windows import ALIGNMENT, window_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.tra.paging.workload import Links, Workload


class ArenaTooSmallError(PlanError):
    """The tensors of one task do not fit in the arena; `missing` bytes more are needed."""

    def __init__(self, task: str, needed: int, available: int) -> None:
        self.task = task
        self.needed = needed
        self.available = available
        super().__init__(
            f"{task}: its tensors take {needed:,} bytes at once, but beside torch's own memory the "
            f"limit leaves {max(0, available):,} bytes for tensors on the GPU: "
            f"{self.missing:,} bytes are missing"
        )

    def __reduce__(self) -> tuple[type, tuple[str, int, int]]:
        return ArenaTooSmallError, (self.task, self.needed, self.available)

    @property
    def missing(self) -> int:
        """How many bytes more the arena would need."""
        return self.needed - self.available


def arena_bytes(workload: Workload, memory: int | str, margin: int | str = 0) -> int:
    """What a memory limit leaves for tensors, beside the largest workspace and a margin.

    If that is less than nothing, so many bytes are missing for those alone.
    """
    left = parse_bytes(memory) - workload.workspace - parse_bytes(margin)
    return left // ALIGNMENT * ALIGNMENT


def check_arena(workload: Workload, arena: int) -> None:
    """Raise an error if the tensors of one task do not fit in an arena of so many bytes."""
    _refuse(workload, [window_bytes(tensor.nbytes) for tensor in workload.tensors], arena, ())


def make_schedule(
    workload: Workload,
    links: Links,
    arena: int,
    staging: Staging | None = None,
    resident: Sequence[int] | None = None,
) -> Schedule:
    """The schedule of a workload in an arena of so many bytes, or of fewer where all fit in them.

    Which tensors are resident is chosen by prediction unless they are given.
    """
    arena = arena // ALIGNMENT * ALIGNMENT
    sizes = [window_bytes(tensor.nbytes) for tensor in workload.tensors]
    staging = staging or Staging()
    _refuse(workload, sizes, arena, ())
    arena = min(arena, sum(sizes))

    def make(resident: Sequence[int]) -> Schedule:
        at = _side_by_side(sizes, resident)
        placement = place(workload, sizes, arena, at, links)
        actions = issue(workload, placement, arena, staging)
        left = placement.offsets[-1].items()
        return Schedule(
            workload,
            arena,
            staging,
            tuple(Window(*window) for window in at.items()),
            actions,
            tuple(Window(*window) for window in left),
        )

    if resident is not None:
        resident = tuple(dict.fromkeys(resident))
        _refuse(workload, sizes, arena, resident)
    found = fastest(make, sizes, links) if resident is None else make(resident)
    return replace(found, seconds=simulate(found, links).seconds)


def _refuse(workload: Workload, sizes: Sequence[int], arena: int, resident: Sequence[int]) -> None:
    """Raise an error if a task's tensors do not fit in the arena beside the resident ones."""
    for number in resident:
        tensor = workload.tensors[number]
        if not tensor.may_stay:
            raise PlanError(f"{tensor.name}: differs from run to run, so it cannot be resident")
    available = arena - sum(sizes[number] for number in resident)
    task, needed = largest_task(workload, sizes, resident)
    if needed > available:
        raise ArenaTooSmallError(task, needed, available)


def _side_by_side(sizes: Sequence[int], resident: Sequence[int]) -> dict[int, int]:
    """The offsets of the resident tensors, from the arena's beginning."""
    ends = accumulate((sizes[number] for number in resident), initial=0)
    return dict(zip(resident, ends, strict=False))
