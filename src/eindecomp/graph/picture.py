"""`Picture`: the drawing of a graph or a plan, to be shown or saved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eindecomp.above import from_above

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as SVG; notebooks show it.

    Attributes:
        svg: the picture, a text that starts with `<svg`.
        title: what it shows, such as `"3 vertices on 8 devices"`.

    Examples:
        >>> import eindecomp as ed
        >>> ed.parse("input X[i: 4, j: 6]\\nZ[i] <- sum X[i,j]\\noutput Z").draw()
        Picture(title='1 vertex, 1 input')
    """

    svg: str = field(repr=False)
    title: str

    def save(self, path: str | Path) -> None:
        """Write it to a file.

        Args:
            path: an `.svg` file, such as `"plan.svg"`.

        Examples:
            >>> import eindecomp as ed
            >>> from tempfile import TemporaryDirectory
            >>> graph = ed.parse("input X[i: 4, j: 6]\\nZ[i] <- sum X[i,j]\\noutput Z")
            >>> with TemporaryDirectory() as folder:
            ...     graph.draw().save(f"{folder}/graph.svg")
        """
        from_above("show.draw.svg").save_text(path, {".svg": lambda: self.svg})

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return self.svg
