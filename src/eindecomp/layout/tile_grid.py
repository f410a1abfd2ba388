"""`TileGrid`: the tiles into which a layout cuts a tensor, and the devices that hold each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eindecomp.above import from_above

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    Range = tuple[int, int]


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
        return from_above("show.draw.tile_pictures").grid_svg((self, *self.others))

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
        from_above("show.draw.tile_grid").save_grid(self, path)

    def __str__(self) -> str:
        return from_above("show.draw.tile_pictures").grid_text((self, *self.others))

    def __repr__(self) -> str:
        tiles = " × ".join(str(len(own)) for own in self.pieces) or "1"
        return f"<TileGrid of {self.tensor}, {self.role}: {tiles} tiles on {self.devices} devices>"

    def __rich__(self) -> Any:
        return from_above("show.draw.tile_pictures").rich_grid((self, *self.others))

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return self.svg
