"""Buffers, each a tensor in one tiling over all devices, and the steps that read and write them.

The pattern of a move says whether it is a collective, and over which axes. Within a dimension, axes
nest from the outermost in. A tile that is cut further keeps its axes as the outer ones and lies
inside the old tile; a tile that is gathered loses inner ones. Comparing the two lists of axes,
dimension by dimension, tells what a move is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from eindecomp.lang.dtypes import DType
from eindecomp.layout.boxes import Box, volume
from eindecomp.layout.cut import Cut, Span, axes_in, is_plain, pieces_by, used_axes
from eindecomp.layout.mesh import CEIL, Mesh
from eindecomp.layout.overlaps import moved
from eindecomp.layout.tiling import Tiling
from eindecomp.layout.view import NamedRows

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
    """The vertex that reads it; None for an output."""


@dataclass(frozen=True, slots=True)
class Read:
    """An operand: the block that a cut gives each device, inside its block of a buffer."""

    buffer: Number
    cut: Cut


@dataclass(frozen=True, slots=True)
class MovedRows:
    """Which rows of a table move: those that a block of an index names, each with its number.

    For a lookup it is the block of the device that wants rows, for a reduction that of the device
    that has partial sums of them; all others are 0.
    """

    index: Read
    named: NamedRows
    most: int
    """The bytes that all devices receive at most, numbers of rows included."""


@dataclass(frozen=True, slots=True)
class Compute:
    """One kernel call on every device: a tile of a vertex, or a part of its sum.

    The kernel is that of the tensor of `into`, which for results that stay in parts is another.
    """

    vertex: str
    reads: tuple[Read | None, ...]
    """The operands in order; None for one whose elements are never read."""
    into: Number
    is_partial: bool
    numbers: Cut = ()
    """How the labels are cut that only windows have."""


@dataclass(frozen=True, slots=True)
class Move:
    """Every device puts together what it wants of a tensor that lies in another tiling."""

    vertex: str
    """The vertex that reads it; for a second layout, the tensor's own."""
    source: Number
    into: Number
    pattern: Pattern
    rows: MovedRows | None = None
    """The rows that are put together, nothing else of the block; None for all of it."""
    first: int = 0
    """The axes (as bits) along which only the first device receives anything."""
    identity: str = ""
    """The fill that all others make instead, with the identity of what combines their parts."""


@dataclass(frozen=True, slots=True)
class ReduceScatter:
    """Devices that differ along `axes` combine their partial results, each device one block.

    Partial results are combined in the order of the devices' numbers and finished into `into`, by
    the kernel of its tensor; where they differ along other axes, too, that holds partial results. A
    device reduces its own block or, where several hold the same one (along `split`), its share.
    """

    vertex: str
    source: Number
    into: Number
    axes: int
    split: int
    rows: MovedRows | None = None
    """The rows of which there are partial sums; None for whole blocks."""


@dataclass(frozen=True, slots=True)
class AllGather:
    """Devices along `axes` exchange their shares of the same block of `buffer`."""

    vertex: str
    buffer: Number
    axes: int

    @property
    def source(self) -> Number:
        """The buffer, whose shares are sent."""
        return self.buffer

    @property
    def into(self) -> Number:
        """The buffer, which is completed."""
        return self.buffer


@dataclass(frozen=True, slots=True)
class Free:
    """Every device lets go of its block of a buffer, which nobody reads any more."""

    buffer: Number


Communication = Move | ReduceScatter | AllGather
MakingStep = Load | Generate | Compute | Communication
"""What makes or completes a buffer, `into`."""
Step = MakingStep | Free


def used_by(step: Step) -> tuple[int, ...]:
    """The buffers that a step uses; the last one is what it makes, completes or lets go of."""
    match step:
        case Load() | Generate():
            return (step.into,)
        case Compute():
            return (*(read.buffer for read in step.reads if read is not None), step.into)
        case Move() | ReduceScatter():
            index = () if step.rows is None else (step.rows.index.buffer,)
            return (step.source, *index, step.into)
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
    """Partial results that wait to be reduced; readers may use them where they are."""
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
    """The buffer that a device takes a view of, where its block lies inside that buffer's."""

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


