"""From an EinSum to the form of its kernel: loops, groups of axes, and how arrays vary along them.

Labels fall in four groups: batch, rows, columns, summed. Rows and columns span the tile of
accumulators that one program keeps. Labels of a group that lie in every array as one longer label
does are merged into one axis. A form is all that a kernel's source depends on: neither addresses,
nor sizes, nor strides.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.kernels.point_program import PointProgram
    from eindecomp.lang.dtypes import DType
    from eindecomp.lang.einsum import EinSum, Labels

    Strides = Mapping[str, int]
    """How many elements apart neighbours along each label are; a label without is not in it."""

BATCH, ROWS, COLS, SUMMED = range(4)
LETTERS = "bmnk"


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop: its size, and its stride in every array, inputs first."""

    size: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """Labels of more than one element, by group."""

    batch: Labels
    rows: Labels
    cols: Labels
    summed: Labels

    @property
    def groups(self) -> tuple[Labels, Labels, Labels, Labels]:
        """All four, in the order in which kernels take them."""
        return self.batch, self.rows, self.cols, self.summed


def split_labels(op: EinSum, read: int, sizes: Mapping[str, int]) -> Split:
    """Choose the rows and columns of a tile, so that each value loaded serves many points.

    Output labels that the same inputs have belong together. Rows and columns are the largest two
    such groups, of different inputs if there are any.

    >>> from eindecomp.lang.einsum import EinSum, product
    >>> from eindecomp.lang.monoid import MAX
    >>> op = EinSum((("b", "i", "k"), ("b", "j", "k")), ("b", "i", "j"), product(2), MAX)
    >>> split_labels(op, 2, {"b": 2, "i": 4, "j": 4, "k": 4})
    Split(batch=('b',), rows=('i',), cols=('j',), summed=('k',))
    """
    own = [set(labels) for labels in op.inputs[:read]]
    alike: dict[frozenset[int], list[str]] = {}
    for label in op.output:
        if sizes[label] != 1:
            users = frozenset(k for k, labels in enumerate(own) if label in labels)
            alike.setdefault(users, []).append(label)
    rows, cols = _tile_of(alike, sizes)
    if op.output and op.output[-1] in rows:
        rows, cols = cols, rows
    tile = {*rows, *cols}
    batch = tuple(label for label in op.output if sizes[label] != 1 and label not in tile)
    summed = tuple(label for label in op.aggregated if sizes[label] != 1)
    return Split(batch, rows, cols, summed)


def _tile_of(
    alike: Mapping[frozenset[int], list[str]], sizes: Mapping[str, int]
) -> tuple[Labels, Labels]:
    extent = {users: prod(sizes[label] for label in labels) for users, labels in alike.items()}
    if len(alike) < 2:
        return (), tuple(label for labels in alike.values() for label in labels)
    pairs = combinations(alike, 2)
    first, second = max(
        pairs,
        key=lambda pair: (
            bool(pair[0] - pair[1]) and bool(pair[1] - pair[0]),
            min(extent[pair[0]], extent[pair[1]]),
            extent[pair[0]] * extent[pair[1]],
        ),
    )
    return tuple(alike[first]), tuple(alike[second])


def axes_of(
    labels: Sequence[str], sizes: Mapping[str, int], arrays: Sequence[Strides], lead: int
) -> tuple[Axis, ...]:
    """The axes of one group, outermost first: in the order of the array `lead`, merged.

    >>> axes_of("ab", {"a": 2, "b": 3}, [{"a": 3, "b": 1}, {}], 0)
    (Axis(size=6, strides=(1, 0)),)
    """
    axes = [Axis(sizes[k], tuple(array.get(k, 0) for array in arrays)) for k in labels]
    axes.sort(key=lambda axis: -axis.strides[lead])
    merged: list[Axis] = []
    for axis in axes:
        continued = tuple(stride * axis.size for stride in axis.strides)
        if merged and merged[-1].strides == continued:
            axis = Axis(merged.pop().size * axis.size, axis.strides)
        merged.append(axis)
    return tuple(merged)


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


PACK = 4
"""How many summed steps one load of a packed input brings."""


@dataclass(frozen=True, slots=True)
class Copy:
    """An operand of rows, or of columns, as [batch, summed steps in packs, rows, steps of a pack].

    There are as many rows as fill whole tiles, so that kernels may read beyond the last one. What
    is there is never used.
    """

    shape: tuple[int, ...]
    """Sizes of the operand's labels: of the batch, summed, of rows or columns."""
    source: tuple[int, ...]
    batch: int
    summed: int
    own: int
    padded: int

    @property
    def packs(self) -> int:
        """How many packs there are for each element of the batch."""
        return -(-self.summed // PACK)

    def make(self, operand: torch.Tensor) -> torch.Tensor:
        """Copy an operand."""
        found = operand.as_strided(self.shape, self.source, operand.storage_offset())
        found = found.reshape(self.batch, self.summed, self.own)
        shape = (self.batch, self.packs, self.padded, PACK)
        buffer = torch.empty(shape, dtype=operand.dtype, device=operand.device)
        whole, rest = divmod(self.summed, PACK)
        packed = found[:, : whole * PACK].reshape(self.batch, whole, PACK, self.own)
        buffer[:, :whole, : self.own].copy_(packed.transpose(2, 3))
        if rest:
            last = found[:, whole * PACK :].transpose(1, 2)
            buffer[:, whole, : self.own, :rest].copy_(last)
        return buffer


def copy_of(
    source: Mapping[str, int], sizes: Mapping[str, int], split: Split, tile: tuple[int, int]
) -> tuple[Copy, dict[str, int]] | None:
    """The copy of an operand of given strides, and the copy's; None if it is of no use.

    In packs, the stride of a summed step is that of a pack: the kernel knows.
    """
    rows, cols = ([label for label in side if label in source] for side in (split.rows, split.cols))
    own = rows or cols
    if not own or (rows and cols):
        return None
    batch, summed = (
        [label for label in group if label in source] for group in (split.batch, split.summed)
    )
    block = tile[0 if rows else 1]
    order = [*batch, *summed, *own]
    counts = [prod(sizes[label] for label in group) for group in (batch, summed, own)]
    copy = Copy(
        tuple(sizes[label] for label in order),
        tuple(source[label] for label in order),
        *counts,
        padded=-(-counts[-1] // block) * block,
    )
    step = copy.padded * PACK
    strides = _contiguous(own, sizes, PACK) | _contiguous(summed, sizes, step)
    return copy, strides | _contiguous(batch, sizes, step * copy.packs)


def _contiguous(labels: list[str], sizes: Mapping[str, int], step: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for label in reversed(labels):
        found[label] = step
        step *= sizes[label]
    return found
