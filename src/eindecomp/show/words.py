"""Numbers, cuts and layouts in words, as `explain` and `compare` print them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table

from eindecomp.graph.reduce_types import ALL
from eindecomp.layout.cut import Cut, combined, pending_in
from eindecomp.layout.mesh import Mesh
from eindecomp.planner.comparison import Fewer
from eindecomp.planner.costs.cost import Number
from eindecomp.planner.costs.price import Objective

_BYTES = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")]
_ELEMENTS = [(10**12, "T"), (10**9, "G"), (10**6, "M")]
_SECONDS = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")]
_ROUNDING = 1e-8
_RUN = 4  # this many neighbouring axes are written as "first…last"


def short(amount: Number, objective: str | Objective) -> str:
    """A cost for a table.

    >>> short(28672, "bytes"), short(849920, "bound"), short(3e-4, "time"), short(0, "bytes")
    ('28 KiB', '849,920', '300 µs', '0')
    """
    if amount == 0:
        return "0"
    if amount < 0:
        return f"−{short(-amount, objective)}"
    if isinstance(objective, Objective):
        return f"{amount:,.6g}"
    if objective == "bound" and amount < _ELEMENTS[-1][0]:
        return _in_full(amount)
    scales = {"bound": _ELEMENTS, "bytes": _BYTES}.get(objective, _SECONDS)
    scale, unit = next((s for s in scales if amount >= s[0]), scales[-1])
    return f"{_three_digits(amount / scale)} {unit}"


def exact(amount: Number, objective: str | Objective) -> str:
    """A cost in full, with its unit.

    >>> exact(28672, "bytes"), exact(849920, "bound"), exact(3e-4, "time")
    ('28 KiB (28,672 bytes)', '849,920 elements', '300 µs (0.0003 seconds)')
    """
    match objective:
        case Objective():
            return f"{amount:,.6g} {objective.unit}".rstrip()
        case "bound":
            in_full = f"{_in_full(amount)} elements"
            small = amount < _ELEMENTS[-1][0]
            return in_full if small else f"{in_full} ({short(amount, objective)})"
        case "bytes":
            in_full = f"{_in_full(amount)} bytes"
            return in_full if amount < 1024 else f"{short(amount, objective)} ({in_full})"
        case _:
            return f"{short(amount, objective)} ({amount:.6g} seconds)"


def percent(share: float) -> str:
    """A share of 1.

    >>> percent(1.0), percent(0.0123), percent(1e-6), percent(0.0)
    ('100 %', '1.23 %', '<0.01 %', '0 %')
    """
    if 0 < share < 1e-4:
        return "<0.01 %"
    return f"{_three_digits(100 * share)} %"


def is_proved(gap: float) -> bool:
    """Whether a gap is no more than what rounding makes of seconds."""
    return gap <= _ROUNDING


def ratio(times: float) -> str:
    """How many times as much.

    >>> ratio(1.0), ratio(12.345), ratio(float("inf"))
    ('1.00×', '12.3×', '∞')
    """
    if times == float("inf"):
        return "∞"
    return f"{times:.2f}×" if times < 10 else f"{times:,.1f}×" if times < 100 else f"{times:,.0f}×"


def fewer_words(fewer: Fewer, cost: Number, devices: int, objective: str | Objective) -> str:
    """What a smaller number of devices costs, beside what a plan costs.

    >>> print(fewer_words(Fewer(8, 12 << 20), 40 << 20, 11, "bytes"))
    Fewer devices would do better: 8 move 12 MiB, each 1.5 MiB; these 11 move 40 MiB, each 3.64 MiB.
    >>> fewer_words(Fewer(8, 1e-3), 2e-3, 11, "time")
    'Fewer devices would do better: 8 take 1 ms, these 11 take 2 ms.'
    """
    less, more = short(fewer.cost, objective), short(cost, objective)
    if objective != "bytes":
        told = f"{fewer.devices} take {less}, these {devices} take {more}"
    else:
        each, own = short(fewer.cost / fewer.devices, "bytes"), short(cost / devices, "bytes")
        told = f"{fewer.devices} move {less}, each {each}; these {devices} move {more}, each {own}"
    return f"Fewer devices would do better: {told}."


def count_words(number: int, one: str, many: str = "") -> str:
    """A number of things.

    >>> count_words(1, "vertex", "vertices"), count_words(2048, "device")
    ('1 vertex', '2,048 devices')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def few(names: Sequence[str], most: int) -> str:
    """The first of several names, and how many more there are.

    >>> few(["A", "B", "C"], 2), few(["A", "B"], 2)
    ('A, B and 1 more', 'A, B')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def _in_full(number: Number) -> str:
    return f"{number:,}" if isinstance(number, int) or number % 1 else f"{int(number):,}"


def _three_digits(number: float) -> str:
    if number >= 99.95:
        return f"{number:,.0f}"
    decimals = 1 if number >= 9.995 else 2
    return f"{number:.{decimals}f}".rstrip("0").rstrip(".")


def cuts(parts: Mapping[str, int]) -> str:
    """The labels that are cut, and into how many pieces.

    >>> cuts({"s": 2, "h": 4, "d": 1})
    's/2 h/4'
    """
    return " ".join(f"{label}/{n}" for label, n in parts.items() if n > 1) or "whole"


def mesh_words(mesh: Mesh) -> str:
    """The axes and their sizes."""
    return " × ".join(f"{name}={size}" for name, size in mesh.axes.items())


def axes_words(mesh: Mesh, axes: Sequence[int]) -> str:
    """The names of axes, outermost first.

    >>> from eindecomp.layout.mesh import Mesh
    >>> axes_words(Mesh.of_devices(32), range(5)), axes_words(Mesh.of_devices(8), (2, 0))
    ('axis0…axis4', 'axis2·axis0')
    """
    words: list[str] = []
    for run in runs_of(axes):
        names = [mesh.names[a] for a in run]
        words += [f"{names[0]}…{names[-1]}"] if len(run) >= _RUN else names
    return "·".join(words)


def runs_of(numbers: Iterable[int]) -> list[list[int]]:
    """The numbers in groups of neighbours.

    >>> runs_of([0, 1, 2, 5])
    [[0, 1, 2], [5]]
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def layout(
    mesh: Mesh, labels: Sequence[str], shape: Sequence[int], cut: Cut, pending: Sequence[int] = ()
) -> str:
    """Where a tensor lies: which axes cut which of its dimensions, and which replicate it.

    Along the pending axes, devices have parts that are still to be reduced.
    """
    words: list[str] = []
    used = {axis for span in cut for axis in span.every_axis}
    left = pending_in(cut)
    pending = pending if left is None else left.axes
    for label, size, span in zip(labels, shape, combined(cut), strict=True):
        piece = label
        if (span.start, span.stop) != (0, size):
            piece = f"{label} in {span.start}:{span.stop}"
        if span.axes:
            words.append(f"{piece} over {axes_words(mesh, span.axes)}")
        elif span.image is not None:
            axes = dict.fromkeys(span.every_axis)
            words.append(f"{piece} in windows over {axes_words(mesh, [*axes])}")
        elif piece != label:
            words.append(piece)
    if pending:
        words.append(f"pending over {axes_words(mesh, pending)}")
        used |= {*pending}
    free = [axis for axis in range(len(mesh.sizes)) if axis not in used]
    if not used:
        return ", ".join([*words, "whole on every device" if free else "whole"])
    if free:
        words.append(f"replicated over {axes_words(mesh, free)}")
    return ", ".join(words)


def table(*heads: str, left: int = 1) -> Table:
    """An empty table; its first columns are text, the others numbers, which are not broken."""
    made = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for number, head in enumerate(heads):
        justify = "left" if number < left else "right"
        made.add_column(head, justify=justify, overflow="fold", no_wrap=number >= left)
    return made


def render(width: int, *parts: RenderableType) -> str:
    """Tables and paragraphs as plain text."""
    console = Console(
        file=StringIO(), width=width, color_system=None, force_terminal=False,
        force_jupyter=False, markup=False, highlight=False, emoji=False,
    )  # fmt: skip
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def travel_words(types: Mapping[str, str]) -> str:
    """In which types partial results travel."""
    if not types:
        return ""
    of = ", ".join(kind if name == ALL else f"{kind} ({name})" for name, kind in types.items())
    return f"partial results that travel as {of}"