@dataclass(frozen=True, slots=True)
class LocalSlice:
    """Every device has what it wants already: a block of its own tile."""

    def __str__(self) -> str:
        return "local slice"


@dataclass(frozen=True, slots=True)
class Gathered:
    """An all-gather: devices that differ along `axes` put their tiles together.

    Before that, each may take a block of its own tile along other dimensions.
    """

    axes: tuple[int, ...]
    dimensions: tuple[int, ...]
    """The dimension that each axis cut."""

    def __str__(self) -> str:
        return "all-gather"


@dataclass(frozen=True, slots=True)
class Exchanged:
    """An all-to-all over `axes`: they cut dimension `source` before and `target` after."""

    axes: tuple[int, ...]
    source: int
    target: int

    def __str__(self) -> str:
        return "all-to-all"


@dataclass(frozen=True, slots=True)
class Permuted:
    """Every device receives one whole tile of another."""

    def __str__(self) -> str:
        return "permutation"


@dataclass(frozen=True, slots=True)
class PointToPoint:
    """Anything else: blocks from one device to another."""

    def __str__(self) -> str:
        return "point to point"


Pattern = LocalSlice | Gathered | Exchanged | Permuted | PointToPoint


def pattern_of(mesh: Mesh, held: Tiling, wanted: Tiling) -> Pattern:
    """The pattern of a move from one tiling to another."""
    if held.split and not wanted.split and held.cut == wanted.cut:
        # The shares of a tile lie side by side along its longest side.
        return Gathered(axes_in(mesh, held.split), ())
    if held.split or wanted.split or not is_plain(held.cut) or not is_plain(wanted.cut):
        return PointToPoint()
    if not moved(mesh, [held.cut], [wanted.cut])[0, 0]:
        return LocalSlice()
    return _collective(mesh, held.cut, wanted.cut) or _permutation(mesh, held.cut, wanted.cut)


def _collective(mesh: Mesh, held: Cut, wanted: Cut) -> Gathered | Exchanged | None:
    lost: dict[int, int] = {}
    gained: dict[int, int] = {}
    for dimension, (ours, theirs) in enumerate(zip(held, wanted, strict=True)):
        if not _comparable(mesh, ours, theirs):
            return None
        before, after = ours.axes, theirs.axes
        shared = min(len(before), len(after))
        if before[:shared] != after[:shared]:
            return None
        lost |= dict.fromkeys(before[shared:], dimension)
        gained |= dict.fromkeys(after[shared:], dimension)
    both = lost.keys() & gained.keys()
    if not both:
        return Gathered(tuple(lost), tuple(lost.values()))
    if both == lost.keys() and len({lost[a] for a in both}) == 1 == len({gained[a] for a in both}):
        axes = tuple(lost)
        # Each device's piece goes where the other dimension wants it only if both nest alike.
        if tuple(a for a in gained if a in both) == axes:
            return Exchanged(axes, lost[axes[0]], gained[axes[0]])
    return None


def _comparable(mesh: Mesh, ours: Span, theirs: Span) -> bool:
    """Whether axes that two spans share cut both at the same places."""
    if (ours.start, ours.stop) != (theirs.start, theirs.stop):
        return False
    if (ours.units, ours.scale) == (theirs.units, theirs.scale):
        return True
    return all(span.units % pieces_by(mesh, span.axes) == 0 for span in (ours, theirs))


def _same_grid(mesh: Mesh, ours: Span, theirs: Span) -> bool:
    """Whether two spans that are comparable have the same pieces, in whatever order of axes."""
    parts = pieces_by(mesh, ours.axes)
    if mesh.pieces == CEIL and ours.units % parts:
        # Chunks of chunks depend on how many there are at each level.
        return [mesh.sizes[a] for a in ours.axes] == [mesh.sizes[a] for a in theirs.axes]
    return parts == pieces_by(mesh, theirs.axes)


def _permutation(mesh: Mesh, held: Cut, wanted: Cut) -> Permuted | PointToPoint:
    """Whether the same grid of tiles is only numbered in another way."""
    is_same = used_axes(held) == used_axes(wanted)  # else one tile would go to several devices
    for ours, theirs in zip(held, wanted, strict=True):
        is_same &= _comparable(mesh, ours, theirs) and _same_grid(mesh, ours, theirs)
    return Permuted() if is_same else PointToPoint()
