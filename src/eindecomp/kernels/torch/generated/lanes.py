"""Kernels like a row's reduction: each program aggregates a few rows, lane by lane, then the lanes.

For where an input has all the labels, so that no value serves several points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.kernels.torch.generated.emit import NamedValue, literal, type_text
from eindecomp.kernels.torch.generated.form import ROWS, SUMMED
from eindecomp.kernels.torch.generated.writer import Writer
from eindecomp.lang.dtypes import widen

if TYPE_CHECKING:
    from eindecomp.kernels.torch.generated.form import Form

CONSTANTS = ("ROWS", "LANES", "EXACT", "LONG")
"""The tile, whether tiles fill the output, whether offsets take 64 bits."""
_TILE = "ROWS, LANES"


def lane_source(form: Form) -> str:
    """Write the functions `combine` and `kernel`; the form has no axes but rows and summed ones."""
    return _LaneWriter(form).write()


class _LaneWriter(Writer):
    """Writes a kernel and what its lanes are combined with."""

    def write(self) -> str:
        self._combine()
        self.begin(CONSTANTS)
        self._index()
        for value, neutral in zip(self.state(), self.program.identity, strict=True):
            self.put(f"{value.name} = {literal(neutral, value.type, _TILE)}")
        with self.under("for first in range(0, total, LANES):"):
            self._step()
        self._reduce()
        self._store()
        return self.text()

    def _combine(self) -> None:
        left = [NamedValue(f"x{j}", t) for j, t in enumerate(self.program.state)]
        right = [NamedValue(f"y{j}", t) for j, t in enumerate(self.program.state)]
        names = ", ".join(value.name for value in (*left, *right))
        self.put("@triton.jit")
        with self.under(f"def combine({names}):"):
            found = self.combined(left, right, shape="")
            self.put(f"return {', '.join(value.name for value in found)}")
        self.put("")

    def _index(self) -> None:
        self.put(
            f"rows = {self.extent(ROWS)}",
            f"total = {self.extent(SUMMED)}",
            "row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)",
            "lane = tl.arange(0, LANES)",
        )
        with self.under("if LONG:"):
            self.put("row, lane = row.to(tl.int64), lane.to(tl.int64)")
        self.put("m = tl.minimum(row, rows - 1)")
        self.decode(ROWS, "m")

    def _step(self) -> None:
        self.put("at = first + lane", "k = tl.minimum(at, total - 1)")
        self.decode(SUMMED, "k")
        joined = self.joined([self._load(k) for k in range(len(self.form.inputs))])
        found = self.combined(self.state(), joined)
        for value, new in zip(self.state(), found, strict=True):
            self.put(f"{value.name} = tl.where((at < total)[None, :], {new.name}, {value.name})")

    def _load(self, k: int) -> NamedValue:
        access = self.form.inputs[k]
        turns = {ROWS: "[:, None]", SUMMED: "[None, :]"}
        offsets = [f"({self.steps(f'a{k}', g)}){turns[g]}" for g in turns if access.varies[g]]
        self.put(f"x{k} = tl.load({' + '.join([f'a{k}', *(offsets or ['origin'])])})")
        to = widen(access.type)
        if to != access.type:
            self.put(f"x{k} = x{k}.to({type_text(to)})")
        return NamedValue(f"x{k}", to)

    def _reduce(self) -> None:
        names = ", ".join(value.name for value in self.state())
        given = f"({names})" if len(self.state()) > 1 else names
        self.put(f"{names} = tl.reduce({given}, 1, combine, keep_dims=True)")

    def _store(self) -> None:
        for j, value in enumerate(self.finished(self.state())):
            varies = self.form.outputs[j].varies[ROWS]
            offsets = [f"({self.steps(f'z{j}', ROWS)})[:, None]"] if varies else []
            pointer = " + ".join([f"z{j}", *offsets, "tl.full([ROWS, 1], 0, tl.int32)"])
            self.put(f"y{j} = tl.broadcast_to({value.name}, [ROWS, 1])")
            with self.under("if EXACT:"):
                self.put(f"tl.store({pointer}, y{j})")
            with self.under("else:"):
                self.put(f"tl.store({pointer}, y{j}, mask=(row < rows)[:, None])")
