"""What a framework's collectives were counted to move, beside what a plan says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

OTHER = "(no vertex)"
"""Under which collectives are shown that nobody planned."""


@dataclass(frozen=True, slots=True)
class Verified:
    """The bytes that devices receive for one vertex.

    Attributes:
        vertex: Its name, such as `"Z"`.
        planned: The bytes that the plan moves for it, such as `1024`.
        counted: The bytes that collectives were counted to move, such as `1024`.
        collectives: What brings them, such as `"2 all-gather"`.
        reason: Why they are not as planned, where that is known, such as `""`.
    """

    vertex: str
    planned: int
    counted: int
    collectives: str
    reason: str = ""

    @property
    def matches(self) -> bool:
        """Whether that is what was planned."""
        return self.planned == self.counted and not self.reason

    @property
    def told(self) -> str:
        """The collectives, whether they are as planned, and why not."""
        differ = "" if self.matches else f"≠ {self.reason}"
        return f"{self.collectives} {differ}".strip()


@dataclass(frozen=True, slots=True, repr=False)
class Verification:
    """What is planned and counted for each vertex, in rows.

    Attributes:
        rows: One for each vertex that moves anything, such as `rows[0].vertex`.
        mesh: The dimensions of the device mesh for which this holds, if it is not the plan's own
            mesh, such as `{"dp": 2}`.

    Examples:
        >>> found = Verification((Verified("Z", 64, 64, "1 all-gather"),))
        >>> found.matches, found.counted
        (True, 64)
    """

    rows: tuple[Verified, ...]
    mesh: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def planned(self) -> int:
        """The bytes that the plan moves."""
        return sum(row.planned for row in self.rows)

    @property
    def counted(self) -> int:
        """The bytes that collectives move."""
        return sum(row.counted for row in self.rows)

    @property
    def matches(self) -> bool:
        """Whether they agree to the byte, for every vertex."""
        return all(row.matches for row in self.rows)

    def __str__(self) -> str:
        moving = [row for row in self.rows if row.planned or row.counted]
        total = Verified("all", self.planned, self.counted, self._verdict())
        width = max([len("vertex"), *(len(row.vertex) for row in moving)])
        lines = [f"{'vertex':<{width}} {'planned':>15} {'counted':>15}  collectives"]
        lines += [_line(row, row.told, width) for row in moving]
        lines.append(_line(total, total.collectives, width))
        return "\n".join(line.rstrip() for line in lines)

    def __repr__(self) -> str:
        told = f"{self.planned} bytes planned, {self.counted} counted"
        return f"<Verification: {told}, {self._verdict()}>"

    def _verdict(self) -> str:
        verdict = "as planned" if self.matches else "not as planned"
        dims = ", ".join(f"{name}: {size}" for name, size in self.mesh.items())
        return f"{verdict}, on a mesh of ({dims})" if dims else verdict


def _line(row: Verified, told: str, width: int) -> str:
    return f"{row.vertex:<{width}} {row.planned:>15,} {row.counted:>15,}  {told}"


def in_words(kinds: Mapping[str, int]) -> str:
    """How many collectives of each kind, in words.

    >>> in_words({"all-gather": 2, "all-reduce": 1})
    '2 all-gather, 1 all-reduce'
    """
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items())
