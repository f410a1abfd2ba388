"""Moves and reductions between devices, traced: collectives of JAX where there are, else rounds.

Where a move is no collective that JAX has, or pieces are unequal, blocks travel by permutations: in
each round a device sends at most one block and receives at most one, and all blocks of a round have
one shape. So exactly what was planned travels, and no padding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from eindecomp.lang.dtypes import BFLOAT16
from eindecomp.layout.boxes import Box, shape_of, volume
from eindecomp.layout.cut import bits_of
from eindecomp.layout.mesh import Mesh
from eindecomp.layout.tiling import Tiling, group_along
from eindecomp.tra.program.device_row import moves
from eindecomp.tra.program.steps import Exchanged, Gathered, Pattern

Place = tuple[int, ...]
"""Where a block begins in an array."""
States = tuple[Array, ...]

collectives: Any = lax
"""Those functions of JAX of which it does not say what their types are."""


@dataclass
class Here:
    """The device that traces stand for: one number for all, where devices do not differ."""

    mesh: Mesh

    @cached_property
    def device(self) -> Any:
        """The device's number."""
        return lax.axis_index(self.mesh.names) if self.mesh.names else 0

    def names(self, axes: Sequence[int]) -> tuple[str, ...]:
        """Axes of the mesh by name."""
        return tuple(self.mesh.names[axis] for axis in axes)

    def pick(self, values: Sequence[int]) -> Any:
        """One of these, by the device's number."""
        if len(set(values)) == 1:
            return values[0]
        return jnp.asarray(np.array(values, np.int32))[self.device]

    def place(self, places: Mapping[int, Place], rank: int) -> list[Any]:
        """Where a block begins on this device; it does not matter on devices without a place."""
        anywhere = next(iter(places.values()))
        every = [places.get(device, anywhere) for device in range(self.mesh.devices)]
        return [self.pick([place[d] for place in every]) for d in range(rank)]

    def taken(self, x: Array, start: Sequence[Any], shape: Sequence[int]) -> Array:
        """A block of an array."""
        if tuple(shape) == x.shape:
            return x
        if all(isinstance(low, int) for low in start):
            ends = [low + size for low, size in zip(start, shape, strict=True)]
            return lax.slice(x, list(start), ends)
        return lax.dynamic_slice(x, _numbers(start), tuple(shape))

    def put(self, into: Array, x: Array, start: Sequence[Any], on: Sequence[int]) -> Any:
        """An array with a block replaced on some devices."""
        everywhere = len(on) == self.mesh.devices
        if everywhere and x.shape == into.shape:
            return x
        if not everywhere:
            chosen = self.pick([int(device in on) for device in range(self.mesh.devices)]) == 1
            x = jnp.where(chosen, x, self.taken(into, start, x.shape))
        return lax.dynamic_update_slice(into, x, _numbers(start))


def _numbers(start: Sequence[Any]) -> list[Any]:
    return [jnp.asarray(low, np.int32) for low in start]


def padded(x: Array, shape: Sequence[int]) -> Array:
    """An array with room behind it."""
    if x.shape == tuple(shape):
        return x
    room = [(0, size - own, 0) for own, size in zip(x.shape, shape, strict=True)]
    return lax.pad(x, np.zeros((), x.dtype), room)


# What is copied to whom


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
class BlockCopy:
    """A block that a device has in one array and another device, or the same, puts in another."""

    source: int
    target: int
    taken_from: Place
    put_at: Place
    shape: tuple[int, ...]


def rounds_of(copies: Iterable[BlockCopy]) -> list[list[BlockCopy]]:
    """Copies of one shape that are made at once: to other devices, or each to itself.

    There are as few rounds as come about by taking copies in order of their distance.
    """
    by_shape: dict[tuple[bool, tuple[int, ...]], list[BlockCopy]] = {}
    for copy in copies:
        by_shape.setdefault((copy.source != copy.target, copy.shape), []).append(copy)
    rounds: list[list[BlockCopy]] = []
    for _, alike in sorted(by_shape.items(), key=lambda item: item[0][0]):
        devices = 1 + max(max(copy.source, copy.target) for copy in alike)
        alike.sort(key=lambda copy: ((copy.target - copy.source) % devices, copy.source))
        rounds += _without_clashes(alike)
    return rounds


