"""Cuts as the partition specs of JAX: for each dimension the names of the axes that cut it.

Axes nest in any order there, outermost first, as they do here; but pieces must be equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.errors import PlanError
from eindecomp.frontends.placements import check_plain
from eindecomp.layout.cut import pieces_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.layout.cut import Cut
    from eindecomp.layout.mesh import Mesh

Spec = tuple[tuple[str, ...] | None, ...]


def partition_spec(mesh: Mesh, cut: Cut, shape: Sequence[int], tensor: str) -> Spec:
    """For each dimension of a tensor the axes that cut it, outermost first; None for none.

    >>> from eindecomp.layout.cut import Span
    >>> from eindecomp.layout.mesh import Mesh
    >>> mesh = Mesh.of_axes({"x": 2, "y": 4})
    >>> partition_spec(mesh, (Span((1, 0), 8, 1, 0, 8), Span((), 3, 1, 0, 3)), (8, 3), "X")
    (('y', 'x'), None)
    """
    check_plain(cut, shape, tensor)
    for dim, span in enumerate(cut):
        parts = pieces_by(mesh, span.axes)
        if span.units % parts:
            blocks = f" in blocks of {span.scale}" if span.scale > 1 else ""
            raise PlanError(
                f"JAX cuts into equal parts only, and dimension {dim} of {tensor} has "
                f"{span.stop} elements{blocks}, which {parts} does not divide: plan with "
                "pieces='even'"
            )
    return tuple(tuple(mesh.names[a] for a in span.axes) or None for span in cut)
