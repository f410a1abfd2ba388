"""Moves and reductions between devices, as collectives of JAX where they are, else in rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from eindecomp.engines.jax.copies import (
    copies_of_move,
    copies_of_reduction,
    lows_within,
    lying,
    rounds_of,
)
from eindecomp.lang.dtypes import BFLOAT16
from eindecomp.layout.boxes import shape_of
from eindecomp.layout.cut import bits_of
from eindecomp.layout.tiling import Tiling, group_along
from eindecomp.tra.program.patterns import Exchanged, Gathered, Pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import jax

    from eindecomp.engines.jax.copies import Copy
    from eindecomp.engines.jax.here import Here
    from eindecomp.layout.boxes import Box

    States = tuple[jax.Array, ...]

collectives: Any = lax
"""JAX does not say what the types of these are."""


def move(here: Here, pattern: Pattern, held: Tiling, wanted: Tiling, x: jax.Array) -> jax.Array:
    """A device's block in another tiling."""
    if x.dtype != BFLOAT16:
        return _move(here, pattern, held, wanted, x)
    # As bits: on a CPU XLA would send a bfloat16 as a float32.
    bits = lax.bitcast_convert_type(x, np.uint16)
    return lax.bitcast_convert_type(_move(here, pattern, held, wanted, bits), BFLOAT16)


def _move(here: Here, pattern: Pattern, held: Tiling, wanted: Tiling, x: jax.Array) -> jax.Array:
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
            case Exchanged(axes, source, target) if _cuts_target(held, wanted, pattern):
                x = _cut_first(here, held, wanted, {source, target}, x)
                names = here.names(axes)
                return collectives.all_to_all(x, names, target, source, tiled=True)
            case _:
                pass
    return copy_in_rounds(here, copies_of_move(here.mesh, held, wanted), x, after.shape)


def _gather(here: Here, pattern: Gathered, held: Tiling, wanted: Tiling, x: jax.Array) -> jax.Array:
    x = _cut_first(here, held, wanted, {*pattern.dimensions}, x)
    for dimension in dict.fromkeys(pattern.dimensions):
        places = zip(pattern.axes, pattern.dimensions, strict=True)
        axes = [axis for axis, own in places if own == dimension]
        x = collectives.all_gather(x, here.names(axes), axis=dimension, tiled=True)
    return x


def _cuts_target(held: Tiling, wanted: Tiling, pattern: Exchanged) -> bool:
    """Whether exactly the exchanged axes are new where the target dimension is cut."""
    before, after = (tiling.cut[pattern.target].axes for tiling in (held, wanted))
    return after == (*before, *pattern.axes)


def _cut_first(
    here: Here, held: Tiling, wanted: Tiling, exchanged: set[int], x: jax.Array
) -> jax.Array:
    """The block of a device's own tile that it keeps along dimensions that are not exchanged."""
    before, after = (lying(here.mesh, tiling).boxes for tiling in (held, wanted))
    mid: list[Box] = [
        tuple(own[d] if d in exchanged else new[d] for d in range(len(own)))
        for own, new in zip(before, after, strict=True)
    ]
    places = {k: lows_within(box, before[k]) for k, box in enumerate(mid)}
    return here.taken(x, here.place(places, x.ndim), shape_of(mid[0]))


def copy_in_rounds(
    here: Here, copies: Iterable[Copy], x: jax.Array, shape: Sequence[int]
) -> jax.Array:
    """An array put together from blocks of arrays that devices have."""
    made = jnp.zeros(tuple(shape), x.dtype)
    for each in rounds_of(copies):
        taken = {copy.source: copy.taken_from for copy in each.copies}
        block = here.taken(x, here.place(taken, x.ndim), each.shape)
        if not each.is_local:
            block = collectives.ppermute(block, here.mesh.names, each.pairs)
        put = {copy.target: copy.put_at for copy in each.copies}
        made = here.put(made, block, here.place(put, x.ndim), [*put])
    return made


def add_up(
    here: Here, partial: Tiling, home: Tiling, axes: int, split: int, x: jax.Array, whole: bool
) -> jax.Array | None:
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
    if split and whole:
        return collectives.psum(x, here.names(_listed(here, split)))
    if split:
        longest, names = int(np.argmax(after.shape)), here.names(_listed(here, split))
        return collectives.psum_scatter(x, names, scatter_dimension=longest, tiled=True)
    return x


def combine_shares(
    here: Here,
    partial: Tiling,
    shares: Tiling,
    axes: int,
    states: States,
    combine: Callable[[States, States], States],
) -> States:
    """The combined states of every device's share, taken in the order of the devices.

    The numbers of a state travel together where they have one type: else XLA would leave out
    those that no result is made of.
    """
    if len({x.dtype for x in states}) == 1:
        together = _collected(here, partial, shares, axes, jnp.stack(states))
        received = [together[:, k] for k in range(len(states))]
    else:
        received = [_collected(here, partial, shares, axes, x[None])[:, 0] for x in states]
    total = tuple(x[0] for x in received)
    for place in range(1, received[0].shape[0]):
        total = combine(total, tuple(x[place] for x in received))
    return total


def _collected(here: Here, partial: Tiling, shares: Tiling, axes: int, x: jax.Array) -> jax.Array:
    """What all members of a group have of a device's share, one after another.

    The first dimension of `x`, and the second of what comes out, are a state's numbers.
    """
    mesh, after, width = here.mesh, lying(here.mesh, shares), x.shape[0]
    places = _places_alike(here, partial, shares, axes)
    if places is not None:
        names = here.names(_listed(here, axes))
        shape = (width, *after.shape)
        blocks = jnp.stack([here.taken(x, (0, *place), shape) for place in places])
        return collectives.all_to_all(blocks, names, 0, 0, tiled=True)
    copies = copies_of_reduction(mesh, partial, shares, axes, width)
    count = len(group_along(mesh, axes, 0))
    return copy_in_rounds(here, copies, x[None], (count, width, *after.shape))


def _places_alike(
    here: Here, partial: Tiling, shares: Tiling, axes: int
) -> list[tuple[int, ...]] | None:
    """Where members' shares begin in a tile, if that is the same on all devices."""
    mesh = here.mesh
    before, after = lying(mesh, partial), lying(mesh, shares)
    if not (before.is_even and after.is_even):
        return None
    found = {
        tuple(
            lows_within(after.boxes[member], before.boxes[device])
            for member in group_along(mesh, axes, device)
        )
        for device in range(mesh.devices)
    }
    return [*found.pop()] if len(found) == 1 else None


def _listed(here: Here, axes: int) -> list[int]:
    return [axis for axis in range(len(here.mesh.sizes)) if axes >> axis & 1]
