"""Attention on tiles: one call in the place of all the vertices that make it up.

Where keys are cut over devices, each computes its own keys' *share* by one kernel: a result U, as
if these were all keys, and the log-sum-exp L of its scores. What the graph's vertices exchange
stays as it is planned: the maximum C, the sums Z and A. All that C is for is to be one number for
all keys of a row, as it cancels in A / Z; so C becomes the largest L, Z the sum of exp(L - C), and
A that of U · exp(L - C), or of U · exp(L - C) / Z where weights are divided before they are
multiplied by values. Scores and weights are made by nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from eindecomp.graph.patterns.attention import find_attention
from eindecomp.kernels.torch.attention import attend, attend_partial, relative_weight, rescale
from eindecomp.kernels.torch.attention_layout import PartTile, condition_labels, row_labels
from eindecomp.kernels.torch.functions import torch_functions
from eindecomp.kernels.torch.tensors import aligned, torch_type
from eindecomp.lang.compile import compile_scalar
from eindecomp.lang.dtypes import FLOAT32
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.scalar_types import with_casts
from eindecomp.tra.tiles.ops import Block, Kind, Tile, TileCall, TileOp

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.patterns.attention import Attention, KeyPart
    from eindecomp.graph.patterns.terms import Read, Value
    from eindecomp.lang.einsum import Labels
    from eindecomp.layout.boxes import Range
    from eindecomp.tra.tiles.ops import TileProgram

    Tensor = torch.Tensor
    Ranges = dict[str, Range]
    Compute = Callable[[Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]


def attend_by_calls(tiled: TileProgram) -> TileProgram:
    """A program in which devices attend by one call, to all keys or to a share of them."""
    for one in find_attention(tiled.program.graph):
        made = (tiled.tiles[op.into].tensor for op in tiled.ops if op.kind is Kind.PARTIAL)
        if {*one.replaces}.isdisjoint(made):
            tiled = _attend_to_all(tiled, one)
        else:
            for part in one.parts:
                found = _Cut(tiled, one, part).shares()
                tiled = tiled if found is None else _in_shares(tiled, *found)
    return tiled


def _attend_to_all(tiled: TileProgram, one: Attention) -> TileProgram:
    """A program in which each device that has all keys makes its results by one call."""
    maker = {op.into: op for op in tiled.ops}
    calls: dict[int, TileOp] = {}
    instead: dict[int, int] = {}
    for op in tiled.ops:
        if tiled.tiles[op.into].tensor != one.result:
            continue
        blocks = _seen(tiled, maker, op, one.replaces)
        inner = {b.tile for b in blocks if tiled.tiles[b.tile].tensor in one.replaces}
        kinds = {maker[tile].kind for tile in (op.into, *inner)}
        read_by = {reader for tile in inner for reader in tiled.readers[tile]}
        alone = len(inner) + 1 == len(one.replaces) and read_by - inner == {op.into}
        if not alone or kinds != {Kind.WHOLE}:
            continue  # some of it is made elsewhere, or for others too
        ranges = {label: (0, size) for label, size in one.sizes.items()}
        ranges |= dict(zip(one.output.labels, tiled.tiles[op.into].box, strict=True))
        operands = _operands(tiled, one, one.parts, ranges, blocks)
        if operands is not None:
            calls[op.into] = _call(op, operands, operands.attend, ("whole",), len(one.replaces))
            instead |= dict.fromkeys(inner, op.into)
    return _replaced(tiled, [calls.get(op.into, op) for op in tiled.ops], (), instead)


def _call(
    op: TileOp, operands: _Operands, compute: Compute, key: tuple[object, ...], vertices: int = 1
) -> TileOp:
    call = TileCall((*key, operands.key), (op.into,), compute, vertices)
    return replace(op, kind=Kind.CALL, reads=tuple(operands.blocks.values()), call=call)


def _seen(
    tiled: TileProgram, maker: Mapping[int, TileOp], op: TileOp, inner: Collection[str]
) -> list[Block]:
    """The blocks that an operation reads, and that what it reads is made of, in its memory.

    They are followed through inner vertices of an attention, and through masks.
    """
    found: dict[Block, None] = {}
    ahead = [op]
    while ahead:
        for block in ahead.pop().reads:
            if block is None or block in found:
                continue
            found[block] = None
            tile = tiled.tiles[block.tile]
            if tile.tensor in inner or tile.types[0].kind in "biu":
                ahead.append(maker[block.tile])
    memory = tiled.tiles[op.into].memory
    return [block for block in found if tiled.tiles[block.tile].memory == memory]


def _find(tiled: TileProgram, seen: Sequence[Block], read: Read, ranges: Ranges) -> Block | None:
    """What is read for a range of each label, among blocks; an empty one lies within one, too."""
    box = tuple(ranges[label] for label in read.labels)
    for block in seen:
        sides = zip(box, block.box, strict=False)
        if tiled.tiles[block.tile].tensor == read.name and all(
            a >= c and b <= d for (a, b), (c, d) in sides
        ):
            return Block(block.tile, box)
    return None


@dataclass(frozen=True, eq=False)
class _Operands:
    """Where the operands of some parts of an attention lie, and what is computed from them."""

    graph: Graph
    attention: Attention
    parts: tuple[KeyPart, ...]
    blocks: Mapping[Read, Block]
    starts: Mapping[str, int]
    """The first index along each label of the result and of the keys."""
    lengths: frozenset[str]
    """The labels of keys whose mask is told by a length that can be read here."""

    def attend(self, given: Sequence[Tensor], scalars: Sequence[Tensor]) -> list[Tensor]:
        """The result, from the blocks of the operands in their order."""
        one, tensors = self.attention, dict(zip(self.blocks, given, strict=True))
        tiles = [self._tile(part, tensors, scalars) for part in self.parts]
        return [attend(one, tensors[one.q], tiles, start=self.start)]

    def share(
        self, labels: tuple[Labels, Labels], given: Sequence[Tensor], scalars: Sequence[Tensor]
    ) -> list[Tensor]:
        """The result as if the keys of one part were all, and the log-sum-exp, in these labels."""
        one, tensors = self.attention, dict(zip(self.blocks, given, strict=True))
        [part] = self.parts
        tile = self._tile(part, tensors, scalars)
        found = attend_partial(one, part, tensors[one.q], tile, start=self.start)
        own = one.output.labels, row_labels(one)
        return [aligned(x, a, b) for x, a, b in zip(found, own, labels, strict=True)]

    @property
    def start(self) -> int:
        """The index of the first query, where a mask depends on it."""
        masks = [part.mask for part in self.parts if part.mask is not None]
        return next((self.starts[mask.query] for mask in masks if mask.query is not None), 0)

    @property
    def key(self) -> Hashable:
        """All that the result depends on but the tensors; names of vertices do not matter."""
        one = self.attention
        reads = tuple((each.labels, self.graph[each.name].dtype) for each in self.blocks)
        roles = one.batch, one.groups, one.queries, one.inner, one.values
        parts = tuple(self._part_key(part) for part in self.parts)
        return reads, roles, one.output.labels, one.dtype, self.start, parts

    def _part_key(self, part: KeyPart) -> Hashable:
        order = {read: k for k, read in enumerate(self.blocks)}

        def unnamed(value: Value | None) -> Hashable:
            return value and (value.expr, tuple((order.get(r), r.labels) for r in value.reads))

        mask, by_length = part.mask, part.key in self.lengths
        told = mask and (mask.query, mask.offset, unnamed(mask.length), unnamed(mask.value))
        by_index = mask is not None and (mask.is_causal or by_length)
        start = self.starts[part.key] if by_index else 0
        own = part.key, order[part.k], order[part.v], part.scale, part.product is None
        return own, start, by_length, told, unnamed(part.bias)

    def _tile(
        self, part: KeyPart, tensors: Mapping[Read, Tensor], scalars: Sequence[Tensor]
    ) -> PartTile:
        """The keys and values of a part, and what hides or favours some of them."""

        def computed(value: Value | None) -> Tensor | None:
            return None if value is None else self._value(value, part, tensors, scalars)

        mask, by_length = part.mask, part.key in self.lengths
        hides = mask is not None and not mask.is_causal and not by_length
        return PartTile(
            tensors[part.k],
            tensors[part.v],
            self.starts[part.key],
            computed(mask.value) if mask is not None and hides else None,
            computed(part.bias),
            computed(mask.length) if mask is not None and by_length else None,
        )

    def _value(
        self,
        value: Value,
        part: KeyPart,
        tensors: Mapping[Read, Tensor],
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


def _operands(
    tiled: TileProgram,
    one: Attention,
    parts: tuple[KeyPart, ...],
    ranges: Ranges,
    seen: Sequence[Block],
) -> _Operands | None:
    """All that some parts read for a range of each label; None if some is not among the seen."""
    blocks: dict[Read, Block] = {}

    def has(reads: Iterable[Read]) -> bool:
        """Whether all that is read is there; what is there is noted."""
        for read in reads:
            block = _find(tiled, seen, read, ranges)
            if block is None:
                return False
            blocks[read] = block
        return True

    masks = {part.key: part.mask for part in parts if part.mask is not None}
    lengths = frozenset(
        key for key, mask in masks.items() if mask.length is not None and has(mask.length.reads)
    )
    values = [part.bias for part in parts]
    values += [m.value for key, m in masks.items() if not m.is_causal and key not in lengths]
    own = [one.q, *(read for part in parts for read in (part.k, part.v))]
    if not has([*own, *(read for value in values if value is not None for read in value.reads)]):
        return None
    starts = {label: low for label, (low, _) in ranges.items()}
    return _Operands(tiled.program.graph, one, parts, blocks, starts, lengths)


@dataclass(frozen=True, slots=True)
class _Share:
    """A device's result and log-sum-exp: the operations that make them, and what they are of."""

    ops: tuple[TileOp, TileOp]
    tiles: tuple[Tile, Tile]
    ranges: Ranges
    instead_of: frozenset[int]
    """The tiles that were made for this; some may be read by others, too."""


