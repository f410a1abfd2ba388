"""`regions_of`: which operations are carried out together, as one function of tiles.

Within a region results need not be written to memory, so that kernels can be fused; between regions
they are. A region ends where few bytes cross: in a model, between its layers' parts. It belongs to
one device, so that fewer intermediate tiles are held at once than if all devices did each step
together; the devices take turns, region by region, so that what they share, such as weights, is
read by one after another. Indices that are computed come from an earlier region than the lookup
that they are for, so that they can be checked before that begins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from eindecomp.graph.ops import Gather, ScatterAdd
from eindecomp.lang.einsum import EinSum
from eindecomp.tra.tiles.memory import finishing, held_by
from eindecomp.tra.tiles.ops import OpKind, Region, TileOp, TileProgram, is_computed, lookups_of

MOST = 64
"""Vertices of a region, beyond which it is cut also where much crosses."""
LEAST = 20
"""Vertices of a region, below which it is not cut where room is plentiful: more can be fused."""


def regions_of(
    tiled: TileProgram, least: int = LEAST, most: int = MOST, room: int | None = None
) -> tuple[Region, ...]:
    """The regions of a program, in the order in which they are carried out.

    They have `least` to `most` vertices where that is possible. Their tiles take no more bytes than
    there is `room`, unless those of one operation do.
    """
    again = _made_again(tiled)
    finish = finishing(tiled)
    ranges: list[list[TileOp]] = []
    parts = (part for s in _stretches(tiled, again) for part in _cut(tiled, s, finish, least, most))
    for part in parts:
        by_device: dict[int, list[TileOp]] = defaultdict(list)
        for op in (op for row in part for op in row):
            by_device[op.device].append(op)
        for device in sorted(by_device):
            own = by_device[device]
            cuts = [own] if room is None else _within(tiled, again, own, room)
            ranges += [[*_needed(again, ops), *ops] for ops in cuts]
    last = {tile: number for number, ops in enumerate(ranges) for op in ops for tile in op.sources}
    regions: list[Region] = []
    for number, ops in enumerate(ranges):
        made = {op.into for op in ops}
        reads = dict.fromkeys(tile for op in ops for tile in op.sources if tile not in made)
        later = (op.into for op in ops if op.into not in again)
        writes = [tile for tile in later if last.get(tile, -1) > number or tile in tiled.kept]
        memory = tiled.tiles[ops[0].into].memory
        regions.append(Region(number, memory, tuple(ops), tuple(reads), tuple(writes)))
    return tuple(regions)


def show_regions(tiled: TileProgram, regions: Sequence[Region]) -> str:
    """Regions in words: what each reads and writes, and its operations."""
    lines: list[str] = []
    for region in regions:
        reads = ", ".join(str(tiled.tiles[tile]) for tile in region.reads)
        writes = ", ".join(str(tiled.tiles[tile]) for tile in region.writes)
        lines.append(f"region {region.number} in memory {region.memory}: {reads} -> {writes}")
        lines += [f"  {tiled.show(op)}" for op in region.ops]
    return "\n".join(lines)


def _made_again(tiled: TileProgram) -> dict[int, TileOp]:
    """The operations that regions repeat for themselves: fills, masks and indices of inputs."""
    once = tiled.kept | {*_computed_indices(tiled).values()}
    again: dict[int, TileOp] = {}
    for op in tiled.ops:
        if op.into in once:
            continue
        made = tiled.tiles[op.into]
        whole = made.types[0].kind in "biu" and tiled.maps(op)
        if op.kind is OpKind.FILL or (whole and {*op.sources} <= tiled.loads | {*again}):
            again[op.into] = op
    return again


def _computed_indices(tiled: TileProgram) -> dict[int, int]:
    """By the tile that a lookup makes, the tile of its indices where these are computed."""
    lookups = lookups_of(tiled, tiled.ops)
    return {each.op.into: each.index.tile for each in lookups if is_computed(tiled, each)}


def _needed(again: dict[int, TileOp], ops: Sequence[TileOp]) -> list[TileOp]:
    """The operations that a region does once more for itself, in their order."""
    wanted: dict[int, TileOp] = {}
    reads = [tile for op in ops for tile in op.sources]
    while reads:
        tile = reads.pop()
        if tile in again and tile not in wanted:
            wanted[tile] = again[tile]
            reads += again[tile].sources
    return [wanted[tile] for tile in sorted(wanted)]


def _within(
    tiled: TileProgram, again: Collection[int], ops: list[TileOp], room: int
) -> Iterator[list[TileOp]]:
    """The operations of a region in as few parts as greed finds whose tiles fit in some bytes."""
    own = {op.into for op in ops}
    later = {tile for tile in own if not own.issuperset(tiled.readers[tile])}

    def taken(part: list[TileOp]) -> int:
        made = {op.into for op in part}
        outside = {t for op in ops if op.into not in made for t in op.sources} | later | tiled.kept
        reads = {tile for op in part for tile in op.sources} - made
        crossing = (reads - {*again}) | (made & outside)
        return held_by(tiled, part, crossing)

    start = 0
    while start < len(ops):
        ends = range(len(ops), start + 1, -1)
        end = next((end for end in ends if taken(ops[start:end]) <= room), start + 1)
        yield ops[start:end]
        start = end


Row = list["TileOp"]
"""What all devices do in one step."""


def _stretches(tiled: TileProgram, again: Collection[int]) -> Iterator[list[Row]]:
    """Runs of steps that one device after another can take as a whole, lower numbers first."""
    indices = _computed_indices(tiled)
    maker: dict[int, int] = {}
    stretch: list[Row] = []
    for row in _rows(tiled, again):
        later = any(maker.get(tile, -1) > op.device for op in row for tile in op.sources)
        if later or any(indices.get(op.into) in maker for op in row):
            yield stretch
            stretch, maker = [], {}
        if alone := [op for op in row if _crosses(tiled, op)]:
            yield stretch
            yield from ([[op]] for op in alone)
            row = [op for op in row if op not in alone]
            stretch, maker = [], {}
        if row:
            stretch.append(row)
            maker |= {op.into: op.device for op in row}
    yield stretch


def _crosses(tiled: TileProgram, op: TileOp) -> bool:
    """Whether an operation reads from another memory."""
    memory = tiled.tiles[op.into].memory
    return any(tiled.tiles[tile].memory != memory for tile in op.sources)


def _rows(tiled: TileProgram, again: Collection[int]) -> Iterator[Row]:
    """Operations that belong to one step; loads belong to none."""
    row: Row = []
    tensor = None
    for op in tiled.ops:
        if op.kind is OpKind.LOAD or op.into in again:
            continue
        if row and op.call is not None and op.call is row[-1].call:
            row.append(op)  # one call makes both
            continue
        key = op.kind, tiled.tiles[op.into].tensor, tiled.tiles[op.into].types
        repeats = bool(row) and op.device <= row[-1].device
        if row and (key != tensor or repeats):
            yield row
            row = []
        row.append(op)
        tensor = key
    if row:
        yield row


def _cut(
    tiled: TileProgram, stretch: list[Row], finish: Collection[int], least: int, most: int
) -> Iterator[list[Row]]:
    """The parts of a stretch, cut where few bytes cross and never before a mere finish."""
    crossing = _crossing(tiled, stretch, most)
    start = 0
    for end in range(1, len(stretch) + 1):
        tensors, _ = crossing[end - 1]
        part = stretch[start:end]
        unfinished = all(op.into in finish for row in stretch[end - 1 : end + 1] for op in row)
        cut = tensors <= 1 and not unfinished and _is_worth(tiled, part, least)
        if end == len(stretch) or cut:
            yield from _halved(stretch[start:end], [b for _, b in crossing[start:end]], most)
            start = end


def _halved(part: list[Row], crossing: list[int], most: int) -> Iterator[list[Row]]:
    """A part that is too long, cut near its middle where the fewest bytes cross."""
    if len(part) <= most:
        yield part
        return
    third = len(part) // 3
    at = min(range(third, len(part) - third), key=lambda k: crossing[k]) + 1
    yield from _halved(part[:at], crossing[:at], most)
    yield from _halved(part[at:], crossing[at:], most)


def _crossing(tiled: TileProgram, stretch: list[Row], most: int) -> list[tuple[int, int]]:
    """How many tensors, and bytes, are made up to the end of each row and read beyond it.

    What no region that makes it can read last is written wherever a region ends.
    """
    last: dict[int, int] = {}
    for number, row in enumerate(stretch):
        last |= {tile: number for op in row for tile in op.sources}
    own = {op.into for row in stretch for op in row}
    stored = {t for t in own if t in tiled.kept or not own.issuperset(tiled.readers[t])}
    crossing: list[tuple[int, int]] = []
    alive: dict[int, int] = {}
    for number, row in enumerate(stretch):
        made = {op.into: last.get(op.into, -1) for op in row if op.into not in stored}
        alive |= {tile: until for tile, until in made.items() if until <= number + most}
        alive = {tile: until for tile, until in alive.items() if until > number}
        names = {tiled.tiles[tile].tensor for tile in alive}
        crossing.append((len(names), sum(tiled.tiles[tile].nbytes for tile in alive)))
    return crossing


def _is_worth(tiled: TileProgram, part: list[Row], least: int) -> bool:
    """Whether a part is a region of its own: it has a product, or looks up rows in a table."""
    ops = [tiled.program.graph[tiled.tiles[row[0].into].tensor].op for row in part]
    if any(isinstance(op, Gather | ScatterAdd) for op in ops):
        return True
    products = [isinstance(op, EinSum) and len(op.inputs) > 1 and op.aggregated for op in ops]
    counts = [1 if row[0].call is None else row[0].call.vertices for row in part]
    return sum(counts) >= least and (any(products) or max(counts) > 1)
