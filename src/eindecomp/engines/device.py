"""A device with arrays of its own: what it holds, what it computes alone, what it has received."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from eindecomp.engines.row_masks import RowMask, named_in
from eindecomp.errors import RunError
from eindecomp.graph.ops import Fill
from eindecomp.graph.shown import see, shown_to
from eindecomp.kernels.library import KernelLibrary, TileKernel
from eindecomp.lang.dtypes import DType
from eindecomp.layout.boxes import Box, inside, meet, shape_of, show_box, volume, within
from eindecomp.layout.tiling import box_on
from eindecomp.planner.costs.named_rows import NUMBER
from eindecomp.tra.program.device_row import DeviceStep
from eindecomp.tra.program.program import Program
from eindecomp.tra.program.steps import Compute, Generate, Move, MovedRows, ReduceScatter


class Peer(Protocol):
    """Whoever has blocks that a device takes: another device, or what has arrived from one."""

    @property
    def number(self) -> int:
        """The number of the device whose blocks these are."""
        ...

    def read(self, buffer: int, box: Box) -> tuple[Any, ...]:
        """A block of what it holds."""
        ...


@dataclass(slots=True)
class HeldBlock:
    """A device's block of a buffer: one array, or one for each number of a partial result."""

    box: Box
    arrays: tuple[Any, ...]
    owned: int
    """Bytes that were allocated for it: none where it is a view or belongs to the caller."""
    arrived: list[Box] | None = None
    """While it is put together, the blocks that are there, which do not overlap; else None."""

    def has(self, box: Box) -> bool:
        """Whether all of a block is there."""
        if self.arrived is None:
            return True
        shared = (meet(box, block) for block in self.arrived)
        return sum(volume(block) for block in shared if block is not None) == volume(box)


