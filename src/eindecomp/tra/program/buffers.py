"""Buffers: a tensor, or partial results of it, in one tiling over all devices."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from eindecomp.layout.boxes import volume

if TYPE_CHECKING:
    from eindecomp.lang.dtypes import DType
    from eindecomp.layout.boxes import Box
    from eindecomp.layout.mesh import Mesh
    from eindecomp.layout.tiling import Tiling


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
