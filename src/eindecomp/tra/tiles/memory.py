"""How much memory the tiles of a program take, and orders of operations that take less.

`finish_early`: an optimiser's update reads a gradient, a parameter and its state. Where all updates
come after all gradients, these are held or stored meanwhile; where each follows its gradient, they
never are. A gradient that only an update reads is computed before others are passed on, so that new
parameters leave meanwhile. `while_there`: regions that read the same inputs follow each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import chain, groupby

from eindecomp.lang.einsum import EinSum
from eindecomp.lang.scalar import Arg
from eindecomp.tra.program.memory import Peak
from eindecomp.tra.tiles.ops import OpKind, Region, TileOp, TileProgram, window_bytes


def most_held(
    tiled: TileProgram, regions: Sequence[Region], uncounted: Collection[int] = ()
) -> Peak:
    """The most bytes of tiles that are in one memory at once, if regions run one after another.

    While a region runs, all tiles that it makes are held; `uncounted` ones never count.
    """
    sizes = [0 if k in uncounted else tile.nbytes for k, tile in enumerate(tiled.tiles)]
    held: dict[int, int] = defaultdict(int)
    for tile in tiled.loads:
        held[tiled.tiles[tile].memory] += sizes[tile]
    dropped = dropped_after(tiled, regions)
    most = Peak(max(held.values(), default=0), "")
    for region in regions:
        made = held[region.memory] + sum(sizes[op.into] for op in region.ops)
        if made > most.bytes:
            largest = max((op.into for op in region.ops), key=sizes.__getitem__)
            most = Peak(made, tiled.tiles[largest].tensor)
        held[region.memory] += sum(sizes[tile] for tile in region.writes)
        for tile in dropped[region.number]:
            held[tiled.tiles[tile].memory] -= sizes[tile]
    return most


def dropped_after(tiled: TileProgram, regions: Sequence[Region]) -> list[list[int]]:
    """For each region the tiles that nobody reads after it, and that are not kept."""
    dropped: list[list[int]] = [[] for _ in regions]
    last = {tile: region.number for region in regions for tile in region.reads}
    for tile, number in last.items():
        if tile not in tiled.kept:
            dropped[number].append(tile)
    return dropped


def surely_made(tiled: TileProgram, regions: Sequence[Region], fused: bool) -> set[int]:
    """The tiles that take memory of their own: no views, and nothing that is only filled.

    Of `fused` regions, only the tiles that they write are known to.
    """
    ops = {op.into: op for region in regions for op in region.ops}
    if fused:
        written = {tile for region in regions for tile in region.writes}
        ops = {tile: op for tile, op in ops.items() if tile in written}

    def is_turned(op: TileOp) -> bool:
        """Whether an operation may only look at its operand in another way."""
        vertex = tiled.program.graph[tiled.tiles[op.into].tensor].op
        plain = not isinstance(vertex, EinSum) or isinstance(vertex.join, Arg)
        return plain and _may_be_view(tiled, op)

    return {t for t, op in ops.items() if op.kind is not OpKind.FILL and not is_turned(op)}


def possible_views(tiled: TileProgram) -> dict[int, int]:
    """By the tile of an output, the tile of an input of which it may be a view."""
    source: dict[int, int] = {}
    for op in tiled.ops:
        if op.kind is OpKind.LOAD:
            source[op.into] = op.into
        elif _may_be_view(tiled, op) and op.sources[0] in source:
            source[op.into] = source[op.sources[0]]
    return {tile: source[tile] for tile in sorted(tiled.kept) if tile in source}


def _may_be_view(tiled: TileProgram, op: TileOp) -> bool:
    """Whether a kernel may give its only operand back, as it is or turned."""
    if op.kind is not OpKind.WHOLE or len(op.sources) != 1:
        return False
    vertex = tiled.program.graph[tiled.tiles[op.into].tensor].op
    return not (isinstance(vertex, EinSum) and vertex.aggregated)


def held_by(tiled: TileProgram, ops: Sequence[TileOp], crossing: Collection[int]) -> int:
    """The bytes of tiles that cross, and the most that others take at once.

    What is mapped from elements to elements and only read so is never written to memory.
    """
    stored = {tile for op in ops if not tiled.maps(op) for tile in (op.into, *op.sources)}
    last = {tile: number for number, op in enumerate(ops) for tile in op.sources}
    inner = most = 0
    gone: dict[int, int] = defaultdict(int)
    for number, op in enumerate(ops):
        if op.into in stored and op.into not in crossing:
            size = window_bytes(tiled.tiles[op.into].nbytes)
            inner += size
            gone[last.get(op.into, number)] += size
        most = max(most, inner)
        inner -= gone[number]
    return most + sum(window_bytes(tiled.tiles[tile].nbytes) for tile in crossing)


def finish_early(tiled: TileProgram) -> TileProgram:
    """The same operations, loads first and each that finishes an output as early as it can.

    What all devices do for one tensor stays together.
    """
    last = finishing(tiled)
    ordered = [op for op in tiled.ops if op.kind is OpKind.LOAD]
    done = {*tiled.loads}
    computed = (op for op in tiled.ops if op.kind is not OpKind.LOAD)
    alike = groupby(computed, lambda op: (op.kind, tiled.tiles[op.into].tensor))
    rows = [list(row) for _, row in alike]
    early = {n: row for n, row in enumerate(rows) if all(op.into in last for op in row)}
    lacks = {n: {*chain(*(op.sources for op in row))} - done for n, row in early.items()}
    readers: dict[int, list[int]] = defaultdict(list)
    for n, row in early.items():
        lacks[n] -= {op.into for op in row}  # shares are assembled, then blocks of what comes out
        for tile in lacks[n]:
            readers[tile].append(n)
    ready = [n for n, missing in lacks.items() if not missing]
    for row in [[], *(row for n, row in enumerate(rows) if n not in early)]:
        ordered += row
        made = row
        while made or ready:
            for tile in {op.into for op in made}:
                for n in readers[tile]:
                    lacks[n].discard(tile)
                    if not lacks[n]:
                        heappush(ready, n)
            made = early[heappop(ready)] if ready else []
            ordered += made
    return replace(tiled, ops=tuple(ordered))


def finishing(tiled: TileProgram) -> set[int]:
    """The tiles from which only outputs are mapped, element by element, and those outputs.

    A tile that is summed from parts brings its parts with it.
    """
    mapped = _only_outputs_follow(tiled)
    last = set(mapped)
    for op in reversed(tiled.ops):
        read_by = tiled.readers[op.into]
        own = {t for t in read_by if tiled.tiles[t].tensor == tiled.tiles[op.into].tensor}
        inner = op.kind is not OpKind.LOAD and op.into not in tiled.kept and read_by
        if inner and mapped >= read_by - own and last >= own:
            last.add(op.into)
    return last


def _only_outputs_follow(tiled: TileProgram) -> set[int]:
    """The tiles of maps of elements from which nothing is computed but such tiles of outputs."""
    mapped = {op.into for op in tiled.ops}
    for op in reversed(tiled.ops):
        if not tiled.maps(op) or op.into not in mapped:
            mapped -= {op.into, *op.sources}
    return mapped


def while_there(tiled: TileProgram, regions: Sequence[Region]) -> tuple[Region, ...]:
    """The same regions, each followed by the one that gains most from inputs that are there.

    A region gains if it can run, and its inputs that are there take more bytes than what it makes
    for later regions. Where none gains, their own order is kept.
    """
    readers: dict[int, list[int]] = defaultdict(list)
    for place, region in enumerate(regions):
        for tile in region.reads:
            readers[tile].append(place)
    missing = [len({*region.reads} - tiled.loads) for region in regions]
    waiting = dict(enumerate(regions))

    def nbytes(tiles: Iterable[int]) -> int:
        return sum(tiled.tiles[tile].nbytes for tile in tiles)

    def gain(place: int, here: set[int]) -> int:
        later = (tile for tile in regions[place].writes if tile not in tiled.kept)
        return nbytes(here.intersection(regions[place].reads)) - nbytes(later)

    ordered: list[Region] = []
    here: set[int] = set()
    while waiting:
        near = {n for tile in here for n in readers[tile] if n in waiting and not missing[n]}
        gains = {place: gain(place, here) for place in sorted(near)}
        place = max(gains, key=lambda place: gains[place], default=-1)
        if gains.get(place, 0) <= 0:
            place = next(iter(waiting))
        region = waiting.pop(place)
        ordered.append(replace(region, number=len(ordered)))
        here = set(tiled.loads.intersection(region.reads))
        for tile in region.writes:
            for reader in readers[tile]:
                missing[reader] -= 1
    return tuple(ordered)
