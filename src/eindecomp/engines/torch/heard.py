"""`Heard`: the events of a run that somebody listens to.

Regions then run one by one, each followed by a wait for the device. A region is one function, whose
operations have no times of their own: all that it computes is told to begin and end with it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.engines.events import TaskFinished, TaskStarted, TensorFreed
from eindecomp.tra.program.steps import AllGather, Move, ReduceScatter, kind_of
from eindecomp.tra.tiles.ops import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.engines.record import RunRecord
    from eindecomp.engines.torch.ready_region import ReadyRegions
    from eindecomp.tra.program.steps import Step
    from eindecomp.tra.tiles.ops import Share, TileProgram
    from eindecomp.tra.tiles.regions import Region


class Heard:
    """Tells of the regions of one run as they are carried out."""

    def __init__(self, record: RunRecord, ready: ReadyRegions) -> None:
        self.record, self.ready = record, ready
        self._shares = _by_region(ready.tiled, ready.regions)
        self._freed = _freed(ready.tiled, ready.regions)
        self._counts: dict[str, int] = defaultdict(int)
        for shares in self._shares.values():
            for share in shares:
                self._counts[self._vertex(share)] += 1
        self._moves: dict[str, list[Step]] = defaultdict(list)
        for step in record.program.steps:
            if isinstance(step, Move | ReduceScatter | AllGather):
                self._moves[step.vertex].append(step)

    def region(self, number: int) -> RegionHeard:
        """Tells that a region begins and, if it does not fail, that it ends."""
        return RegionHeard(self, number)

    def begin(self, number: int) -> float:
        """Tell that the tasks of a region begin; when that is."""
        begun = self.record.now()
        for share in self._shares.get(number, ()):
            self.record.tell(
                TaskStarted(self._vertex(share), self._kind(share), share.device, 0, begun)
            )
        return begun

    def end(self, number: int, begun: float) -> None:
        """Tell that the tasks of a region have ended, what moved for them, and what is dropped."""
        self.ready.synchronize()
        end = self.record.now()
        for share in self._shares.get(number, ()):
            name = self._vertex(share)
            self.record.tell(TaskFinished(name, self._kind(share), share.device, 0, begun, end))
            self._counts[name] -= 1
            if not self._counts[name]:
                self._tell_moves(name)
        for tile in self._freed.get(number, ()):
            made = self.ready.tiled.tiles[tile]
            self.record.tell(TensorFreed(made.tensor, made.nbytes))

    def finish(self) -> None:
        """Tell of what belongs to no region: parts that are empty, and moves of inputs."""
        with self.region(NOWHERE):
            pass
        for name in list(self._moves):
            self._tell_moves(name)

    def _tell_moves(self, name: str) -> None:
        """Tell what has moved for a vertex, now that all of it is computed."""
        for step in self._moves.pop(name, ()):
            self.record.moved(step, self.record.program.moved_by(step))

    def _vertex(self, share: Share) -> str:
        program = self.record.program
        into: int = getattr(program.steps[share.step], "into")  # noqa: B009 - of those that compute
        return program.buffers[into].tensor

    def _kind(self, share: Share) -> str:
        return kind_of(self.record.program.steps[share.step])


@dataclass
class RegionHeard:
    """One region of a run: no generator, which would not let a listener raise what it likes."""

    heard: Heard
    number: int
    begun: float = 0.0

    def __enter__(self) -> None:
        self.begun = self.heard.begin(self.number)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.heard.end(self.number, self.begun)


NOWHERE = -1
"""The number of no region."""


def _by_region(tiled: TileProgram, regions: Sequence[Region]) -> dict[int, list[Share]]:
    """What devices compute, by the first region that makes the tile."""
    first: dict[int | None, int] = {}
    for region in regions:
        for op in region.ops:
            first.setdefault(op.into, region.number)
    found: dict[int, list[Share]] = defaultdict(list)
    for share in tiled.shares:
        found[first.get(share.tile, NOWHERE)].append(share)
    return found


def _freed(tiled: TileProgram, regions: Sequence[Region]) -> dict[int, list[int]]:
    """The computed tiles that are dropped after each region, since nobody reads them any more."""
    loads = {op.into for op in tiled.ops if op.kind is Kind.LOAD}
    last = {tile: region.number for region in regions for tile in region.reads}
    found: dict[int, list[int]] = defaultdict(list)
    for tile, number in last.items():
        if tile not in loads and tile not in tiled.kept:
            found[number].append(tile)
    return found
