"""`Decision`: the axes, the home and the second layout that were chosen for one vertex."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from eindecomp.layout.cut import pieces_by
from eindecomp.planner.space.choices import Choices, choices
from eindecomp.planner.space.reduce_scatter import Settled

if TYPE_CHECKING:
    from eindecomp.layout.cut import Cut
    from eindecomp.layout.mesh import Mesh
    from eindecomp.layout.view import View
    from eindecomp.planner.space.choices import Assignment
    from eindecomp.planner.space.reduce_scatter import Places


class Layouts(NamedTuple):
    """Where a tensor lies: its home, and a second layout if it is kept in one."""

    home: Cut
    second: Cut | None = None

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """The layouts that readers can fetch from."""
        return (self.home,) if self.second is None else (self.home, self.second)


@dataclass(frozen=True, slots=True)
class Decision:
    """What was chosen for one vertex."""

    assignment: Assignment
    places: Places
    home: Cut
    second: Cut | None = None

    @property
    def layouts(self) -> Layouts:
        """Where the result lies."""
        return Layouts(self.home, self.second)


def decided_choices(view: View, mesh: Mesh, decision: Decision) -> Choices:
    """A vertex's choices when a decision leaves only one."""
    every = (1 << len(mesh.sizes)) - 1
    return choices(view, mesh, (decision.assignment,), Settled(decision.places, every))


def parts_by_label(view: View, mesh: Mesh, decision: Decision) -> dict[str, int]:
    """Into how many pieces a decision cuts each label."""
    return {
        label: pieces_by(mesh, axes)
        for label, axes in zip(view.labels, decision.assignment, strict=True)
    }