class _Cut:
    """A part of an attention whose keys, or those of another part, are cut."""

    def __init__(self, tiled: TileProgram, one: Attention, part: KeyPart) -> None:
        self.tiled, self.one, self.part = tiled, one, part
        self.maker = {op.into: op for op in tiled.ops}
        ends = (part.maximum, one.maximum, part.total)
        self.inner = {*one.replaces} - {end.name for end in ends if end is not None}

    def shares(self) -> tuple[list[_Share], dict[int, TileOp]] | None:
        """What devices compute of their own keys, and the operations that use it, by their tiles.

        None if some device lacks what it would need for that.
        """
        maximum, total = self.part.maximum, self.part.total
        product = self.part.product or self.one.output
        if maximum is None or self.one.maximum is None:
            return None
        made: list[_Share] = []
        for op in self._computed(product):
            found = self._share(op, maximum, product, len(self.tiled.tiles) + 2 * len(made))
            if found is None:
                return None
            made.append(found)
        uses: dict[int, TileOp] = {}
        for role in (maximum, total, product):
            for op in self._computed(role):
                use = self._use(op, role, maximum, self.one.maximum, made)
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

    def _share(self, op: TileOp, maximum: Read, product: Read, number: int) -> _Share | None:
        """The result and log-sum-exp of the keys that an operation multiplies by values."""
        ranges = self._ranges(op, product)
        whole = {label: (0, size) for label, size in self.one.sizes.items()}
        seen = _seen(self.tiled, self.maker, op, self.inner)
        operands = _operands(self.tiled, self.one, (self.part,), whole | ranges, seen)
        if operands is None:
            return None
        own, memory = self.tiled.program.graph[self.one.q.name].dtype, self._tile(op).memory
        wide = max(own, FLOAT32, key=lambda of: of.itemsize)
        rows = tuple(ranges[label] for label in maximum.labels)
        tiles = (
            Tile(number, product.name, self._tile(op).box, (own,), memory),
            Tile(number + 1, maximum.name, rows, (wide,), memory),
        )
        labels = product.labels, maximum.labels
        call = TileCall(
            ("share", labels, operands.key),
            (number, number + 1),
            lambda given, scalars: operands.share(labels, given, scalars),
        )
        reads = tuple(operands.blocks.values())
        first, second = (TileOp(Kind.CALL, tile.number, reads, op.device, call) for tile in tiles)
        return _Share((first, second), tiles, ranges, frozenset(block.tile for block in seen))

    def _use(
        self, op: TileOp, role: Read, maximum: Read, reference: Read, made: Sequence[_Share]
    ) -> TileOp | None:
        """What makes an operation's part of the maximum, the sum or the product instead of it."""
        tile, ranges = self._tile(op), self._ranges(op, role)
        near = (each for each in made if each.tiles[0].memory == tile.memory)
        own = next((each for each in near if ranges.items() <= each.ranges.items()), None)
        if own is None or len(tile.types) != 1:
            return None
        result, lse = (Block(made.number, made.box) for made in own.tiles)
        roles = {maximum: (), self.part.total: (reference,)}.get(role, (reference, self.part.total))
        if self.part.product is not None:
            roles = roles[:1]
        seen = _seen(self.tiled, self.maker, op, self.inner)
        others = [_find(self.tiled, seen, each, own.ranges) for each in roles]
        if None in others:
            return None
        labels = [maximum.labels, *(each.labels for each in roles)]
        of, one = torch_type(tile.types[0]), self.one

        def largest(given: Sequence[Tensor], _: object) -> list[Tensor]:
            return [given[0].to(of)]

        def weight(given: Sequence[Tensor], _: object) -> list[Tensor]:
            pairs = zip(given, labels, strict=True)
            return [relative_weight(*(aligned(x, own, role.labels) for x, own in pairs)).to(of)]

        def weighted(given: Sequence[Tensor], _: object) -> list[Tensor]:
            output, rows = one.output.labels, row_labels(one)
            wanted = (output, rows, rows, output)
            triples = zip(given, (role.labels, *labels), wanted, strict=False)
            out, lse, largest, *totals = (aligned(*each) for each in triples)
            share, _ = rescale(one, out, lse, largest)
            for total in totals:
                share = share / total
            return [aligned(share, output, role.labels).to(of)]

        reads, compute = (lse, *others), weight if role == self.part.total else largest
        if role not in (maximum, self.part.total):
            reads, compute = (result, *reads), weighted
        key = compute.__name__, role.labels, *labels, of, one.output.labels, one.values
        call = TileCall(key, (op.into,), compute)
        return replace(op, kind=Kind.CALL, reads=reads, call=call)


