"""What the source of a generated kernel depends on: all but addresses, sizes and strides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.kernels.point_program import PointProgram
    from eindecomp.kernels.torch.generated.groups import Axis
    from eindecomp.lang.dtypes import DType

BATCH, ROWS, COLS, SUMMED = range(4)
LETTERS = "bmnk"


@dataclass(frozen=True, slots=True)
class Access:
    """One array: its type, and whether it varies along the axes of each group."""

    type: DType
    varies: tuple[bool, bool, bool, bool]


@dataclass(frozen=True, slots=True)
class Form:
    """A kernel's program, arrays, and how many axes each group has."""

    program: PointProgram
    inputs: tuple[Access, ...]
    scalars: tuple[DType, ...]
    outputs: tuple[Access, ...]
    counts: tuple[int, int, int, int]

    def arrays(self) -> list[tuple[str, Access]]:
        """The name of every array in the source, inputs first."""
        return [
            *((f"a{k}", access) for k, access in enumerate(self.inputs)),
            *((f"z{k}", access) for k, access in enumerate(self.outputs)),
        ]

    def parameters(self) -> list[str]:
        """The names of the kernel's parameters, in order: pointers, sizes, strides."""
        pointers = [name for name, _ in self.arrays()]
        scalars = [f"c{k}" for k in range(len(self.scalars))]
        return [*pointers, *scalars, *self.sizes(), *self.strides()]

    def sizes(self) -> list[str]:
        """The names of the axes' sizes: b0, b1, …, m0, …, n0, …, k0, …."""
        return [f"{letter}{j}" for g, letter in enumerate(LETTERS) for j in range(self.counts[g])]

    def strides(self) -> list[str]:
        """The names of the strides, such as `a0_k1`, where an array varies with a group."""
        return [
            f"{name}_{letter}{j}"
            for name, access in self.arrays()
            for g, letter in enumerate(LETTERS)
            if access.varies[g]
            for j in range(self.counts[g])
        ]

    def integers(self, groups: Sequence[Sequence[Axis]]) -> list[int]:
        """The values of the sizes and strides, for axes that have this form."""
        sizes = [axis.size for axes in groups for axis in axes]
        strides = [
            axis.strides[k]
            for k, (_, access) in enumerate(self.arrays())
            for g, axes in enumerate(groups)
            if access.varies[g]
            for axis in axes
        ]
        return [*sizes, *strides]


def accesses(types: Sequence[DType], groups: Sequence[Sequence[Axis]]) -> tuple[Access, ...]:
    """How arrays of the given types, in the axes' order, vary with each group.

    Along an axis without elements all do, so that nothing is read ahead of its loop.
    """
    found: list[Access] = []
    for k, of in enumerate(types):
        batch, rows, cols, summed = (
            any(axis.strides[k] or not axis.size for axis in axes) for axes in groups
        )
        found.append(Access(of, (batch, rows, cols, summed)))
    return tuple(found)
