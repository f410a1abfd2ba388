"""Products of one tensor with several matrices that lie one after another: one larger product.

A layer multiplies the same activations by several weights. Where those lie side by side in memory,
one call multiplies by all of them, and its parts are views of one result.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING

import torch

from eindecomp.kernels.torch.products import times_rows
from eindecomp.lang.dtypes import Kind as NumberKind
from eindecomp.lang.dtypes import kind
from eindecomp.lang.einsum import EinSum
from eindecomp.tra.tiles.ops import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.lang.einsum import Labels
    from eindecomp.tra.tiles.ops import Block, Region, TileOp, TileProgram

    Tensor = torch.Tensor


@dataclass(frozen=True, slots=True)
class Member:
    """One of the products: the tile that it makes, its matrix, and its labels."""

    into: int
    weight: int
    """The tile of the matrix, all of which is read."""
    shared: Labels
    """The labels under which it reads what all multiply."""
    rows: Labels
    """The labels of the matrix that stay, outermost first."""
    output: Labels


@dataclass(frozen=True, slots=True)
class Join:
    """Products of one block with several matrices, each [rows, summed] as it lies."""

    block: Block
    summed: tuple[int, ...]
    """The dimensions of the block that are summed, as they lie in the matrices."""
    members: tuple[Member, ...]

    def products(
        self, x: Tensor, matrices: Tensor, shapes: Sequence[Sequence[int]]
    ) -> list[Tensor]:
        """The result of every member, from the block and all matrices as one.

        `shapes` are those of the members' matrices without what is summed.
        """
        kept = [k for k in range(x.ndim) if k not in self.summed]
        turned = x.permute([*kept, *self.summed])
        rows = [x.shape[k] for k in kept]
        flat = times_rows(turned.reshape(prod(rows), -1), matrices)
        found: list[Tensor] = []
        start = 0
        for member, shape in zip(self.members, shapes, strict=True):
            part = flat[:, start : start + prod(shape)].view([*rows, *shape])
            start += prod(shape)
            labels = (*(member.shared[k] for k in kept), *member.rows)
            found.append(part.permute([labels.index(label) for label in member.output]))
        return found


def joins_of(tiled: TileProgram, region: Region) -> tuple[Join, ...]:
    """The products of a region that can be made together."""
    groups: dict[tuple[Block, tuple[int, ...], object], list[Member]] = defaultdict(list)
    for op in region.ops:
        found = _member(tiled, op)
        if found is not None:
            member, block, summed = found
            types = tiled.tiles[member.weight].types, tiled.tiles[op.into].types
            groups[block, summed, types].append(member)
    return tuple(
        Join(block, summed, tuple(members))
        for (block, summed, _), members in groups.items()
        if len({member.weight for member in members}) == len(members) > 1
    )


def _member(tiled: TileProgram, op: TileOp) -> tuple[Member, Block, tuple[int, ...]] | None:
    """A product with a matrix that is an input, and what that multiplies."""
    vertex = tiled.program.graph[tiled.tiles[op.into].tensor]
    einsum = vertex.op
    if op.kind is not Kind.WHOLE or not isinstance(einsum, EinSum) or len(op.reads) != 2:
        return None
    types = {tiled.program.graph[name].dtype for name in vertex.inputs} | {vertex.dtype}
    if not einsum.is_contraction or len(types) > 1 or kind(vertex.dtype) < NumberKind.FLOAT:
        return None
    loads = tiled.loads
    for place, other in ((1, 0), (0, 1)):
        weight, block = op.reads[place], op.reads[other]
        own, shared = einsum.inputs[place], einsum.inputs[other]
        if weight is None or block is None or weight.tile not in loads or block.tile in loads:
            continue
        if weight.box != tiled.tiles[weight.tile].box or len({*own}) < len(own):
            continue
        summed = einsum.aggregated
        rows = own[: len(own) - len(summed)]
        fits = {*own[len(rows) :]} == {*summed} <= {*shared} and len({*shared}) == len(shared)
        if fits and summed and rows and {*rows}.isdisjoint(shared):
            dims = tuple(shared.index(label) for label in own[len(rows) :])
            member = Member(op.into, weight.tile, shared, rows, einsum.output)
            return member, block, dims
    return None


def side_by_side(arrays: Sequence[Tensor], width: int) -> Tensor | None:
    """Matrices as one, if they lie one after another in one piece of memory."""
    first = arrays[0]
    storage, end = first.untyped_storage().data_ptr(), first.data_ptr()
    for array in arrays:
        if (
            not array.is_contiguous()
            or array.untyped_storage().data_ptr() != storage
            or array.data_ptr() != end
        ):
            return None
        end += array.nbytes
    count = sum(array.numel() for array in arrays) // width
    return torch.as_strided(first, (count, width), (width, 1))


class Neighbours:
    """Where inputs are placed so that those which are multiplied together lie side by side."""

    def __init__(self, tiled: TileProgram, joins: Sequence[Join]) -> None:
        graph = tiled.program.graph
        self._groups: dict[str, tuple[str, ...]] = {}
        for join in joins:
            tiles = [tiled.tiles[member.weight] for member in join.members]
            names = tuple(tile.tensor for tile in tiles)
            whole = all(tile.shape == graph[tile.tensor].shape for tile in tiles)
            if whole and self._groups.keys().isdisjoint(names):
                self._groups |= dict.fromkeys(names, names)
        self._shapes = {name: graph[name].shape for name in self._groups}
        self._free: dict[tuple[str, ...], dict[str, Tensor]] = {}

    def room(self, name: str, dtype: torch.dtype, device: torch.device) -> Tensor | None:
        """Memory for an input beside its neighbours; None for one that has none."""
        group = self._groups.get(name)
        if group is None:
            return None
        free = self._free.get(group, {})
        if name not in free:  # it is placed once more: so will its neighbours be
            sizes = [prod(self._shapes[each]) for each in group]
            whole = torch.empty(sum(sizes), dtype=dtype, device=device)
            ends = accumulate(sizes)
            free = self._free[group] = {
                each: whole[end - size : end]
                for each, size, end in zip(group, sizes, ends, strict=True)
            }
        return free.pop(name).view(self._shapes[name])
