"""Attention on tiles: one call in the place of all the vertices that make it up.

Where a device has all keys, it computes its result by one kernel, and scores and weights are made
by nobody. Where a plan cuts the keys over devices, the vertices are computed one by one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from eindecomp.graph.graph import Graph
from eindecomp.graph.patterns.attention import Attention, KeyPart, find_attention
from eindecomp.graph.patterns.attention_gradient import AttentionGradient, find_gradients
from eindecomp.graph.patterns.terms import TensorExpr, TensorRead
from eindecomp.kernels.torch.attention import attend
from eindecomp.kernels.torch.attention_gradient import differentiate
from eindecomp.kernels.torch.attention_layout import PartTile, condition_labels, row_labels
from eindecomp.kernels.torch.functions import torch_functions
from eindecomp.kernels.torch.tensors import aligned, torch_type
from eindecomp.lang.compile import compile_scalar
from eindecomp.lang.einsum import Labels
from eindecomp.lang.scalar_types import with_casts
from eindecomp.layout.boxes import Range
from eindecomp.tra.tiles.ops import Block, OpKind, TileCall, TileOp, TileProgram

Tensor = torch.Tensor
Ranges = dict[str, Range]


def attend_by_calls(tiled: TileProgram) -> TileProgram:
    """A program in which each device that has all keys of an attention attends by one call.

    Where it has all that the gradient takes, too, it computes that by another one.
    """
    calls = _Calls(tiled, {op.into: op for op in tiled.ops})
    for one in find_attention(tiled.program.graph):
        for op in calls.makers(one.result):
            calls.attend(one, op)
    for gradient in find_gradients(tiled.program.graph):
        for op in calls.makers(gradient.results[0][1].name):
            calls.differentiate(gradient, op)
    return _replaced(tiled, [calls.ops.get(op.into, op) for op in tiled.ops], calls.instead)


@dataclass
class _Calls:
    """The calls that take the place of some operations."""

    tiled: TileProgram
    maker: Mapping[int, TileOp]
    ops: dict[int, TileOp] = field(default_factory=dict[int, TileOp])
    """By the tiles that they make."""
    instead: dict[int, int] = field(default_factory=dict[int, int])
    """For a tile that is not made now one that is made by the call."""
    attended: dict[Hashable, tuple[TileOp, _Operands]] = field(default_factory=dict[Any, Any])
    """What makes results, by these, their memories and the ranges of their rows."""

    def makers(self, name: str) -> list[TileOp]:
        """What makes tiles of a tensor."""
        return [op for op in self.tiled.ops if self.tiled.tiles[op.into].tensor == name]

    def attend(self, one: Attention, op: TileOp) -> None:
        """Call for a result, if this device has all that it takes."""
        ranges, (seen, inner) = self._ranges(op, one.output), self._seen([op], one.replaces)
        operands = _operands(self.tiled, one, ranges, seen)
        if operands is not None:
            self._call([op], operands, inner)
            rows = frozenset((label, ranges[label]) for label in row_labels(one))
            self.attended[one.result, self.tiled.tiles[op.into].memory, rows] = op, operands

    def differentiate(self, gradient: AttentionGradient, first: TileOp) -> None:
        """Call for a gradient, if this device has all that it takes."""
        one, total, memory = gradient.attention, gradient.total, self.tiled.tiles[first.into].memory
        ranges, ops = dict[str, Range](), list[TileOp]()
        for _, read, _ in gradient.results:
            for op in self.makers(read.name) if ops else [first]:
                own = self._ranges(op, read)
                if self.tiled.tiles[op.into].memory == memory and ranges | own == own | ranges:
                    ranges |= own
                    ops.append(op)
        seen, inner = self._seen(ops, gradient.replaces)
        reads = (one.output, gradient.adjoint, total)
        operands = _operands(self.tiled, one, ranges, seen, reads)
        whole = {label: (0, one.sizes[label]) for label in (*one.inner, *one.values)}
        if operands is not None and ranges | whole == whole | ranges:
            sums = self.maker[operands.blocks[total].tile]
            rows = frozenset(self._ranges(sums, total).items())
            if (one.result, memory, rows) in self.attended:
                op, own = self.attended[one.result, memory, rows]
                # Where sums would lie, of which nothing else is made, the log-sum-exp does.
                self._call([op, sums], replace(own, total=total.labels), ())
                self._call(ops, replace(operands, gradient=gradient), inner - {sums.into})

    def _ranges(self, op: TileOp, read: TensorRead) -> Ranges:
        return dict(zip(read.labels, self.tiled.tiles[op.into].box, strict=True))

    def _call(self, ops: Sequence[TileOp], operands: _Operands, inner: Iterable[int]) -> None:
        """Make the tiles of some operations by one call."""
        makes, reads = tuple(op.into for op in ops), tuple(operands.blocks.values())
        call = TileCall(operands.key, makes, operands.compute, len(operands.attention.replaces))
        self.ops |= {op.into: replace(op, kind=OpKind.CALL, reads=reads, call=call) for op in ops}
        self.instead |= dict.fromkeys(inner, makes[0])

    def _seen(self, ops: Sequence[TileOp], inside: Sequence[str]) -> tuple[list[Block], set[int]]:
        """The blocks that operations read, and that what they read is made of, in their memory.

        They are followed through some vertices, whose tiles come second, and through masks. There
        are none if some of these tiles are made elsewhere, or for others, too.
        """
        tiles, ends = self.tiled.tiles, {op.into for op in ops}
        seen: dict[Block, None] = {}
        ahead = [*ops]
        while ahead:
            for block in ahead.pop().reads:
                if block is None or block in seen:
                    continue
                seen[block] = None
                tile = tiles[block.tile]
                if tile.tensor in inside or tile.types[0].kind in "biu":
                    ahead.append(self.maker[block.tile])
        memory = tiles[ops[0].into].memory
        blocks = [block for block in seen if tiles[block.tile].memory == memory]
        inner = {b.tile for b in blocks if tiles[b.tile].tensor in inside} - ends
        kinds = {self.maker[tile].kind for tile in inner | ends}
        read_by = {reader for tile in inner for reader in self.tiled.readers[tile]}
        alone = len(inner | ends) == len(inside) and read_by <= inner | ends
        return (blocks, inner) if alone and kinds == {OpKind.WHOLE} else ([], set())


def _find(
    tiled: TileProgram, seen: Sequence[Block], read: TensorRead, ranges: Ranges
) -> Block | None:
    """What is read for a range of each label, among blocks; an empty one lies within one, too."""
    box = tuple(ranges[label] for label in read.labels)
    for block in seen:
        sides = zip(box, block.box, strict=False)
        if tiled.tiles[block.tile].tensor == read.name and all(
            a >= c and b <= d for (a, b), (c, d) in sides
        ):
            return Block(block.tile, box)
    return None


def _operands(
    tiled: TileProgram,
    one: Attention,
    known: Ranges,
    seen: Sequence[Block],
    more: Sequence[TensorRead] = (),
) -> _Operands | None:
    """All that an attention reads for some ranges, and more; None if a block was not seen."""
    ranges = {label: (0, size) for label, size in one.sizes.items()} | known
    blocks: dict[TensorRead, Block] = {}

    def has(reads: Iterable[TensorRead]) -> bool:
        """Whether all that is read is there; what is there is noted."""
        for read in reads:
            block = _find(tiled, seen, read, ranges)
            if block is None:
                return False
            blocks[read] = block
        return True

    masks = {part.key: part.mask for part in one.parts if part.mask is not None}
    lengths = frozenset(
        key for key, mask in masks.items() if mask.length is not None and has(mask.length.reads)
    )
    values = [part.bias for part in one.parts]
    values += [m.value for key, m in masks.items() if not m.is_causal and key not in lengths]
    own = [one.q, *(read for part in one.parts for read in (part.k, part.v)), *more]
    if not has([*own, *(read for value in values if value is not None for read in value.reads)]):
        return None
    causal = (mask.query for mask in masks.values() if mask.query is not None)
    start = next((ranges[query][0] for query in causal), 0)
    return _Operands(tiled.program.graph, one, blocks, start, lengths)


@dataclass(frozen=True, eq=False)
class _Operands:
    """Where the operands of an attention lie, and what is computed from them."""

    graph: Graph
    attention: Attention
    blocks: Mapping[TensorRead, Block]
    start: int
    """The index of the first query, where a mask depends on it."""
    lengths: frozenset[str]
    """The labels of keys whose mask is told by a length that can be read here."""
    total: Labels | None = None
    """The labels of the log-sum-exp, if it is called for beside the result."""
    gradient: AttentionGradient | None = None
    """What is called for in place of the result."""

    def compute(self, given: Sequence[Tensor], scalars: Sequence[Tensor]) -> list[Tensor]:
        """What is called for, from the blocks of the operands in their order."""
        one, tensors = self.attention, dict(zip(self.blocks, given, strict=True))
        tiles = [self._tile(part, tensors, scalars) for part in one.parts]
        if self.gradient is not None:
            made = differentiate(self.gradient, tensors, tiles[0], self.start)
            types = (self.graph[read.name].dtype for _, read, _ in self.gradient.results)
            return [own.to(torch_type(of)) for own, of in zip(made, types, strict=True)]
        out, lse = attend(one, tensors[one.q], tiles, start=self.start)
        return [out] if self.total is None else [out, aligned(lse, row_labels(one), self.total)]

    @property
    def key(self) -> Hashable:
        """All that the result depends on but the tensors; names of vertices do not matter."""
        one = self.attention
        reads = tuple((each.labels, self.graph[each.name].dtype) for each in self.blocks)
        roles = one.batch, one.groups, one.queries, one.inner, one.values
        parts = tuple(self._part_key(part) for part in one.parts)
        results = () if self.gradient is None else self.gradient.results
        asked = self.total, tuple((of, read.labels, factor) for of, read, factor in results)
        return reads, roles, one.output.labels, one.dtype, self.start, parts, asked

    def _part_key(self, part: KeyPart) -> Hashable:
        order = {read: k for k, read in enumerate(self.blocks)}

        def unnamed(value: TensorExpr | None) -> Hashable:
            return value and (value.expr, tuple((order.get(r), r.labels) for r in value.reads))

        mask, by_length = part.mask, part.key in self.lengths
        told = mask and (mask.query, mask.offset, unnamed(mask.length), unnamed(mask.value))
        own = part.key, order[part.k], order[part.v], part.scale, part.divided_early
        return own, by_length, told, unnamed(part.bias)

    def _tile(
        self, part: KeyPart, tensors: Mapping[TensorRead, Tensor], scalars: Sequence[Tensor]
    ) -> PartTile:
        """The keys and values of a part, and what hides or favours some of them."""

        def computed(value: TensorExpr | None) -> Tensor | None:
            return None if value is None else self._value(value, part, tensors, scalars)

        mask, by_length = part.mask, part.key in self.lengths
        hides = mask is not None and not mask.is_causal and not by_length
        return PartTile(
            tensors[part.k],
            tensors[part.v],
            computed(mask.value) if mask is not None and hides else None,
            computed(part.bias),
            computed(mask.length) if mask is not None and by_length else None,
        )

    def _value(
        self,
        value: TensorExpr,
        part: KeyPart,
        tensors: Mapping[TensorRead, Tensor],
        scalars: Sequence[Tensor],
    ) -> Tensor:
        """A mask, bias or length, in the labels in which it is wanted."""
        labels = condition_labels(self.attention, part, value)
        types = [self.graph[each.name].dtype for each in value.reads]
        expr, _ = with_casts(value.expr, types, self.graph.scalars)
        device = tensors[self.attention.q].device
        functions, names = torch_functions(device), list(self.graph.scalars)
        function = compile_scalar(expr, len(value.reads), functions, names)
        operands = [aligned(tensors[each], each.labels, labels) for each in value.reads]
        # One that reads nothing is a number.
        return torch.as_tensor(function(*operands, *scalars), device=device)


def _replaced(tiled: TileProgram, ops: Sequence[TileOp], instead: Mapping[int, int]) -> TileProgram:
    """A program of other operations, without those that nobody reads now.

    What devices compute is told of the tiles that were made `instead`.
    """
    before = {tile for op in tiled.ops for tile in op.sources}
    read = {*tiled.kept}
    left: list[TileOp] = []
    for op in reversed(ops):
        if op.kind is OpKind.LOAD or op.into in read or op.into not in before:
            left.append(op)
            read.update(op.sources)
    there = {op.into for op in left}
    shares = tuple(
        share
        if share.tile is None or share.tile in there
        else replace(share, tile=instead.get(share.tile, share.tile))
        for share in tiled.shares
    )
    return replace(tiled, ops=_in_order(left[::-1]), shares=shares)


def _in_order(ops: Sequence[TileOp]) -> tuple[TileOp, ...]:
    """Operations, each after what it reads; those that are one call follow each other."""
    maker = {op.into: op for op in ops}
    done: dict[int, TileOp] = {}

    def add(op: TileOp) -> None:
        if op.into not in done:
            for tile in op.sources:
                add(maker[tile])
            makes = (op.into,) if op.call is None else op.call.makes
            done.update((tile, maker[tile]) for tile in makes if tile in maker)

    for op in ops:
        add(op)
    return tuple(done.values())
