"""`Decision`: the axes, the home and the second layout that were chosen for one vertex."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from eindecomp.planner.space.choices import Choices, choices

if TYPE_CHECKING:
    from eindecomp.planner.space.choices import Assignment
    from eindecomp.planner.space.cut import Cut
    from eindecomp.planner.space.mesh import Mesh
    from eindecomp.planner.space.reduce_scatter import Places
    from eindecomp.planner.space.view import View


@dataclass(frozen=True, slots=True)
class Decision:
    """What was chosen for one vertex."""

    assignment: Assignment
    places: Places
    home: Cut
    second: Cut | None = None


def decided_choices(view: View, mesh: Mesh, decision: Decision) -> Choices:
    """A vertex's choices when a decision leaves only one."""
    settled = tuple(enumerate(decision.places))
    return choices(view, mesh, (decision.assignment,), settled)


def parts_by_label(view: View, mesh: Mesh, decision: Decision) -> dict[str, int]:
    """Into how many pieces a decision cuts each label."""
    return {
        label: prod(
            size
            for size, chosen in zip(mesh.sizes, decision.assignment, strict=True)
            if chosen == i
        )
        for i, label in enumerate(view.labels)
    }