def _in_shares(
    tiled: TileProgram, made: Sequence[_Share], uses: Mapping[int, TileOp]
) -> TileProgram:
    """A program in which devices' shares are made before they are first used."""
    ops = list(tiled.ops)
    at = next(k for k, op in enumerate(ops) if op.into in uses)
    calls = [op for each in made for op in each.ops]
    early = _needed(ops[at:], calls)
    rest = [uses.get(op.into, op) for op in ops[at:] if op.into not in early]
    moved = [op for op in ops[at:] if op.into in early]
    instead = {tile: each.tiles[0].number for each in made for tile in each.instead_of}
    tiles = [tile for each in made for tile in each.tiles]
    return _replaced(tiled, [*ops[:at], *moved, *calls, *rest], tiles, instead)


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


def _replaced(
    tiled: TileProgram,
    ops: Sequence[TileOp],
    tiles: Sequence[Tile],
    instead: Mapping[int, int],
) -> TileProgram:
    """A program of other operations and some tiles more, without those that nobody reads now.

    What devices compute is told of the tiles that were made `instead`.
    """
    before = {tile for op in tiled.ops for tile in op.sources}
    read = {*tiled.kept}
    left: list[TileOp] = []
    for op in reversed(ops):
        if op.kind is Kind.LOAD or op.into in read or op.into not in before:
            left.append(op)
            read.update(op.sources)
    there = {op.into for op in left}
    shares = tuple(
        share
        if share.tile is None or share.tile in there
        else replace(share, tile=instead.get(share.tile, share.tile))
        for share in tiled.shares
    )
    return replace(tiled, tiles=(*tiled.tiles, *tiles), ops=tuple(left[::-1]), shares=shares)