@dataclass(slots=True)
class Device:
    """The arrays of one device, by buffer, during one run of a program."""

    program: Program
    number: int
    library: KernelLibrary
    scalars: Mapping[str, Any] = field(default_factory=dict[str, Any])
    buffers: dict[int, HeldBlock] = field(default_factory=dict[int, HeldBlock])
    bytes_held: int = 0
    peak: int = 0
    received: int = 0
    """Bytes that were copied from other devices."""

    # What it computes alone

    def generate(self, own: DeviceStep) -> None:
        """Make the device's block of a fill."""
        step = own.step
        assert isinstance(step, Generate)  # noqa: S101
        self._fill(step.into, self.program.buffers[step.into].tensor)

    def make_room(self, own: DeviceStep) -> HeldBlock:
        """Make the block that a move fills; with the identity in it, where nothing comes."""
        step = own.step
        assert isinstance(step, Move)  # noqa: S101
        return self._fill(step.into, step.identity) if own.is_identity else self.allocate(step.into)

    def _fill(self, into: int, name: str) -> HeldBlock:
        held, graph = self.allocate(into), self.program.graph
        op = graph[name].op
        assert isinstance(op, Fill)  # noqa: S101
        self.library.fill(op, held.arrays[0], held.box, self.scalars, graph.scalars)
        held.arrived = None
        return held

    def compute(self, own: DeviceStep) -> None:
        """Call the kernel of a vertex for the device's tile."""
        step = own.step
        assert isinstance(step, Compute)  # noqa: S101
        operands = [
            None if read is None or box is None else self.read(read.buffer, box)[0]
            for read, box in zip(step.reads, own.reads, strict=True)
        ]
        vertex = self.program.computed_by(step)
        held = self.allocate(step.into)
        out = held.arrays
        kernel, scalars = self._kernel(step), [*self.scalars.values()]
        shown = shown_to(vertex, own.reads, own.box, own.numbers)
        operands = see(self.library, kernel, operands, shown)
        if step.is_partial:
            kernel.partial(operands, out, scalars)
        else:
            kernel.whole(operands, out[0], scalars)
        held.arrived = None

    def reduce(self, own: DeviceStep, parts: Iterable[tuple[Any, ...]]) -> None:
        """Combine partial results, in their order, and finish the device's block of the result.

        Each part is an array of `fetch`, or several, taken one at a time: the first becomes the
        total, so that no more than two parts are held at once.
        """
        step = own.step
        assert isinstance(step, ReduceScatter)  # noqa: S101
        home = self.allocate(step.into)
        if not volume(own.box):
            return
        kernel = self._kernel(step)
        if self.program.buffers[step.source].types != kernel.state:
            parts = (self._widened(kernel, part) for part in parts)
        parts = iter(parts)
        total = next(parts)
        for part in parts:
            kernel.combine(total, part)
            self._drop(part)
        kernel.finish(total, home.arrays[0][within(own.box, home.box)])
        self._note(home, own.box)
        self._drop(total)

    def _widened(self, kernel: TileKernel, part: tuple[Any, ...]) -> tuple[Any, ...]:
        """A part that has travelled in a smaller type, in that in which parts accumulate."""
        state = tuple(self.library.empty(part[0].shape, of) for of in kernel.state)
        self._grow(sum(array.nbytes for array in state))
        kernel.partial(part, state, [*self.scalars.values()])
        self._drop(part)
        return state

    def _kernel(self, step: Compute | ReduceScatter) -> TileKernel:
        return self.library.kernel(self.program.graph, self.program.computed_by(step))

    # What it holds

    def allocate(self, buffer: int) -> HeldBlock:
        """New arrays for the device's block of a buffer, of which nothing has arrived yet."""
        made = self.program.buffers[buffer]
        box = made.box(self.program.mesh, self.number)
        held = HeldBlock(box, self._arrays(box, made.types), 0, [])
        held.owned = sum(array.nbytes for array in held.arrays)
        self.hold(buffer, held)
        return held

    def _arrays(self, box: Box, types: Sequence[DType]) -> tuple[Any, ...]:
        return tuple(self.library.empty(shape_of(box), dtype) for dtype in types)

    def hold(self, buffer: int, held: HeldBlock) -> None:
        """Keep a block under the number of its buffer."""
        self.buffers[buffer] = held
        self._grow(held.owned)

    def free(self, buffer: int) -> int:
        """Let go of a buffer; how many bytes that frees."""
        owned = self._held(buffer, "frees").owned
        del self.buffers[buffer]
        self.bytes_held -= owned
        return owned

    def read(self, buffer: int, box: Box) -> tuple[Any, ...]:
        """A block of what the device holds; it is an error if it does not hold all of it."""
        held = self._held(buffer, "reads")
        if not volume(box):  # which lies nowhere, and yet has sides
            return self._arrays(box, self.program.buffers[buffer].types)
        reads = f"device {self.number} reads {self.program.buffers[buffer].tensor}{show_box(box)}"
        if not inside(box, held.box):
            raise RunError(f"{reads} and holds only {show_box(held.box)}")
        if not held.has(box):
            raise RunError(f"{reads}, not all of which has arrived")
        return self._within(held, box)

    def _held(self, buffer: int, does: str) -> HeldBlock:
        held = self.buffers.get(buffer)
        if held is None:
            what = self.program.buffers[buffer].tensor
            raise RunError(f"device {self.number} {does} {what}, of which it holds nothing")
        return held

    def _within(self, held: HeldBlock, box: Box) -> tuple[Any, ...]:
        return tuple(array[within(box, held.box)] for array in held.arrays)

    def _note(self, held: HeldBlock, box: Box) -> None:
        """Note that a block has arrived."""
        if held.arrived is not None:
            held.arrived.append(box)

    # What it takes from others

    def fetch(
        self, peer: Peer, buffer: int, box: Box, rows: RowMask | None = None
    ) -> tuple[Any, ...]:
        """A copy of a block that a peer holds, for as long as one step lasts; 0 in other rows."""
        arrays = self._arrays(box, self.program.buffers[buffer].types)
        self._grow(sum(array.nbytes for array in arrays))
        for array in arrays if rows is not None else ():
            array[...] = 0
        self._take(arrays, peer, buffer, box, rows)
        return arrays

    def copy_block(
        self, into: int, peer: Peer, buffer: int, box: Box, rows: RowMask | None = None
    ) -> None:
        """Copy a block of a buffer that a peer holds, or rows of it, into one of this device."""
        held = self._held(into, "writes to")
        self._take(self._within(held, box), peer, buffer, box, rows)
        self._note(held, box)

    def _take(
        self, targets: Sequence[Any], peer: Peer, buffer: int, box: Box, rows: RowMask | None
    ) -> None:
        """Copy a peer's block, or rows of it, which come with their numbers."""
        for target, source in zip(targets, peer.read(buffer, box), strict=True):
            self.copy(target, source, peer.number, rows)
        if rows is not None and peer.number != self.number:
            self.received += NUMBER * rows.count

    def named(self, rows: MovedRows | None, box: Box) -> RowMask | None:
        """The rows of a block that the device's block of an index names; None if all are moved."""
        if rows is None:
            return None
        at = box_on(self.program.mesh, rows.index.cut, self.number)
        [index] = self.read(rows.index.buffer, at)
        return named_in(rows.named, index, at, box)

    def copy(self, target: Any, source: Any, peer: int, rows: RowMask | None = None) -> None:
        """Copy a peer's elements, counting their bytes unless the peer is this device itself."""
        count = target.nbytes
        if rows is None:
            self.library.copy(target, source)
        else:
            count = rows.copy(target, source)
        if peer != self.number:
            self.received += count

    def _drop(self, arrays: Sequence[Any]) -> None:
        self.bytes_held -= sum(array.nbytes for array in arrays)

    def _grow(self, count: int) -> None:
        self.bytes_held += count
        self.peak = max(self.peak, self.bytes_held)
