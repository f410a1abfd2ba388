"""Regions made ready: each as a function that is compiled when it is first called.

A region is traced once for tensors of a layout, fused by Inductor, and kept on disk by it. Where
somebody listens, regions run one by one, each followed by a wait for the device, and all that a
region computes is told to begin and end with it: its operations have no times of their own.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch._inductor import compile as compile_graph
from torch._inductor import config as inductor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from eindecomp.engines.result import RunRecord, TaskFinished, TaskStarted, TensorFreed
from eindecomp.engines.torch.region_code import JointProducts, RegionCode
from eindecomp.kernels.cache import cache_folder
from eindecomp.kernels.torch.decoding import overlaps
from eindecomp.kernels.torch.tensors import torch_type
from eindecomp.tra.program.steps import Communication, kind_of, used_by
from eindecomp.tra.tiles.memory import dropped_after
from eindecomp.tra.tiles.ops import Region, TileProgram

if TYPE_CHECKING:
    from eindecomp.kernels.torch.library import TorchLibrary

    Tensor = torch.Tensor
    Function = Callable[["RegionCall"], Sequence[Tensor]]

_LITTLE = 1 << 20  # bytes


@dataclass(frozen=True)
class RegionCall:
    """The tensors that a region is carried out with."""

    arrays: Sequence[Tensor]
    scalars: Sequence[Tensor]
    joined: Mapping[JointProducts, Tensor]
    into: Sequence[Tensor]
    """Where results go; if there are none, they are new."""

    @property
    def all(self) -> list[Tensor]:
        """One after another."""
        return [*self.arrays, *self.scalars, *self.joined.values(), *self.into]

    @property
    def layout(self) -> object:
        """All that a compiled function depends on but the numbers."""
        lie = tuple((x.shape, x.stride(), x.dtype, x.device) for x in self.all)
        return lie, len(self.joined), len(self.into)

    def of(self, tensors: Sequence[Tensor]) -> RegionCall:
        """The same call of other tensors, given one after another."""
        given = iter(tensors)
        arrays, scalars = ([next(given) for _ in part] for part in (self.arrays, self.scalars))
        joined = {join: next(given) for join in self.joined}
        return RegionCall(arrays, scalars, joined, [next(given) for _ in self.into])


def carry_out(code: RegionCode, call: RegionCall) -> Sequence[Tensor]:
    """What a region makes: new tensors, or if there are some to write to, these."""
    made = code(call.arrays, call.scalars, call.joined)
    for target, source in zip(call.into, made, strict=False):
        target.copy_(source)
    return call.into or made


def traced(code: RegionCode, call: RegionCall) -> Any:
    """A region as a graph of torch's own operations; no memory is taken for that."""

    def flat(*given: Tensor) -> list[Tensor]:
        made = carry_out(code, call.of(given))
        return [] if call.into else list(made)

    with FakeTensorMode() as mode, torch.no_grad():
        return make_fx(flat)(*_without_memory(call, mode))


def _without_memory(call: RegionCall, mode: FakeTensorMode) -> list[Tensor]:
    """Tensors that lie as those of a call do, no two in the same memory: they have none."""
    with mode:
        return [
            torch.empty_strided(array.shape, array.stride(), dtype=array.dtype, device=array.device)
            for array in call.all
        ]


def compiled(code: RegionCode, call: RegionCall) -> Function:
    """A region, fused for tensors that lie as these do."""
    folder = cache_folder()
    if folder is not None:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
    # Where little is made, reading weights is most of the work, and kernels overlap. Inductor's
    # search for better blocks is left out: what it measures of such kernels is noise.
    most = max((code.tiled.tiles[op.into].nbytes for op in code.region.ops), default=0)
    overlap = most < _LITTLE and overlaps(code.library.device)
    can_tell = hasattr(inductor.triton, "enable_pdl")
    options: Any = {"triton.enable_pdl": True} if overlap and can_tell else {}
    # Without torch.compile's guards: the caller has compared all that they check, and they would
    # tell tensors that lie side by side in one memory from those that lie apart.
    examples: list[Any] = [*_without_memory(call, FakeTensorMode())]
    with torch.no_grad():
        fused: Any = compile_graph(traced(code, call), examples, options=options)

    def run(call: RegionCall) -> Sequence[Tensor]:
        made = fused(*call.all)
        return call.into or made

    return run


_FUNCTIONS: dict[object, Function] = {}
"""Compiled regions of this process, by what they compute and how their tensors lie."""


