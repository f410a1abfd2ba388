"""The form of an EinSum's kernel, and the ways to run it.

Labels fall in four groups: batch, rows, columns, summed. Rows and columns span the tile of
accumulators that one program keeps. Labels of a group that lie in every array as one longer label
does are merged into one axis. A form is all that a kernel's source depends on: neither addresses,
nor sizes, nor strides.

The first call on sizes of a class measures which way is the fastest on a card; the verdict is kept
on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton

from eindecomp.errors import RunError
from eindecomp.kernels.measured import Verdicts, fastest_of
from eindecomp.kernels.tile_arrays import contiguous
from eindecomp.kernels.torch.timing import seconds_of

if TYPE_CHECKING:
    from eindecomp.kernels.point_program import PointProgram
    from eindecomp.lang.dtypes import DType
    from eindecomp.lang.einsum import EinSum, Labels

    Strides = Mapping[str, int]
    """The stride of each label that an array has, in elements."""

BATCH, ROWS, COLS, SUMMED = range(4)
LETTERS = "bmnk"


@dataclass(frozen=True, slots=True)
class JoinAxis:
    """One loop: its size, and its stride in every array, inputs first."""

    size: int
    strides: tuple[int, ...]


class Split(NamedTuple):
    """Labels of more than one element, by group, in the order in which kernels take them."""

    batch: Labels
    rows: Labels
    cols: Labels
    summed: Labels


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
) -> tuple[JoinAxis, ...]:
    """The axes of one group, outermost first: in the order of the array `lead`, merged.

    >>> axes_of("ab", {"a": 2, "b": 3}, [{"a": 3, "b": 1}, {}], 0)
    (JoinAxis(size=6, strides=(1, 0)),)
    """
    axes = [JoinAxis(sizes[k], tuple(array.get(k, 0) for array in arrays)) for k in labels]
    axes.sort(key=lambda axis: -axis.strides[lead])
    merged: list[JoinAxis] = []
    for axis in axes:
        continued = tuple(stride * axis.size for stride in axis.strides)
        if merged and merged[-1].strides == continued:
            axis = JoinAxis(merged.pop().size * axis.size, axis.strides)
        merged.append(axis)
    return tuple(merged)


@dataclass(frozen=True, slots=True)
class JoinAccess:
    """One array: its type, and whether it varies along the axes of each group."""

    type: DType
    varies: tuple[bool, bool, bool, bool]


@dataclass(frozen=True, slots=True)
class JoinForm:
    """A kernel's program, arrays, and how many axes each group has."""

    program: PointProgram
    inputs: tuple[JoinAccess, ...]
    scalars: tuple[DType, ...]
    outputs: tuple[JoinAccess, ...]
    counts: tuple[int, int, int, int]

    def arrays(self) -> list[tuple[str, JoinAccess]]:
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

    def integers(self, groups: Sequence[Sequence[JoinAxis]]) -> list[int]:
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


def accesses(
    types: Sequence[DType], groups: Sequence[Sequence[JoinAxis]]
) -> tuple[JoinAccess, ...]:
    """How arrays of the given types, in the axes' order, vary with each group.

    Along an axis without elements all do, so that nothing is read ahead of its loop.
    """
    varying: list[JoinAccess] = []
    for k, of in enumerate(types):
        batch, rows, cols, summed = (
            any(axis.strides[k] or not axis.size for axis in axes) for axes in groups
        )
        varying.append(JoinAccess(of, (batch, rows, cols, summed)))
    return tuple(varying)


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
        matrices = operand.as_strided(self.shape, self.source, operand.storage_offset())
        matrices = matrices.reshape(self.batch, self.summed, self.own)
        shape = (self.batch, self.packs, self.padded, PACK)
        buffer = torch.empty(shape, dtype=operand.dtype, device=operand.device)
        whole, rest = divmod(self.summed, PACK)
        packed = matrices[:, : whole * PACK].reshape(self.batch, whole, PACK, self.own)
        buffer[:, :whole, : self.own].copy_(packed.transpose(2, 3))
        if rest:
            last = matrices[:, whole * PACK :].transpose(1, 2)
            buffer[:, whole, : self.own, :rest].copy_(last)
        return buffer


