"""Kernels like a matrix product: a tile of accumulators for each program, a loop over the summed.

Every value that is loaded serves a whole row or column of the tile. A tile is cut into blocks, each
of one accumulator for each thread, and the source names every block by itself: left to choose how
threads share one large tile, Triton has each of them load almost as many values as it computes.

Programs at the edge load the last row or column again rather than ask for each element whether it
is there; only stores ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from eindecomp.kernels.torch.generated.emit import NamedValue, literal, type_text
from eindecomp.kernels.torch.generated.form import BATCH, COLS, ROWS, SUMMED
from eindecomp.kernels.torch.generated.writer import Writer
from eindecomp.lang.dtypes import widen

if TYPE_CHECKING:
    from eindecomp.kernels.torch.generated.form import Access, Form

CONSTANTS = ("ROWS", "COLS", "UNROLL", "BAND", "PADDED", "EXACT", "LONG")
"""A block, summed steps written out, tiles of rows in a band; whether inputs may be read beyond
their last row and column, whether tiles fill the output, whether offsets take 64 bits."""
_TILE = "ROWS, COLS"


@dataclass(frozen=True, slots=True)
class Blocking:
    """How many blocks high and wide a tile is, and how inputs are loaded in the summed loop."""

    high: int
    wide: int
    ahead: bool = False
    """Whether each step loads what the next one reads, and so one step beyond the last."""
    pack: int = 1
    """How many summed steps one load brings: 1, 2 or 4. In packs, all inputs that vary along the
    one summed axis are `copies`, whose rows or columns and steps of a pack are neighbours."""


def tile_source(form: Form, blocking: Blocking) -> str:
    """Write the function `kernel`; every program computes one tile of one element of the batch."""
    return _TileWriter(form, blocking).write()


class _TileWriter(Writer):
    """Writes a kernel from the outermost loop inwards."""

    def __init__(self, form: Form, blocking: Blocking) -> None:
        super().__init__(form)
        self.ahead, self.pack = blocking.ahead, blocking.pack
        self.high, self.wide = range(blocking.high), range(blocking.wide)
        self._blocks = [*product(self.high, self.wide)]

    def write(self) -> str:
        self.begin(CONSTANTS)
        self._place()
        self._index()
        moving = [k for k, access in enumerate(self.form.inputs) if access.varies[SUMMED]]
        packed = {f"a{k}" for k in moving if self.pack > 1}
        for name, access in self.form.arrays():
            self._begin_array(name, access, name in packed)
        for k in range(len(self.form.inputs)):
            if k not in moving:
                self._load(k, f"a{k}_at")
        for r, c in self._blocks:
            self._start(f"_{r}_{c}")
        self._loops(moving)
        for r, c in self._blocks:
            self._store(r, c)
        return self.text()

    def _place(self) -> None:
        """Which tile this is: bands of rows are walked column by column, so that caches serve."""
        high, wide = len(self.high), len(self.wide)
        self.put(
            f"rows = {self.extent(ROWS)}",
            f"cols = {self.extent(COLS)}",
            f"row_tiles = (rows + {high} * ROWS - 1) // ({high} * ROWS)",
            f"col_tiles = (cols + {wide} * COLS - 1) // ({wide} * COLS)",
            "tile = tl.program_id(0) % (row_tiles * col_tiles)",
            "b = tl.program_id(0) // (row_tiles * col_tiles)",
            "band = tile // (BAND * col_tiles)",
            "height = tl.minimum(row_tiles - band * BAND, BAND)",
            "tile = tile % (BAND * col_tiles)",
            f"row = (band * BAND + tile % height) * {high} * ROWS + tl.arange(0, ROWS)",
            f"col = (tile // height) * {wide} * COLS + tl.arange(0, COLS)",
        )
        with self.under("if LONG:"):
            self.put("row, col, b = row.to(tl.int64), col.to(tl.int64), b.to(tl.int64)")

    def _index(self) -> None:
        self.decode(BATCH, "b")
        sides = ((ROWS, "m", "row", self.high), (COLS, "n", "col", self.wide))
        for group, letter, name, blocks in sides:
            for at in blocks:
                size = name.upper() + "S"
                flat = f"{letter}_{at}"
                with self.under("if PADDED:"):
                    self.put(f"{flat} = {name} + {at} * {size}")
                with self.under("else:"):
                    self.put(f"{flat} = tl.minimum({name} + {at} * {size}, {name}s - 1)")
                self.decode(group, flat, f"_{at}")

    def _begin_array(self, name: str, access: Access, packed: bool) -> None:
        """Name where an array begins for this element of the batch, and its offsets by block."""
        steps = f" + {self.steps(name, BATCH)}" if access.varies[BATCH] else ""
        self.put(f"{name}_at = {name}{steps}")
        for group, letter, flat, blocks in (
            (ROWS, "r", "row", self.high),
            (COLS, "c", "col", self.wide),
        ):
            if packed and access.varies[group]:
                self.put(f"{name}_{letter} = {flat} * {self.pack}")
            elif access.varies[group]:
                self.put(
                    *(f"{name}_{letter}{at} = {self.steps(name, group, f'_{at}')}" for at in blocks)
                )

    def _value(self, k: int, r: int, c: int) -> tuple[str, str]:
        """The name of what a block reads of an input, and its offsets."""
        match self.form.inputs[k].varies[ROWS], self.form.inputs[k].varies[COLS]:
            case True, True:
                return f"x{k}_{r}_{c}", f"a{k}_r{r}[:, None] + a{k}_c{c}[None, :]"
            case True, False:
                return f"x{k}_{r}_", f"a{k}_r{r}"
            case False, True:
                return f"x{k}__{c}", f"a{k}_c{c}"
            case _:
                return f"x{k}__", "origin"

    def _load(self, k: int, pointer: str, mark: str = "") -> list[str]:
        """Load an input for all blocks, as it meets them, in the type it is computed in.

        The names of the values are returned; `mark` is put before them.
        """
        access = self.form.inputs[k]
        values = dict(self._value(k, r, c) for r, c in self._blocks)
        turn = {(True, False): "[:, None]", (False, True): "[None, :]"}
        shape = turn.get((access.varies[ROWS], access.varies[COLS]), "")
        to = widen(access.type)
        cast = "" if to == access.type else f".to({type_text(to)})"
        for name, offsets in values.items():
            self.put(f"{mark}{name} = tl.load({pointer} + {offsets}){cast}{shape}")
        return [*values]

    def _packs(self, k: int) -> dict[str, tuple[str, str]]:
        """The names of what blocks read of a packed input, their offsets, and what those add.

        A block adds a constant, so that one address serves all of them.
        """
        if self.form.inputs[k].varies[ROWS]:
            size, letter, places = "ROWS", "r", {f"x{k}_{r}_": r for r in self.high}
        else:
            size, letter, places = "COLS", "c", {f"x{k}__{c}": c for c in self.wide}
        return {
            name: (f"a{k}_{letter}", f"{at} * {size} * {self.pack}") for name, at in places.items()
        }

    def _load_pack(self, k: int, pointer: str, mark: str) -> list[str]:
        """Load the steps of a pack of an input at once, and take them apart."""
        access = self.form.inputs[k]
        size, shape = ("ROWS", "[:, None]") if access.varies[ROWS] else ("COLS", "[None, :]")
        to = widen(access.type)
        cast = "" if to == access.type else f".to({type_text(to)})"
        found: list[str] = []
        for name, (offsets, block) in self._packs(k).items():
            steps = [f"{mark}{name}u{u}" for u in range(self.pack)]
            tile = f"{offsets}[:, None] + step[None, :] + {block}"
            self.put(f"pack = tl.load({pointer} + {tile}){cast}")
            if self.pack == 2:
                self.put(f"{', '.join(steps)} = tl.split(pack)")
            else:
                self.put(
                    f"even, odd = tl.split(tl.reshape(pack, [{size}, 2, 2]))",
                    f"{steps[0]}, {steps[2]} = tl.split(even)",
                    f"{steps[1]}, {steps[3]} = tl.split(odd)",
                )
            self.put(*(f"{name} = {name}{shape}" for name in steps))
            found += [f"{name}u{u}" for u in range(self.pack)]
        return found

    def _start(self, suffix: str) -> None:
        for value, neutral in zip(self.state(suffix), self.program.identity, strict=True):
            self.put(f"{value.name} = {literal(neutral, value.type, _TILE)}")

    def _loops(self, moving: list[int]) -> None:
        """Loops over the summed axes; the innermost is written out in steps."""
        last = self.form.counts[SUMMED] - 1
        at = {k: f"a{k}_at" for k in moving}
        before = self.depth
        self.put("zero = tl.full([], 0, tl.int64)")
        for j in range(last):
            self.put(f"for i{j} in range(k{j}):")
            self.depth += 1
            for k in moving:
                self.put(f"a{k}_at{j} = {at[k]} + i{j} * (zero + a{k}_k{j})")
                at[k] = f"a{k}_at{j}"
        for k in moving:
            self.put(f"a{k}_p = {at[k]}", f"a{k}_s = zero + a{k}_k{last}")
        if self.pack > 1:
            self.put(f"step = tl.arange(0, {self.pack})")
        if self.ahead:
            self._load_all(moving, "0", "")
        self.put(f"steps = k{last} // {self.pack}", "whole = steps // UNROLL * UNROLL")
        with self.under("for _ in range(0, whole, UNROLL):"):
            with self.under("for u in tl.static_range(UNROLL):"):
                self._step(moving, "u")
            self.put(*(f"a{k}_p += UNROLL * a{k}_s" for k in moving))
        # Without the condition, the same would be compiled once more.
        with self.under("if UNROLL > 1:"), self.under("for _ in range(whole, steps):"):
            self._step(moving, "0")
            self.put(*(f"a{k}_p += a{k}_s" for k in moving))
        if self.pack > 1:
            with self.under(f"for u in range(k{last} - steps * {self.pack}):"):
                self._load_rest(moving)
                self._compute(moving, "")
        self.depth = before

    def _load_rest(self, moving: list[int]) -> None:
        """Load one step of the last pack, which is not whole."""
        for k in moving:
            access = self.form.inputs[k]
            shape = "[:, None]" if access.varies[ROWS] else "[None, :]"
            to = f".to({type_text(widen(access.type))})"
            for name, (offsets, block) in self._packs(k).items():
                self.put(f"{name} = tl.load(a{k}_p + u + {offsets} + {block}){to}{shape}")

    def _load_all(self, moving: list[int], at: str, mark: str) -> list[str]:
        load = self._load if self.pack == 1 else self._load_pack
        return [name for k in moving for name in load(k, f"a{k}_p + {at} * a{k}_s", mark)]

    def _step(self, moving: list[int], at: str) -> None:
        """Load a step, or a pack of them, and combine."""
        at, mark = (f"({at} + 1)", "next_") if self.ahead else (at, "")
        loaded = self._load_all(moving, at, mark)
        for u in range(self.pack):
            self._compute(moving, f"u{u}" if self.pack > 1 else "")
        if self.ahead:
            self.put(*(f"{name} = next_{name}" for name in loaded))

    def _compute(self, moving: list[int], suffix: str) -> None:
        """Combine the accumulators with the join of what was loaded."""
        for r, c in self._blocks:
            args = [
                NamedValue(
                    self._value(k, r, c)[0] + (suffix if k in moving else ""), widen(access.type)
                )
                for k, access in enumerate(self.form.inputs)
            ]
            state = self.state(f"_{r}_{c}")
            found = self.combined(state, self.joined(args))
            for value, new in zip(state, found, strict=True):
                self.put(f"{value.name} = tl.broadcast_to({new.name}, [{_TILE}])")

    def _store(self, r: int, c: int) -> None:
        inside = f"(row + {r} * ROWS < rows)[:, None] & (col + {c} * COLS < cols)[None, :]"
        for j, value in enumerate(self.finished(self.state(f"_{r}_{c}"))):
            access = self.form.outputs[j]
            offsets = [f"z{j}_r{r}[:, None]"] if access.varies[ROWS] else []
            offsets += [f"z{j}_c{c}[None, :]"] if access.varies[COLS] else []
            pointer = " + ".join([f"z{j}_at", *offsets, f"tl.full([{_TILE}], 0, tl.int32)"])
            self.put(f"y{j} = tl.broadcast_to({value.name}, [{_TILE}])")
            with self.under("if EXACT:"):
                self.put(f"tl.store({pointer}, y{j})")
            with self.under("else:"):
                self.put(f"tl.store({pointer}, y{j}, mask={inside})")