class ReadyRegions:
    """The regions of a program in order, each with its code; equal ones share a function."""

    def __init__(
        self,
        tiled: TileProgram,
        regions: Sequence[Region],
        libraries: Sequence[TorchLibrary],
        fuse: bool,
    ) -> None:
        self.tiled, self.regions, self.libraries, self.fuse = tiled, regions, libraries, fuse
        self.codes = [RegionCode(tiled, each, libraries[each.memory]) for each in regions]

    def scalars(self, given: Mapping[str, Any]) -> list[list[Tensor]]:
        """The run-time scalars in every memory."""
        types = self.tiled.program.graph.scalars
        return [
            [
                torch.tensor(x, dtype=torch_type(types[name]), device=library.device)
                for name, x in given.items()
            ]
            for library in self.libraries
        ]

    @property
    def waits(self) -> bool:
        """Whether a run waits for the devices in between, to check indices that it computed."""
        return any(code.lookups for code in self.codes)

    def synchronize(self) -> None:
        """Wait until all that was begun is done."""
        for library in self.libraries:
            if library.device.type == "cuda":
                torch.cuda.synchronize(library.device)

    def bound(
        self, number: int, arrays: Sequence[Tensor], into: Sequence[Tensor] = ()
    ) -> BoundRegion:
        """A region that is always carried out with the same tensors."""
        return BoundRegion(self.codes[number], arrays, into, self.fuse)


class BoundRegion:
    """A region with the tensors that it reads and those that it writes to."""

    def __init__(
        self, code: RegionCode, arrays: Sequence[Tensor], into: Sequence[Tensor], fuse: bool
    ) -> None:
        self._code, self._arrays, self._into, self._fuse = code, arrays, into, fuse
        self._joined = code.joined(arrays)
        self._function: Function | None = None

    def __call__(self, scalars: Sequence[Tensor]) -> Sequence[Tensor]:
        """Carry it out."""
        self._code.check_indices(self._arrays)
        call = RegionCall(self._arrays, scalars, self._joined, self._into)
        if not self._fuse:
            return carry_out(self._code, call)
        if self._function is None:
            key = self._code.key, call.layout
            if key not in _FUNCTIONS:
                _FUNCTIONS[key] = compiled(self._code, call)
            self._function = _FUNCTIONS[key]
        return self._function(call)


class Heard:
    """Tells a listener of the regions of one run as they are carried out."""

    def __init__(self, record: RunRecord, ready: ReadyRegions) -> None:
        self.record, self.ready = record, ready
        first: dict[int | None, int] = {}
        for region in ready.regions:
            for op in region.ops:
                first.setdefault(op.into, region.number)
        self._tasks: dict[int, list[tuple[str, str, int]]] = defaultdict(list)
        """What devices compute, by the first region that makes the tile: vertex, kind, device."""
        for share in ready.tiled.shares:
            step = record.program.steps[share.step]
            name = record.program.buffers[used_by(step)[-1]].tensor
            region = first.get(share.tile, NOWHERE)
            self._tasks[region].append((name, kind_of(step), share.device))
        self._dropped = dropped_after(ready.tiled, ready.regions)
        self._moves: dict[str, list[Communication]] = defaultdict(list)
        for step in record.program.steps:
            if isinstance(step, Communication):
                self._moves[step.vertex].append(step)
        self._begun = 0.0

    def begin(self, number: int) -> None:
        """Tell that the tasks of a region begin, and what moves for their vertices."""
        self._begun = self.record.now()
        for name, kind, device in self._tasks[number]:
            self._tell_moves(name)
            self.record.tell(TaskStarted(name, kind, device, 0, self._begun))

    def end(self, number: int) -> None:
        """Tell that the tasks of a region have ended, and what is dropped."""
        self.ready.synchronize()
        end = self.record.now()
        for name, kind, device in self._tasks[number]:
            self.record.tell(TaskFinished(name, kind, device, 0, self._begun, end))
        for tile in self._dropped[number] if number != NOWHERE else ():
            if tile not in self.ready.tiled.loads:
                made = self.ready.tiled.tiles[tile]
                self.record.tell(TensorFreed(made.tensor, made.nbytes))

    def finish(self) -> None:
        """Tell of what belongs to no region: parts that are empty, and moves of inputs."""
        self.begin(NOWHERE)
        self.end(NOWHERE)
        for name in list(self._moves):
            self._tell_moves(name)

    def _tell_moves(self, name: str) -> None:
        """Tell what moves for a vertex, unless that was told before."""
        for step in self._moves.pop(name, ()):
            self.record.moved(step, self.record.program.moved_by(step))


NOWHERE = -1
"""The number of no region."""
