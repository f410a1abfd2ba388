"""`Tiling`: the block of a tensor that each device has; `TileGrid`: all blocks of one, as shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from eindecomp.above import from_above
from eindecomp.layout.boxes import Box, shares
from eindecomp.layout.cut import Cut, Span, is_plain, parts_of, span_of, used_axes
from eindecomp.layout.mesh import Mesh, piece_ends
from eindecomp.layout.overlaps import totals
from eindecomp.layout.view import Dim, Image, reached

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Tiling:
    """A cut, whose tiles may be shared out again among the devices that hold the same one.

    `split` are the axes (as bits) along which a tile would be replicated and is shared out instead,
    along its longest side. Pieces may be empty.
    """

    cut: Cut
    split: int = 0

    def box(self, mesh: Mesh, device: int) -> Box:
        """The block that a device has."""
        tile = box_on(mesh, self.cut, device)
        if not self.split:
            return tile
        place, count = place_along(mesh, self.split, device)
        return shares(tile, count)[place]

    def has_all(self, shape: Sequence[int]) -> bool:
        """Whether every element of a tensor is on some device."""
        ends = [(span.start, span.stop) for span in self.cut]
        return ends == [(0, size) for size in shape] and is_plain(self.cut)

    def elements(self, mesh: Mesh) -> int:
        """How many elements all devices have together."""
        return int(totals(mesh, [self.cut])[0]) // parts_of(mesh, self.split)


def coordinates(mesh: Mesh, device: int) -> list[int]:
    """The coordinates of a device, outermost axis first."""
    places: list[int] = []
    for size in reversed(mesh.sizes):
        device, place = divmod(device, size)
        places.append(place)
    return places[::-1]


def device_at(mesh: Mesh, place: list[int]) -> int:
    """The device that has these coordinates."""
    device = 0
    for size, digit in zip(mesh.sizes, place, strict=True):
        device = device * size + digit
    return device


def place_along(mesh: Mesh, axes: int, device: int) -> tuple[int, int]:
    """A device's place among those that differ from it only along these axes, and their number.

    They are counted in the order of their numbers.
    """
    place, count = 0, 1
    for axis, (digit, size) in enumerate(zip(coordinates(mesh, device), mesh.sizes, strict=True)):
        if axes >> axis & 1:
            place, count = place * size + digit, count * size
    return place, count


def group_along(mesh: Mesh, axes: int, device: int) -> tuple[int, ...]:
    """The devices that differ from this one along these axes only, itself among them, in order."""
    own = coordinates(mesh, device)
    group = [0]
    for axis, (digit, size) in enumerate(zip(own, mesh.sizes, strict=True)):
        digits = range(size) if axes >> axis & 1 else (digit,)
        group = [device * size + each for device in group for each in digits]
    return tuple(group)


@lru_cache(maxsize=1 << 16)
def box_on(mesh: Mesh, cut: Cut, device: int) -> Box:
    """The block that a cut gives one device."""
    place = coordinates(mesh, device)
    return tuple(_range_on(mesh, span, place) for span in cut)


def _range_on(mesh: Mesh, span: Span, place: list[int]) -> Range:
    """What a device has of a dimension."""
    if span.image is None:
        return ends(mesh, span, index_of(mesh, span, place))
    ranges: dict[str, Range] = {}
    for k, (axes, _, size) in enumerate(span.image.terms):
        piece = Span(axes, size, 1, 0, size)
        ranges[f"{k}"] = ends(mesh, piece, index_of(mesh, piece, place))
    terms = tuple((f"{k}", times, size) for k, (_, times, size) in enumerate(span.image.terms))
    return reached(Image(terms, *span.image[1:]), ranges)


def index_of(mesh: Mesh, span: Span, place: list[int]) -> int:
    """Which piece of a dimension belongs to these coordinates."""
    index = 0
    for axis in span.axes:
        index = index * mesh.sizes[axis] + place[axis]
    return index


def ends(mesh: Mesh, span: Span, index: int) -> tuple[int, int]:
    """Where a piece of a dimension begins and ends."""
    if not span.axes:
        return span.start, span.stop
    sizes = [mesh.sizes[axis] for axis in span.axes]
    low, high = piece_ends(mesh.pieces, span.units, sizes, index)
    return span.start + span.scale * low, span.start + span.scale * high


def replicated_axes(mesh: Mesh, cut: Cut) -> int:
    """The axes along which a cut gives devices the same block."""
    return ((1 << len(mesh.sizes)) - 1) & ~used_axes(cut)


def uncut(shape: Sequence[int]) -> Cut:
    """The cut that gives every device the whole tensor."""
    return tuple(span_of(Dim(None, 0, size)) for size in shape)


@dataclass(frozen=True, slots=True)
class TileGrid:
    """One layout of a tensor as a grid of tiles, which prints as text and shows in notebooks.

    Attributes:
        tensor: its name, such as `"X"`.
        labels: the labels of its dimensions, such as `("i", "j")`.
        shape: their sizes, such as `(4, 6)`.
        pieces: for each dimension where its pieces begin and end, such as
            `(((0, 2), (2, 4)), ((0, 6),))`.
        holders: the devices that hold each tile, by the number of its piece along each dimension,
            such as `{(0, 0): (0,), (1, 0): (1,)}`. A tile that no device holds, as those off a
            diagonal that is read, is not among them.
        devices: how many devices there are, such as `2`.
        role: which layout it is: `"home"`, `"second layout"`, or who reads it so.
        layout: the layout in words, such as `"i over axis0"`.
        others: the grids of the tensor's other layouts, `()` if it has none.

    Examples:
        >>> import eindecomp as ed
        >>> graph = ed.parse("input X[i: 4, j: 6]\\nZ[i] <- sum X[i,j]\\noutput Z")
        >>> grid = ed.plan(graph, 2).draw_tiles("X")
        >>> grid.pieces, dict(grid.holders)
        ((((0, 2), (2, 4)), ((0, 6),)), {(0, 0): (0,), (1, 0): (1,)})
    """

    tensor: str
    labels: tuple[str, ...]
    shape: tuple[int, ...]
    pieces: tuple[tuple[Range, ...], ...]
    holders: Mapping[tuple[int, ...], tuple[int, ...]]
    devices: int
    role: str
    layout: str
    others: tuple[TileGrid, ...] = ()

    def box(self, tile: tuple[int, ...]) -> tuple[Range, ...]:
        """Where a tile begins and ends along each dimension.

        Args:
            tile: the numbers of its pieces, such as `(1, 0)`.

        Examples:
            >>> import eindecomp as ed
            >>> graph = ed.parse("input X[i: 4, j: 6]\\nZ[i] <- sum X[i,j]\\noutput Z")
            >>> ed.plan(graph, 2).draw_tiles("X").box((1, 0))
            ((2, 4), (0, 6))
        """
        return tuple(own[at] for own, at in zip(self.pieces, tile, strict=True))

    def tiles_on(self, device: int) -> list[tuple[Range, ...]]:
        """What a device holds: one tile, or none where there are fewer than devices.

        Args:
            device: its number, such as `0`.

        Examples:
            >>> import eindecomp as ed
            >>> graph = ed.parse("input X[i: 4, j: 6]\\nZ[i] <- sum X[i,j]\\noutput Z")
            >>> ed.plan(graph, 2).draw_tiles("X").tiles_on(0)
            [((0, 2), (0, 6))]
        """
        return [self.box(tile) for tile, own in self.holders.items() if device in own]

    @property
    def svg(self) -> str:
        """The grid, and those of the tensor's other layouts, as a picture."""
        return from_above("show.tile_grid").grid_svg((self, *self.others))

    def save(self, path: str | Path) -> None:
        """Write it to a file.

        Args:
            path: an `.svg` file, or `.txt` for text, such as `"X.svg"`.

        Examples:
            >>> import eindecomp as ed
            >>> from tempfile import TemporaryDirectory
            >>> graph = ed.parse("input X[i: 4, j: 6]\\nZ[i] <- sum X[i,j]\\noutput Z")
            >>> with TemporaryDirectory() as folder:
            ...     ed.plan(graph, 2).draw_tiles("X").save(f"{folder}/X.svg")
        """
        from_above("show.tile_grid").save_grid(self, path)

    def __str__(self) -> str:
        return from_above("show.tile_grid").grid_text((self, *self.others))

    def __repr__(self) -> str:
        tiles = " × ".join(str(len(own)) for own in self.pieces) or "1"
        return f"<TileGrid of {self.tensor}, {self.role}: {tiles} tiles on {self.devices} devices>"

    def __rich__(self) -> Any:
        return from_above("show.tile_grid").rich_grid((self, *self.others))

    def _repr_svg_(self) -> str:
        return self.svg

    _repr_html_ = _repr_svg_
