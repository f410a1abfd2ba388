"""Buffers, each a tensor in one tiling over all devices, and the steps that read and write them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from eindecomp.layout.boxes import volume

if TYPE_CHECKING:
    from eindecomp.lang.dtypes import DType
    from eindecomp.layout.boxes import Box
    from eindecomp.layout.cut import Cut
    from eindecomp.layout.mesh import Mesh
    from eindecomp.layout.tiling import Tiling
    from eindecomp.tra.program.patterns import Pattern

Number = int
"""A buffer, by its place among those of its program."""


@dataclass(frozen=True, slots=True)
class Load:
    """Every device takes its block of an input, which the caller has or has placed before."""

    into: Number


@dataclass(frozen=True, slots=True)
class Generate:
    """Every device makes its block of a fill from the indices."""

    into: Number
    reader: str | None
    """For which vertex; None for an output."""


@dataclass(frozen=True, slots=True)
class Read:
    """An operand: the block that a cut gives each device, inside its block of a buffer."""

    buffer: Number
    cut: Cut


@dataclass(frozen=True, slots=True)
class Compute:
    """One kernel call on every device: a tile of a vertex, or a part of its sum."""

    vertex: str
    reads: tuple[Read | None, ...]
    """The operands in order; None for one whose elements are never read."""
    into: Number
    is_partial: bool


@dataclass(frozen=True, slots=True)
class Move:
    """Every device puts together what it wants of a tensor that lies in another tiling."""

    vertex: str
    """For which vertex; for a second layout, whose."""
    source: Number
    into: Number
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class ReduceScatter:
    """Devices that differ along `axes` combine their partial results, each a block of them.

    They are combined in the order of the devices' numbers and finished into `into`, of which a
    device reduces its own block, or where devices hold the same one (along `split`) its share.
    """

    vertex: str
    source: Number
    into: Number
    axes: int
    split: int


@dataclass(frozen=True, slots=True)
class AllGather:
    """Devices along `axes` that have a share each of the same block of `buffer` exchange them."""

    vertex: str
    buffer: Number
    axes: int


@dataclass(frozen=True, slots=True)
class Free:
    """Nobody reads a buffer any more."""

    buffer: Number


Step = Load | Generate | Compute | Move | ReduceScatter | AllGather | Free


def used_by(step: Step) -> tuple[int, ...]:
    """The buffers that a step reads or writes."""
    match step:
        case Load() | Generate():
            return (step.into,)
        case Compute():
            return (*(read.buffer for read in step.reads if read is not None), step.into)
        case Move() | ReduceScatter():
            return (step.source, step.into)
        case AllGather() | Free():
            return (step.buffer,)


def kind_of(step: Step) -> str:
    """A word for a kind of step, as events and traces use it."""
    return _KINDS[type(step)]


_KINDS: dict[type[Step], str] = {
    Load: "load",
    Generate: "fill",
    Compute: "compute",
    Move: "move",
    ReduceScatter: "reduce-scatter",
    AllGather: "all-gather",
    Free: "free",
}


class Role(Enum):
    """What a buffer is to its tensor."""

    GIVEN = "given"
    """An input as it lies when the program begins."""
    HOME = "home"
    """A result where it was computed or reduced to."""
    SECOND = "second layout"
    """A copy that is kept for several readers."""
    PARTIAL = "partial"
    """Partial results that wait to be reduced."""
    PIECE = "piece"
    """What one reader has fetched or generated for itself."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Arrays on every device that hold its block of a tensor."""

    number: int
    tensor: str
    role: Role
    tiling: Tiling
    types: tuple[DType, ...]
    """The type of its elements; several for partial results that are tuples."""
    alias_of: int | None = None
    """The buffer of which a device takes a view where its block lies inside that one's."""

    @property
    def item(self) -> int:
        """The bytes of one element."""
        return sum(dtype.itemsize for dtype in self.types)

    def box(self, mesh: Mesh, device: int) -> Box:
        """The block that a device holds."""
        return self.tiling.box(mesh, device)

    def nbytes(self, mesh: Mesh, device: int) -> int:
        """The bytes of a device's block."""
        return volume(self.box(mesh, device)) * self.item

    def __str__(self) -> str:
        plain = self.role in (Role.HOME, Role.GIVEN)
        return self.tensor if plain else f"{self.tensor} ({self.role.value})"
