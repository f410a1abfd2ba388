"""toulbar2, an exact branch-and-bound solver, which races our own search on another core.

It runs in a process of its own, because neither its time limit nor the machine code in its wheel
can be relied on everywhere: a process can be stopped, and one that crashes has merely lost the
race. It takes part only if it is installed and costs are exact integers without usages.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from eindecomp.solve.problem.arrays import Ints
    from eindecomp.solve.problem.core import Core

_MOST_CELLS = 2_000_000  # with more, it would spend its time reading


@dataclass(slots=True)
class Race:
    """A toulbar2 process at work on a core; a context manager that ends it."""

    process: subprocess.Popen[bytes] | None

    def __enter__(self) -> Race:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def result(self) -> Ints | None:
        """The optimal choice once it is proved, None until then."""
        if self.process is None or self.process.poll() is None:
            return None
        answer, _ = self.process.communicate()
        is_fine = self.process.returncode == 0
        self.process = None
        choice = json.loads(answer) if is_fine and answer else None
        return None if choice is None else np.array(choice, dtype=np.int64)


def race(core: Core, *, exact: bool) -> Race:
    """Start toulbar2 on a core of exact integers without usages; for others, start nothing."""
    is_small = core.tables.size <= _MOST_CELLS
    if not exact or core.item_var.size or not is_small or find_spec("pytoulbar2") is None:
        return Race(None)
    packed = io.BytesIO()
    np.savez(
        packed,
        offset=core.offset,
        unary=core.unary,
        edges=core.edges,
        table_offset=core.table_offset,
        tables=core.tables,
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "eindecomp.solve.exact.toulbar"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None  # noqa: S101 - asked for above
    try:
        process.stdin.write(packed.getvalue())
        process.stdin.close()
    except BrokenPipeError:
        return Race(None)
    process.stdin = None
    return Race(process)


def _solve(packed: Any) -> list[int] | None:
    """The optimal choice of a packed core, by toulbar2."""
    import pytoulbar2  # pyright: ignore[reportMissingTypeStubs]

    offset, unary = packed["offset"], _shifted(packed["unary"], packed["offset"])
    table_offset = packed["table_offset"]
    tables = _shifted(packed["tables"], table_offset)
    finite = [np.where(np.isfinite(costs), costs, 0.0) for costs in (unary, tables)]
    top = 1.0 + sum(
        float(np.maximum.reduceat(costs, starts[:-1]).sum())
        for costs, starts in zip(finite, (offset, table_offset), strict=True)
        if costs.size
    )
    network: Any = pytoulbar2.CFN(top, 0)
    for i, size in enumerate(np.diff(offset).tolist()):
        network.AddVariable(f"x{i}", range(size))
        network.AddFunction([i], _capped(unary[offset[i] : offset[i + 1]], top))
    for e, (u, v) in enumerate(packed["edges"].tolist()):
        table = tables[table_offset[e] : table_offset[e + 1]]
        network.AddFunction([u, v], _capped(table, top))
    answer = network.Solve()
    return None if answer is None else [int(k) for k in answer[0]]


def _shifted(costs: Any, starts: Any) -> Any:
    """Costs less the minimum of their part, so that none is negative."""
    if not costs.size:
        return costs
    least = np.minimum.reduceat(costs, starts[:-1])
    return costs - np.repeat(np.where(np.isfinite(least), least, 0.0), np.diff(starts))


def _capped(costs: Any, top: float) -> list[float]:
    return np.minimum(costs, top).tolist()


def main() -> None:
    """Read a packed core from standard input and write the optimal choice as JSON."""
    packed = np.load(io.BytesIO(sys.stdin.buffer.read()), allow_pickle=False)
    sys.stdout.write(json.dumps(_solve(packed)))


if __name__ == "__main__":
    main()