def copy_of(
    source: Mapping[str, int], sizes: Mapping[str, int], split: Split, tile: tuple[int, int]
) -> tuple[Copy, dict[str, int]] | None:
    """The copy of an operand of given strides, and the copy's own; None if it would not help.

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
    strides = contiguous(own, sizes, PACK) | contiguous(summed, sizes, step)
    return copy, strides | contiguous(batch, sizes, step * copy.packs)


@dataclass(frozen=True, slots=True)
class Tuning:
    """One way to run a kernel: a block of the tile, the blocks of a tile, and the rest."""

    rows: int
    cols: int
    high: int = 1
    wide: int = 1
    warps: int = 4
    unroll: int = 4
    """How many summed steps are written out, each a pack where inputs are packed."""
    packed: bool = False
    """Whether inputs are first copied so that rows or columns, and packs of summed steps, are
    neighbours in memory, and one load brings a pack."""
    registers: int | None = None
    """The most that a thread may have, so that more of them run at once."""

    @property
    def tile(self) -> tuple[int, int]:
        """The rows and columns of a tile."""
        return self.rows * self.high, self.cols * self.wide

    @property
    def options(self) -> dict[str, Any]:
        """What Triton's compiler is told."""
        limit = {} if self.registers is None else {"maxnreg": self.registers}
        return {"num_warps": self.warps, "enable_fp_fusion": True, **limit}

    def __str__(self) -> str:
        how = "packed" if self.packed else "direct"
        tile = f"{self.high}x{self.wide} of {self.rows}x{self.cols}"
        limit = "" if self.registers is None else f" registers {self.registers}"
        return f"{how} {tile} unroll {self.unroll} warps {self.warps}{limit}"


INTERPRETED = Tuning(8, 8, 2, 2, unroll=2)
LARGE = (
    Tuning(8, 16, 4, 8, 4, 1, True),
    Tuning(8, 16, 8, 4, 4, 1, True, 96),
    Tuning(8, 16, 8, 8, 4, 1, True, 144),
    Tuning(8, 16, 8, 8, 4, 1, True, 128),
    Tuning(16, 16, 8, 8, 8, 4, registers=128),
)
"""Ways for many rows and columns. A block has one accumulator for each thread, so that a tile takes
`high` times `wide` registers, and a step as many loads as their sum."""
_SMALL = (
    Tuning(8, 16, 4, 4, 4, 1, True),
    Tuning(8, 16, 4, 4, 4, 4),
    Tuning(8, 16, 2, 2, 4, 8),
    Tuning(4, 8, 2, 2, 1, 8),
)
_MOST = 8  # ways that are tried: each has to be compiled
_REGISTERS = 128  # that accumulators may take
_PROGRAMS = 264  # two for each multiprocessor of a large card
MANY = 2**33
"""Points from which on it pays to measure several configurations."""


def tile_configs(batch: int, rows: int, cols: int, points: int, width: int) -> list[Tuning]:
    """The ways worth trying for a tile kernel, of which the first serves without measuring.

    `points` are those of the join; `width` is the number of registers that a state takes. Tiles are
    smaller where large ones would leave multiprocessors idle.

    >>> print(tile_configs(1, 8192, 8192, 2**39, 1)[0])
    packed 4x8 of 8x16 unroll 1 warps 4
    >>> [config.tile for config in tile_configs(1, 512, 512, 2**39, 1)]
    [(16, 32), (8, 16)]
    """
    fitting: list[Tuning] = []
    filling: list[Tuning] = []
    for way in (*LARGE, *_SMALL):
        high, wide = way.tile
        if way.high * way.wide * width <= _REGISTERS and high <= rows and wide <= cols:
            fitting.append(way)
            if batch * -(-rows // high) * -(-cols // wide) >= _PROGRAMS:
                filling.append(way)
    height, breadth = _power(rows, 8), _power(cols, 16)
    block = Tuning(height, breadth, unroll=8, warps=max(1, height * breadth // 32))
    ways = filling[:_MOST] or [*fitting[-1:], block]
    return ways if points >= MANY else ways[:1]


def _power(size: int, most: int) -> int:
    return min(most, 1 << max(size - 1, 0).bit_length())


_VERDICTS = Verdicts("triton joins", lambda: [triton.__version__, torch.cuda.get_device_name()])


def fastest_config(name: str, configs: Sequence[Tuning], run: Callable[[Tuning], None]) -> Tuning:
    """The fastest way for a class of joins, measured once; those that do not run are left out."""
    if len(configs) == 1 or torch.cuda.is_current_stream_capturing():
        return configs[0]
    by_name = {str(config): config for config in configs}

    def measure() -> str:
        ways: dict[str, Callable[[], None]] = {}
        failures: list[str] = []
        for each, config in by_name.items():
            try:
                run(config)  # compiles
                ways[each] = partial(run, config)
            except Exception as error:
                failures.append(f"{each}: {error}")
        if not ways:
            raise RunError(f"no way to compute this runs: {failures[0]}")
        return fastest_of(ways, partial(seconds_of, device=torch.device("cuda")))

    return by_name[_VERDICTS.find(name, measure, by_name.__contains__)]
