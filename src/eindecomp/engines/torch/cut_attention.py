"""Attention whose keys are cut over devices: each computes its own keys' share by one kernel.

A share is a result U, as if these were all keys, and the log-sum-exp L of its scores. What the
graph's vertices exchange stays as it is planned: the maximum C, the sums Z and A. All that C is for
is to be one number for all keys of a row, as it cancels in A / Z; so C becomes the largest L, Z the
sum of exp(L - C), and A that of U · exp(L - C), or of U · exp(L - C) / Z where weights are divided
before they are multiplied by values. Scores and weights are made by nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eindecomp.engines.torch.attention_operands import attention_of, operands_of
from eindecomp.engines.torch.attention_shares import Reference, Share, Weight, Weighted
from eindecomp.lang.dtypes import FLOAT32
from eindecomp.lang.einsum import EinSum
from eindecomp.tra.tiles.ops import Block, Kind, Tile, TileOp

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.graph.patterns.attention import Attention, KeyPart, Read
    from eindecomp.lang.dtypes import DType
    from eindecomp.lang.einsum import Labels
    from eindecomp.layout.boxes import Box, Range
    from eindecomp.tra.tiles.ops import TileProgram

    Ranges = dict[str, Range]


def attend_in_shares(tiled: TileProgram) -> TileProgram:
    """A program in which devices attend to their own keys by one call, wherever keys are cut.

    Where they are not, what comes from other devices comes before an attention begins, so that no
    region ends in the middle of it.
    """
    for one in attention_of(tiled.program.graph):
        if _is_cut(tiled, one):
            for part in one.parts:
                found = _Cut(tiled, one, part).shares()
                if found is not None:
                    tiled = _rewritten(tiled, *found)
        elif tiled.program.devices > 1:
            tiled = _operands_first(tiled, one)
    return tiled


def _is_cut(tiled: TileProgram, one: Attention) -> bool:
    """Whether some of an attention's vertices are reduced from parts."""
    made = (tiled.tiles[op.into].tensor for op in tiled.ops if op.kind is Kind.PARTIAL)
    return not {*one.replaces}.isdisjoint(made)


@dataclass(frozen=True, slots=True)
class _Made:
    """A device's result and log-sum-exp: the operations that make them, and what they are of."""

    ops: tuple[TileOp, TileOp]
    tiles: tuple[Tile, Tile]
    ranges: Ranges
    rows: Labels
    """The labels of the log-sum-exp."""
    instead_of: frozenset[int]
    """The tiles that were made for this; some may be read by others, too."""


class _Cut:
    """A part of an attention whose keys, or those of another part, are cut."""

    def __init__(self, tiled: TileProgram, one: Attention, part: KeyPart) -> None:
        self.tiled, self.one, self.part = tiled, one, part
        self.maker = {op.into: op for op in tiled.ops}

    def shares(self) -> tuple[list[_Made], dict[int, TileOp]] | None:
        """What devices compute of their own keys, and the operations that use it, by their tiles.

        None if some device lacks what it would need for that.
        """
        maximum, total = self.part.maximum, self.part.total
        product = self.part.product or self.one.output
        if maximum is None or self.one.maximum is None:
            return None
        made: list[_Made] = []
        for op in self._computed(product):
            found = self._made(op, maximum, product, len(self.tiled.tiles) + 2 * len(made))
            if found is None:
                return None
            made.append(found)
        uses: dict[int, TileOp] = {}
        for role in (maximum, total, product):
            for op in self._computed(role):
                use = self._use(op, role, made)
                if use is None:
                    return None
                uses[op.into] = use
        return made, uses

    def _tile(self, op: TileOp) -> Tile:
        return self.tiled.tiles[op.into]

    def _computed(self, role: Read) -> list[TileOp]:
        """The operations that aggregate keys; one of several parts may have all of its own."""
        made = (op for op in self.tiled.ops if self._tile(op).tensor == role.name)
        return [op for op in made if op.kind in (Kind.PARTIAL, Kind.WHOLE)]

    def _ranges(self, op: TileOp, role: Read) -> Ranges:
        """Where an operation's rows, values and keys lie."""
        found = dict(zip(role.labels, self._tile(op).box, strict=True))
        einsum = self.tiled.program.graph[role.name].op
        assert isinstance(einsum, EinSum)  # noqa: S101 - it aggregates keys
        [key] = einsum.aggregated
        pairs = zip(einsum.inputs, op.reads, strict=True)
        keys = (b.box[own.index(key)] for own, b in pairs if b is not None and key in own)
        return found | {self.part.key: next(keys)}

    def _made(self, op: TileOp, maximum: Read, product: Read, number: int) -> _Made | None:
        """The result and log-sum-exp of the keys that an operation multiplies by values."""
        graph, ranges = self.tiled.program.graph, self._ranges(op, product)
        whole = {label: (0, size) for label, size in self.one.sizes.items()}
        seen = self._seen(op)
        operands = operands_of(
            graph,
            self.one,
            (self.part,),
            whole | ranges,
            lambda name, box: self._find(seen, name, box),
        )
        if operands is None:
            return None
        own, memory = graph[self.one.q.name].dtype, self._tile(op).memory
        rows = tuple(ranges[label] for label in maximum.labels)
        tiles = (
            Tile(number, product.name, self._tile(op).box, (own,), memory),
            Tile(number + 1, maximum.name, rows, (max(own, FLOAT32, key=_size),), memory),
        )
        call = Share(operands, product.labels, maximum.labels, (number, number + 1))
        reads = tuple(operands.blocks.values())
        first, second = (TileOp(Kind.CALL, tile.number, reads, op.device, call) for tile in tiles)
        replaced = frozenset(block.tile for block in seen)
        return _Made((first, second), tiles, ranges, maximum.labels, replaced)

    def _use(self, op: TileOp, role: Read, made: Sequence[_Made]) -> TileOp | None:
        """What makes an operation's part of the maximum, the sum or the product instead of it."""
        tile, ranges, reference = self._tile(op), self._ranges(op, role), self.one.maximum
        near = (each for each in made if each.tiles[0].memory == tile.memory)
        own = next((each for each in near if ranges.items() <= each.ranges.items()), None)
        if own is None or reference is None or len(tile.types) != 1:
            return None
        result, lse = (Block(made.number, made.box) for made in own.tiles)
        dtype, makes = tile.types[0], (op.into,)
        if role == self.part.maximum:
            return replace(op, kind=Kind.CALL, reads=(lse,), call=Reference(dtype, makes))
        box = tuple(own.ranges[label] for label in reference.labels)
        shared = self._find(self._seen(op), reference.name, box)
        if shared is None:
            return None
        if role == self.part.total:
            labels = (own.rows, reference.labels)
            call = Weight(labels, role.labels, dtype, makes)
            return replace(op, kind=Kind.CALL, reads=(lse, shared), call=call)
        labels, reads = (role.labels, own.rows, reference.labels), (result, lse, shared)
        if self.part.product is None:
            total = self.part.total
            box = tuple(own.ranges[label] for label in total.labels)
            divisor = self._find(self._seen(op), total.name, box)
            if divisor is None:
                return None
            labels, reads = (*labels, total.labels), (*reads, divisor)
        call = Weighted(self.one, labels, dtype, makes)
        return replace(op, kind=Kind.CALL, reads=reads, call=call)

    def _seen(self, op: TileOp) -> list[Block]:
        """The blocks that an operation reads, and that what it reads is made of, in its memory.

        They are followed through the attention's own vertices, up to what is reduced over keys,
        and through masks.
        """
        found: dict[Block, None] = {}
        ends = (self.part.maximum, self.one.maximum, self.part.total)
        inner = {*self.one.replaces} - {end.name for end in ends if end is not None}
        ahead = [op]
        while ahead:
            for block in ahead.pop().reads:
                if block is None or block in found:
                    continue
                found[block] = None
                tile = self.tiled.tiles[block.tile]
                if tile.tensor in inner or tile.types[0].kind in "biu":
                    ahead.append(self.maker[block.tile])
        memory = self._tile(op).memory
        return [block for block in found if self.tiled.tiles[block.tile].memory == memory]

    def _find(self, seen: Sequence[Block], tensor: str, box: Box) -> Block | None:
        """A box of a tensor among blocks; also if it is empty, it lies within one of them."""
        for block in seen:
            tile = self.tiled.tiles[block.tile]
            sides = zip(box, block.box, strict=False)
            if tile.tensor == tensor and all(a >= c and b <= d for (a, b), (c, d) in sides):
                return Block(block.tile, box)
        return None


