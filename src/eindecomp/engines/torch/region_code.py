"""`RegionCode`: a region as a function of torch tensors.

The function is pure: it reads tensors and gives new ones, so that it can be traced and compiled as
a whole. Regions that do the same, such as those of a model's layers, have equal keys and share it.

A layer multiplies the same activations by several weights. Where those lie side by side in memory,
one call multiplies by all of them, and its parts are views of one result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from eindecomp.engines.result import naming
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill
from eindecomp.graph.shown import see, shown_to
from eindecomp.kernels.torch.aggregations import times_rows
from eindecomp.kernels.torch.kernel import check_index
from eindecomp.lang.dtypes import Kind, kind
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.layout.boxes import Box, within
from eindecomp.tra.tiles.ops import (
    Block,
    OpKind,
    Region,
    TileLookup,
    TileOp,
    TileProgram,
    is_computed,
    lookups_of,
)

if TYPE_CHECKING:
    from eindecomp.kernels.torch.library import TorchLibrary

    Tensor = torch.Tensor
    Values = dict[int, tuple[Tensor, ...]]


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
class JointProducts:
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
        results: list[Tensor] = []
        start = 0
        for member, shape in zip(self.members, shapes, strict=True):
            part = flat[:, start : start + prod(shape)].view([*rows, *shape])
            start += prod(shape)
            labels = (*(member.shared[k] for k in kept), *member.rows)
            results.append(part.permute([labels.index(label) for label in member.output]))
        return results


def joins_of(tiled: TileProgram, region: Region) -> tuple[JointProducts, ...]:
    """The products of a region that can be made together."""
    groups: dict[tuple[Block, tuple[int, ...], object], list[Member]] = defaultdict(list)
    for op in region.ops:
        product = _member(tiled, op)
        if product is not None:
            member, block, summed = product
            types = tiled.tiles[member.weight].types, tiled.tiles[op.into].types
            groups[block, summed, types].append(member)
    return tuple(
        JointProducts(block, summed, tuple(members))
        for (block, summed, _), members in groups.items()
        if len({member.weight for member in members}) == len(members) > 1
    )


def _member(tiled: TileProgram, op: TileOp) -> tuple[Member, Block, tuple[int, ...]] | None:
    """A product with a matrix that is an input, the block it multiplies, and what is summed."""
    vertex = tiled.program.graph[tiled.tiles[op.into].tensor]
    einsum = vertex.op
    if op.kind is not OpKind.WHOLE or not isinstance(einsum, EinSum) or len(op.reads) != 2:
        return None
    types = {tiled.program.graph[name].dtype for name in vertex.inputs} | {vertex.dtype}
    if not einsum.is_contraction or len(types) > 1 or kind(vertex.dtype) < Kind.FLOAT:
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

    def __init__(self, tiled: TileProgram, joins: Sequence[JointProducts]) -> None:
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


@dataclass(frozen=True, eq=False)
class RegionCode:
    """What a region computes, from the arrays of the tiles that it reads and from all scalars."""

    tiled: TileProgram
    region: Region
    library: TorchLibrary

    @cached_property
    def joins(self) -> tuple[JointProducts, ...]:
        """The products that can be made together if their matrices lie side by side."""
        return joins_of(self.tiled, self.region)

    def joined(self, arrays: Sequence[Tensor]) -> dict[JointProducts, Tensor]:
        """The matrices that lie side by side among the arrays of the tiles that are read."""
        joined: dict[JointProducts, Tensor] = {}
        for join in self.joins:
            own = [arrays[self._places[member.weight]] for member in join.members]
            width = prod(own[0].shape[len(join.members[0].rows) :])
            matrices = side_by_side(own, width)
            if matrices is not None:
                joined[join] = matrices
        return joined

    @cached_property
    def lookups(self) -> tuple[TileLookup, ...]:
        """The lookups whose indices another region has computed."""
        lookups = lookups_of(self.tiled, self.region.ops)
        return tuple(each for each in lookups if is_computed(self.tiled, each))

    def check_indices(self, arrays: Sequence[Tensor]) -> None:
        """Raise if computed indices are out of range; this waits for the device."""
        for lookup in self.lookups:
            tile = self.tiled.tiles[lookup.op.into]
            values = {lookup.index.tile: (arrays[self._places[lookup.index.tile]],)}
            with naming(self.graph[tile.tensor], tile.box, lookup.op.device):
                check_index(self.read(lookup.index, values)[0], lookup.rows)

    @cached_property
    def _places(self) -> dict[int, int]:
        """Which of the arrays that are read is the first of each tile."""
        sizes = [len(self.tiled.tiles[tile].types) for tile in self.region.reads]
        starts = accumulate(sizes, initial=0)
        return dict(zip(self.region.reads, starts, strict=False))

    @property
    def graph(self) -> Graph:
        """The graph whose vertices are computed."""
        return self.tiled.program.graph

    def __call__(
        self,
        arrays: Sequence[Tensor],
        scalars: Sequence[Tensor],
        joined: Mapping[JointProducts, Tensor] | None = None,
    ) -> list[Tensor]:
        """The arrays of the tiles that the region writes, from those of the tiles that it reads.

        `joined` are the matrices of joins that lie side by side, each as one.
        """
        given = iter(arrays)
        values: Values = {
            tile: tuple(next(given) for _ in self.tiled.tiles[tile].types)
            for tile in self.region.reads
        }
        first = {member.into: join for join in joined or () for member in join.members}
        for op in self.region.ops:
            if op.into in values:
                continue  # it was made with another one
            tile = self.tiled.tiles[op.into]
            with naming(self.graph[tile.tensor], tile.box, op.device):
                if joined and op.into in first:
                    join = first[op.into]
                    values |= self._products(join, joined[join], values)
                elif op.call is not None:
                    operands = [self.read(b, values)[0] for b in op.reads if b is not None]
                    made = op.call.compute(operands, scalars)
                    values |= {t: (array,) for t, array in zip(op.call.makes, made, strict=True)}
                else:
                    values[op.into] = self._made(op, values, scalars)
        return [array for tile in self.region.writes for array in values[tile]]

    def _products(self, join: JointProducts, matrices: Tensor, values: Values) -> Values:
        x = self.read(join.block, values)[0]
        shapes = [self.tiled.tiles[m.weight].shape[: len(m.rows)] for m in join.members]
        products = join.products(x, matrices, shapes)
        return {m.into: (made,) for m, made in zip(join.members, products, strict=True)}

    def _made(self, op: TileOp, values: Values, scalars: Sequence[Tensor]) -> tuple[Tensor, ...]:
        tile = self.tiled.tiles[op.into]
        vertex = self.graph[tile.tensor]
        if op.kind is OpKind.FILL:
            assert isinstance(vertex.op, Fill)  # noqa: S101
            named = dict(zip(self.graph.scalars, scalars, strict=True))
            return (self.library.filled(vertex.op, tile.box, named, self.graph.scalars),)
        if op.kind is OpKind.ASSEMBLE:
            return self._assembled(op, values)
        kernel = self.library.kernel(self.graph, vertex)
        if op.kind is OpKind.REDUCE:
            states = [self.read(block, values) for block in op.reads if block is not None]
            first = next(block for block in op.reads if block is not None)
            if self.tiled.tiles[first.tile].types != kernel.state:  # they travelled in another type
                states = [kernel.states(state, (), tile.shape) for state in states]
            total = states[0]
            for state in states[1:]:
                total = kernel.combined(total, state)
            return (kernel.finished(total),)
        operands = [None if b is None else self.read(b, values)[0] for b in op.reads]
        shown = shown_to(vertex, _boxes(op), tile.box, op.numbers)
        operands = see(self.library, kernel, operands, shown)
        if op.kind is OpKind.PARTIAL:
            return tuple(kernel.states(operands, scalars, tile.shape))
        return (kernel.result(operands, scalars, tile.shape),)

    def _assembled(self, op: TileOp, values: Values) -> tuple[Tensor, ...]:
        tile = self.tiled.tiles[op.into]
        arrays = tuple(self.library.empty(tile.shape, dtype) for dtype in tile.types)
        for block in op.reads:
            assert block is not None  # noqa: S101
            parts = self.read(block, values)
            for target, part in zip(arrays, parts, strict=True):
                target[within(block.box, tile.box)].copy_(part)
        return arrays

    def read(self, block: Block, values: Values) -> tuple[Tensor, ...]:
        """Views of a block."""
        tile = self.tiled.tiles[block.tile]
        arrays = values[block.tile]
        if block.box == tile.box:
            return arrays
        where = within(block.box, tile.box)
        return tuple(array[where] for array in arrays)

    @cached_property
    def key(self) -> tuple[object, ...]:
        """Equal for regions that are computed by the same function."""
        local: dict[int, int] = {}

        def number(tile: int) -> int:
            return local.setdefault(tile, len(local))

        tiles = [self.tiled.tiles[tile] for tile in self.region.reads]
        reads = tuple((number(tile.number), tile.shape, tile.types) for tile in tiles)
        ops = tuple(self._op_key(op, number) for op in self.region.ops)
        writes = tuple(number(tile) for tile in self.region.writes)
        return reads, ops, writes, tuple(self.graph.scalars.items())

    def _op_key(self, op: TileOp, number: Any) -> tuple[object, ...]:
        tile = self.tiled.tiles[op.into]
        vertex = self.graph[tile.tensor]
        reads = tuple(
            b and (number(b.tile), _inside(b, self.tiled.tiles[b.tile].box)) for b in op.reads
        )
        if op.call is not None:
            makes = ((number(made), self.tiled.tiles[made].types) for made in op.call.makes)
            return op.kind, op.call.key, reads, *makes
        types = tuple(self.graph[name].dtype for name in vertex.inputs)
        # A fill depends on where its tile lies, and what is put together on where each part goes.
        where: object = tile.box if op.kind is OpKind.FILL else None
        if op.kind is OpKind.ASSEMBLE:
            where = tuple(_inside(b, tile.box) for b in op.reads if b is not None)
        sizes = tuple(self.graph.label_sizes(vertex).items()) if op.kind is OpKind.WHOLE else ()
        if op.kind in (OpKind.WHOLE, OpKind.PARTIAL):
            where = shown_to(vertex, _boxes(op), tile.box, op.numbers)
        made = number(op.into), tile.shape
        return op.kind, vertex.op, vertex.dtype, types, reads, *made, where, sizes


def _boxes(op: TileOp) -> list[Box | None]:
    """The blocks that an operation reads."""
    return [block and block.box for block in op.reads]


def _inside(block: Block, box: Box) -> Box:
    """Where in a box of the same tensor a block lies."""
    return tuple((a - c, b - c) for (a, b), (c, _) in zip(block.box, box, strict=True))