def _without_clashes(copies: Sequence[BlockCopy]) -> list[list[BlockCopy]]:
    rounds: list[tuple[list[BlockCopy], set[int], set[int]]] = []
    for copy in copies:
        free = (own for own in rounds if copy.source not in own[1] and copy.target not in own[2])
        chosen = next(free, None)
        if chosen is None:
            chosen = (list[BlockCopy](), set[int](), set[int]())
            rounds.append(chosen)
        chosen[0].append(copy)
        chosen[1].add(copy.source)
        chosen[2].add(copy.target)
    return [taken for taken, _, _ in rounds]


def copies_of_move(mesh: Mesh, held: Tiling, wanted: Tiling, first: int = 0) -> list[BlockCopy]:
    """What devices keep and receive where a tensor moves from one tiling to another.

    Those that are not the first along the axes `first` have nothing of it.
    """
    before, after = lying(mesh, held), lying(mesh, wanted)
    copies: list[BlockCopy] = []
    for device in range(mesh.devices):
        own = moves(mesh, held, wanted, device, first)
        for piece in (*own.kept, *own.receives):
            taken = lows_within(piece.box, before.boxes[piece.peer])
            put = lows_within(piece.box, after.boxes[device])
            copies.append(BlockCopy(piece.peer, device, taken, put, shape_of(piece.box)))
    return copies


def copies_of_reduction(
    mesh: Mesh, partial: Tiling, shares: Tiling, axes: int, width: int
) -> list[BlockCopy]:
    """The parts of every device's share, one after another in the order of their devices.

    Arrays have two dimensions more than a part: which one it is, and `width` numbers of a state.
    """
    before, after = lying(mesh, partial), lying(mesh, shares)
    copies: list[BlockCopy] = []
    for device, box in enumerate(after.boxes):
        if not volume(box):
            continue
        zeros, shape = (0,) * len(box), (1, width, *shape_of(box))
        for place, member in enumerate(group_along(mesh, axes, device)):
            taken = lows_within(box, before.boxes[member])
            copies.append(BlockCopy(member, device, (0, 0, *taken), (place, 0, *zeros), shape))
    return copies


def lows_within(box: Box, other: Box) -> Place:
    """Where a box begins in an array that holds another; an empty one begins anywhere."""
    if not volume(box):
        return (0,) * len(box)
    return tuple(low - start for (low, _), (start, _) in zip(box, other, strict=True))


# Moves


def move(
    here: Here, pattern: Pattern, held: Tiling, wanted: Tiling, x: Array, first: int = 0
) -> Array:
    """A device's block in another tiling; 0 where only the first ones along some axes have it."""
    return _as_bits(x, lambda bits: _move(here, pattern, held, wanted, bits, first))


def _as_bits(x: Array, send: Callable[[Array], Array]) -> Array:
    """What is sent of an array; on a CPU XLA would send a bfloat16 as a float32."""
    if x.dtype != BFLOAT16:
        return send(x)
    return lax.bitcast_convert_type(send(lax.bitcast_convert_type(x, np.uint16)), BFLOAT16)


def _move(
    here: Here, pattern: Pattern, held: Tiling, wanted: Tiling, x: Array, first: int
) -> Array:
    before, after = lying(here.mesh, held), lying(here.mesh, wanted)
    if 0 in after.shape:  # of nothing, which collectives refuse
        return jnp.zeros(after.shape, x.dtype)
    if before.is_even and after.is_even:
        match pattern:
            case Gathered(axes, ()):
                longest = int(np.argmax(after.shape))
                return collectives.all_gather(x, here.names(axes), axis=longest, tiled=True)
            case Gathered():
                return _gather(here, pattern, held, wanted, x)
            # Exactly the exchanged axes are new where the target dimension is cut.
            case Exchanged(axes, source, target) if wanted.cut[target].axes == (
                *held.cut[target].axes,
                *axes,
            ):
                x = _cut_first(here, held, wanted, {source, target}, x)
                names = here.names(axes)
                return collectives.all_to_all(x, names, target, source, tiled=True)
            case _:
                pass
    return copy_in_rounds(here, copies_of_move(here.mesh, held, wanted, first), x, after.shape)


def _gather(here: Here, pattern: Gathered, held: Tiling, wanted: Tiling, x: Array) -> Array:
    x = _cut_first(here, held, wanted, {*pattern.dimensions}, x)
    for dimension in dict.fromkeys(pattern.dimensions):
        places = zip(pattern.axes, pattern.dimensions, strict=True)
        axes = [axis for axis, own in places if own == dimension]
        x = collectives.all_gather(x, here.names(axes), axis=dimension, tiled=True)
    return x


