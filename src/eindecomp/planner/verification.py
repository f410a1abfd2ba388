"""What a framework's collectives were counted to move, beside what a plan says."""

from __future__ import annotations

from dataclasses import dataclass

OTHER = "(no vertex)"
"""Under which collectives are shown that nobody planned."""


@dataclass(frozen=True, slots=True)
class Verified:
    """The bytes that devices receive for one vertex."""

    vertex: str
    planned: int
    counted: int
    collectives: str
    """What brings them, such as "2 all-gather"."""

    @property
    def matches(self) -> bool:
        """Whether that is what was planned."""
        return self.planned == self.counted


@dataclass(frozen=True, slots=True)
class Verification:
    """Rows: what is planned and counted for each vertex."""

    rows: tuple[Verified, ...]

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
        width = max([len("vertex"), *(len(row.vertex) for row in moving)])
        lines = [f"{'vertex':<{width}} {'planned':>15} {'counted':>15}  collectives"]
        for row in moving:
            told = row.collectives if row.matches else f"{row.collectives} ≠"
            lines.append(f"{row.vertex:<{width}} {row.planned:>15,} {row.counted:>15,}  {told}")
        verdict = "as planned" if self.matches else "not as planned"
        lines.append(f"{'all':<{width}} {self.planned:>15,} {self.counted:>15,}  {verdict}")
        return "\n".join(line.rstrip() for line in lines)