def _size(dtype: DType) -> int:
    return dtype.itemsize


def _rewritten(
    tiled: TileProgram, made: Sequence[_Made], uses: Mapping[int, TileOp]
) -> TileProgram:
    """A program in which devices' shares are made before they are first used."""
    ops = list(tiled.ops)
    at = next(k for k, op in enumerate(ops) if op.into in uses)
    calls = [op for each in made for op in each.ops]
    early = _needed(ops[at:], calls)
    rest = [uses.get(op.into, op) for op in ops[at:] if op.into not in early]
    moved = [op for op in ops[at:] if op.into in early]
    left = _without_unread(tiled, [*ops[:at], *moved, *calls, *rest])
    instead = {tile: each.tiles[0].number for each in made for tile in each.instead_of}
    there = {op.into for op in left}
    return replace(
        tiled,
        tiles=(*tiled.tiles, *(tile for each in made for tile in each.tiles)),
        ops=tuple(left),
        shares=tuple(
            share if share.tile is None or share.tile in there
            else replace(share, tile=instead.get(share.tile, share.tile))
            for share in tiled.shares
        ),
    )  # fmt: skip


def _operands_first(tiled: TileProgram, one: Attention) -> TileProgram:
    """A program in which all that an attention reads is made before its first vertex is."""
    inner = {*one.replaces}
    own = {op.into: op for op in tiled.ops if tiled.tiles[op.into].tensor in inner}
    at = next(k for k, op in enumerate(tiled.ops) if op.into in own)
    early = _needed(tiled.ops[at:], [*own.values()]) - own.keys()
    moved = [op for op in tiled.ops[at:] if op.into in early]
    rest = [op for op in tiled.ops[at:] if op.into not in early]
    return replace(tiled, ops=(*tiled.ops[:at], *moved, *rest))


def _needed(ops: Sequence[TileOp], calls: Sequence[TileOp]) -> set[int]:
    """The tiles among those that operations make which calls depend on."""
    maker = {op.into: op for op in ops}
    found: set[int] = set()
    ahead = [*calls]
    while ahead:
        for tile in ahead.pop().sources:
            if tile in maker and tile not in found:
                found.add(tile)
                ahead.append(maker[tile])
    return found


def _without_unread(tiled: TileProgram, ops: Sequence[TileOp]) -> list[TileOp]:
    """Operations without those that nobody reads any more."""
    before = {tile for op in tiled.ops for tile in op.sources}
    read = {*tiled.kept}
    left: list[TileOp] = []
    for op in reversed(ops):
        if op.kind is Kind.LOAD or op.into in read or op.into not in before:
            left.append(op)
            read.update(op.sources)
    return left[::-1]
