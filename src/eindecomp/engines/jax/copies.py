"""Who copies what to whom in a step, as rounds of equal messages.

Where a move is no collective that JAX has, or pieces are unequal, blocks travel by permutations: in
each round a device sends at most one block and receives at most one, and all blocks of a round have
one shape. So exactly what was planned travels, and no padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from eindecomp.layout.boxes import shape_of, volume
from eindecomp.layout.tiling import Tiling, group_along
from eindecomp.tra.program.device_row import moves

if TYPE_CHECKING:
    from eindecomp.layout.boxes import Box
    from eindecomp.layout.mesh import Mesh

    Place = tuple[int, ...]
    """Where a block begins in an array."""


@dataclass(frozen=True, slots=True)
class Lying:
    """The blocks that devices have of a tensor, in arrays as large as the largest block."""

    boxes: tuple[Box, ...]
    shape: tuple[int, ...]
    """The largest side of any block along each dimension."""
    is_even: bool
    """Whether all blocks have that shape."""


@lru_cache(maxsize=1 << 12)
def lying(mesh: Mesh, tiling: Tiling) -> Lying:
    """How a tensor lies in a tiling."""
    boxes = tuple(tiling.box(mesh, device) for device in range(mesh.devices))
    rank = len(tiling.cut)
    shapes = [shape_of(box) for box in boxes if len(box) == rank]  # one number has one share
    largest = tuple(max(sides) for sides in zip(*shapes, strict=True)) if rank else ()
    is_even = len(shapes) == len(boxes) and all(shape == largest for shape in shapes)
    return Lying(boxes, largest, is_even)


@dataclass(frozen=True, slots=True)
class Copy:
    """A block that a device has in one array and another device, or the same, puts in another."""

    source: int
    target: int
    taken_from: Place
    put_at: Place
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """Blocks of one shape that are copied at once: to other devices, or each to itself."""

    shape: tuple[int, ...]
    copies: tuple[Copy, ...]

    @property
    def is_local(self) -> bool:
        """Whether nothing travels."""
        return self.copies[0].source == self.copies[0].target

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Who sends to whom."""
        return [(copy.source, copy.target) for copy in self.copies]


def rounds_of(copies: Iterable[Copy]) -> list[Round]:
    """Copies in as few rounds as come about by taking them in order of their distance."""
    by_shape: dict[tuple[bool, tuple[int, ...]], list[Copy]] = {}
    for copy in copies:
        by_shape.setdefault((copy.source != copy.target, copy.shape), []).append(copy)
    found: list[Round] = []
    for _, alike in sorted(by_shape.items(), key=lambda item: item[0][0]):
        devices = 1 + max(max(copy.source, copy.target) for copy in alike)
        alike.sort(key=lambda copy: ((copy.target - copy.source) % devices, copy.source))
        found += _without_clashes(alike)
    return found


def _without_clashes(copies: Sequence[Copy]) -> list[Round]:
    rounds: list[tuple[list[Copy], set[int], set[int]]] = []
    for copy in copies:
        free = (own for own in rounds if copy.source not in own[1] and copy.target not in own[2])
        chosen = next(free, None)
        if chosen is None:
            chosen = (list[Copy](), set[int](), set[int]())
            rounds.append(chosen)
        chosen[0].append(copy)
        chosen[1].add(copy.source)
        chosen[2].add(copy.target)
    return [Round(taken[0].shape, tuple(taken)) for taken, _, _ in rounds]


def copies_of_move(mesh: Mesh, held: Tiling, wanted: Tiling) -> list[Copy]:
    """What devices keep and receive where a tensor moves from one tiling to another."""
    before, after = lying(mesh, held), lying(mesh, wanted)
    found: list[Copy] = []
    for device in range(mesh.devices):
        own = moves(mesh, held, wanted, device)
        for piece in (*own.kept, *own.receives):
            taken = lows_within(piece.box, before.boxes[piece.peer])
            put = lows_within(piece.box, after.boxes[device])
            found.append(Copy(piece.peer, device, taken, put, shape_of(piece.box)))
    return found


def copies_of_reduction(
    mesh: Mesh, partial: Tiling, shares: Tiling, axes: int, width: int
) -> list[Copy]:
    """The parts of every device's share, one after another in the order of their devices.

    Arrays have two dimensions more than a part: which one it is, and `width` numbers of a state.
    """
    before, after = lying(mesh, partial), lying(mesh, shares)
    found: list[Copy] = []
    for device, box in enumerate(after.boxes):
        if not volume(box):
            continue
        zeros, shape = (0,) * len(box), (1, width, *shape_of(box))
        for place, member in enumerate(group_along(mesh, axes, device)):
            taken = lows_within(box, before.boxes[member])
            found.append(Copy(member, device, (0, 0, *taken), (place, 0, *zeros), shape))
    return found


def lows_within(box: Box, other: Box) -> Place:
    """Where a box begins in an array that holds another; an empty one begins anywhere."""
    if not volume(box):
        return (0,) * len(box)
    return tuple(low - start for (low, _), (start, _) in zip(box, other, strict=True))