def _cut_first(here: Here, held: Tiling, wanted: Tiling, exchanged: set[int], x: Array) -> Array:
    """The block of a device's own tile that it keeps along dimensions that are not exchanged."""
    before, after = (lying(here.mesh, tiling).boxes for tiling in (held, wanted))
    mid: list[Box] = [
        tuple(own[d] if d in exchanged else new[d] for d in range(len(own)))
        for own, new in zip(before, after, strict=True)
    ]
    places = {k: lows_within(box, before[k]) for k, box in enumerate(mid)}
    return here.taken(x, here.place(places, x.ndim), shape_of(mid[0]))


def copy_in_rounds(
    here: Here, copies: Iterable[BlockCopy], x: Array, shape: Sequence[int]
) -> Array:
    """An array put together from blocks of arrays that devices have."""
    made = jnp.zeros(tuple(shape), x.dtype)
    for each in rounds_of(copies):
        taken = {copy.source: copy.taken_from for copy in each}
        block = here.taken(x, here.place(taken, x.ndim), each[0].shape)
        if each[0].source != each[0].target:
            pairs = [(copy.source, copy.target) for copy in each]
            block = collectives.ppermute(block, here.mesh.names, pairs)
        put = {copy.target: copy.put_at for copy in each}
        made = here.put(made, block, here.place(put, x.ndim), [*put])
    return made


def add_up(
    here: Here, partial: Tiling, home: Tiling, axes: int, split: int, x: Array, whole: bool
) -> Array | None:
    """The sum of partial results, None where pieces differ; XLA decides in which order it adds.

    It is a device's share or, with `whole`, all that a device holds: an all-reduce moves as much as
    the reduce-scatter and the all-gather that it stands for.
    """
    before, after = lying(here.mesh, partial), lying(here.mesh, home)
    shares = lying(here.mesh, Tiling(home.cut, split))
    pairs = list(zip(partial.cut, home.cut, strict=True))
    gained = [new.axes[len(old.axes) :] for old, new in pairs]
    nests = all(new.axes[: len(old.axes)] == old.axes for old, new in pairs)
    scattered = sum(bits_of(own) for own in gained)
    is_even = before.is_even and after.is_even and (whole or shares.is_even)
    if not (is_even and nests and scattered == axes & ~split):
        return None
    for dimension, own in enumerate(gained):
        if own:
            names = here.names(own)
            x = collectives.psum_scatter(x, names, scatter_dimension=dimension, tiled=True)
    if not split:
        return x
    names = here.names([axis for axis in range(len(here.mesh.sizes)) if split >> axis & 1])
    if whole:
        return collectives.psum(x, names)
    longest = int(np.argmax(after.shape))
    return collectives.psum_scatter(x, names, scatter_dimension=longest, tiled=True)


def combine_shares(
    here: Here,
    partial: Tiling,
    shares: Tiling,
    axes: int,
    states: States,
    combine: Callable[[States, States], States],
    wide: Callable[[States], States] | None = None,
) -> States:
    """The combined states of every device's share, taken in the order of the devices.

    The numbers of a state travel together where they have one type: else XLA would leave out
    those that no result is made of. `wide` makes states of what has travelled in another type.
    """
    if len({x.dtype for x in states}) == 1:
        together = _collected(here, partial, shares, axes, jnp.stack(states))
        received = [together[:, k] for k in range(len(states))]
    else:
        received = [_collected(here, partial, shares, axes, x[None])[:, 0] for x in states]
    parts = (tuple(x[place] for x in received) for place in range(received[0].shape[0]))
    return reduce(combine, parts if wide is None else map(wide, parts))


def _collected(here: Here, partial: Tiling, shares: Tiling, axes: int, x: Array) -> Array:
    """What all members of a group have of a device's share, one after another.

    The first dimension of `x`, and the second of what comes out, are a state's numbers.
    """
    mesh, after, width = here.mesh, lying(here.mesh, shares), x.shape[0]
    copies = copies_of_reduction(mesh, partial, shares, axes, width)
    count = len(group_along(mesh, axes, 0))
    shape = (count, width, *after.shape)
    return _as_bits(x[None], lambda bits: copy_in_rounds(here, copies, bits, shape))
