"""A plan beside the usual strategies, and beside what a framework was counted to move."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from eindecomp.above import from_above
from eindecomp.planner.costs.cost import Number
from eindecomp.planner.costs.price import Objective
from eindecomp.planner.space.strategy import StrategyForm


@dataclass(frozen=True, slots=True)
class Fewer:
    """A smaller number of devices, and what the best grid found for it costs.

    Attributes:
        devices: How many, such as `8` where a plan is for 11.
        cost: What a plan for them costs, such as `12000000`.
    """

    devices: int
    cost: Number


@dataclass(frozen=True, slots=True)
class Compared:
    """What one strategy costs; None where no plan under it meets the pins and the memory limit.

    Attributes:
        name: What it is called, such as `"data parallel"`.
        strategy: The strategy itself, such as `["b"]`; None for the plan that is compared.
        cost: What it costs, such as `65536`.
        ratio: Its cost relative to the plan that is compared, such as `2.0`.
        gap: How far its cost can be above the optimum under it, such as `0.0`.
        refused: Why there is no plan, such as the message of a `PlanError`.
        memory: The most bytes that the fullest device holds at once, such as `4096`.
        over_any: How many times the least it moves that any schedule of this product moves, such as
            `1.0`; None where that is not known.
        uses: Among how many devices its labels divide vertices, such as `8` for 8 sequences on 64
            devices, where not among all; the others are used as is best.
        stopped_by: What ended planning before it was done, `"time"` or `"interrupt"`, or `""`.
    """

    name: str
    strategy: StrategyForm | None
    cost: Number | None
    ratio: float | None
    gap: float | None
    refused: str | None = None
    memory: int | None = None
    over_any: float | None = None
    uses: int | None = None
    stopped_by: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """What a plan and the usual strategies cost, in rows: the plan itself, then each strategy.

    Attributes:
        objective: What is counted, such as `"bytes"`.
        rows: One for the plan and for each strategy; `len(comparison)` of them.
        inputs: Where inputs lie, `"sharded"` or `"free"`: free ones take part in neither cost nor
            placing.
        devices: How many devices the plans are for, such as `64`.
        lookups: `"rows"` if bytes are worst cases where an index names rows of a table, else
            `"whole"`.
        fewer: The smaller number of devices that suits a product better, such as `Fewer(8,
            12000000)`; None if there is none, or it is not known.

    Examples:
        >>> import eindecomp as ed
        >>> text = "input X[i: 8, j: 8], Y[j, k: 8]\\nZ[i,k] <- sum X[i,j] * Y[j,k]\\noutput Z"
        >>> compared = ed.plan(ed.parse(text), 2, inputs="sharded").compare({"by rows": ["i"]})
        >>> [row.name for row in compared]
        ['this plan', 'by rows']
    """

    objective: str | Objective
    rows: tuple[Compared, ...]
    inputs: str = "sharded"
    devices: int = 1
    lookups: str = "whole"
    fewer: Fewer | None = None

    def __iter__(self) -> Iterator[Compared]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        return from_above("show.compare").table_of(self)

    def __repr__(self) -> str:
        costs = ("without a plan" if row.cost is None else f"{row.cost:,}" for row in self.rows)
        rows = ", ".join(f"{row.name} {cost}" for row, cost in zip(self.rows, costs, strict=True))
        return f"<Comparison, {self.objective}: {rows}>"

    def _repr_html_(self) -> str:
        return from_above("show.notebook").comparison_html(self)


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
        """Whether collectives move what was planned."""
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
        >>> moved = Verification((Verified("Z", 64, 64, "1 all-gather"),))
        >>> moved.matches, moved.counted
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
        """Whether both agree to the byte, for every vertex."""
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


def in_group(kind: str, devices: int, size: int) -> int:
    """The bytes that a group's devices receive together in a collective of such a kind.

    Each gets a result of `size` bytes; an all-reduce is a reduce-scatter and an all-gather.

    >>> in_group("all-gather", 4, 40), in_group("all-reduce", 2, 10)
    (120, 20)
    """
    match kind:
        case "all-reduce":
            return 2 * (devices - 1) * size
        case "reduce-scatter":
            return devices * (devices - 1) * size
        case _:  # each device has its part of the result already
            return (devices - 1) * size
