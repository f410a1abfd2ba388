"""One device of the reference engine: its own arrays, and how many bytes it holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eindecomp.errors import RunError
from eindecomp.tra.boxes import inside, shape_of, show_box, within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.kernels.library import KernelLibrary
    from eindecomp.lang.dtypes import DType
    from eindecomp.tra.boxes import Box


@dataclass(slots=True)
class HeldBlock:
    """A device's block of a buffer: one array, or one for each number of a partial result."""

    box: Box
    arrays: tuple[Any, ...]
    owned: int
    """Bytes that were allocated for it: none where it is a view or belongs to the caller."""


@dataclass(slots=True)
class Device:
    """The arrays of one device, by buffer."""

    number: int
    library: KernelLibrary
    buffers: dict[int, HeldBlock] = field(default_factory=dict[int, HeldBlock])
    bytes_held: int = 0
    peak: int = 0
    received: int = 0
    """Bytes that were copied from other devices."""

    def allocate(self, buffer: int, box: Box, types: Sequence[DType]) -> HeldBlock:
        """New arrays for a block."""
        held = HeldBlock(box, self._arrays(box, types), 0)
        held.owned = sum(array.nbytes for array in held.arrays)
        self.hold(buffer, held)
        return held

    def _arrays(self, box: Box, types: Sequence[DType]) -> tuple[Any, ...]:
        return tuple(self.library.empty(shape_of(box), dtype) for dtype in types)

    def hold(self, buffer: int, held: HeldBlock) -> None:
        """Keep a block under the number of its buffer."""
        self.buffers[buffer] = held
        self._grow(held.owned)

    def scratch(self, box: Box, types: Sequence[DType]) -> tuple[Any, ...]:
        """Arrays for as long as one step lasts; `drop` counts them out again."""
        arrays = self._arrays(box, types)
        self._grow(sum(array.nbytes for array in arrays))
        return arrays

    def drop(self, arrays: Sequence[Any]) -> None:
        """Count arrays of `scratch` out."""
        self.bytes_held -= sum(array.nbytes for array in arrays)

    def free(self, buffer: int) -> int:
        """Let go of a buffer; how many bytes that frees."""
        owned = self.buffers.pop(buffer).owned
        self.bytes_held -= owned
        return owned

    def read(self, buffer: int, box: Box, what: str) -> tuple[Any, ...]:
        """A block of what the device holds; it is an error if it does not hold all of it."""
        held = self.buffers.get(buffer)
        if held is None:
            raise RunError(f"device {self.number} reads {what}, of which it holds nothing")
        if not inside(box, held.box):
            raise RunError(
                f"device {self.number} reads {what}{show_box(box)} "
                f"and holds only {show_box(held.box)}"
            )
        where = within(box, held.box)
        return tuple(array[where] for array in held.arrays)

    def receive(self, target: Sequence[Any], source: Sequence[Any]) -> None:
        """Copy blocks that another device holds, and count their bytes."""
        for into, array in zip(target, source, strict=True):
            self.library.copy(into, array)
            self.received += into.nbytes

    def _grow(self, count: int) -> None:
        self.bytes_held += count
        self.peak = max(self.peak, self.bytes_held)
