"""The source of a kernel like a matrix product: a tile of accumulators, loops over summed axes.

Every value that is loaded serves a whole row or column of the tile. A tile is cut into blocks, each
of one accumulator for each thread, and the source names every block by itself: left to choose how
threads share one large tile, Triton has each of them load almost as many values as it computes.

Programs at the edge load the last row or column again rather than ask for each element whether it
is there; only stores ask. A source is made of numbers and of names made here; nothing of a user's
text is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import product

from eindecomp.kernels.scalar_lines import NamedValue, ScalarLines
from eindecomp.kernels.torch.generated.emit import POINT, TRITON, literal, type_text
from eindecomp.kernels.torch.generated.form import (
    BATCH,
    COLS,
    LETTERS,
    PACK,
    ROWS,
    SUMMED,
    JoinAccess,
    JoinForm,
)
from eindecomp.lang.dtypes import widen
from eindecomp.lang.scalar import Expr

CONSTANTS = ("ROWS", "COLS", "UNROLL", "BAND", "PADDED", "EXACT", "LONG")
"""A block, summed steps written out, tiles of rows in a band; whether inputs may be read beyond
their last row and column, whether tiles fill the output, whether offsets take 64 bits."""
_TILE = "ROWS, COLS"


@cache
def tile_source(form: JoinForm, high: int, wide: int, packed: bool = False) -> str:
    """Write the function `kernel`; every program computes one tile of one element of the batch.

    A tile is so many blocks high and wide. If it is `packed`, inputs are loaded in packs: all that
    vary along the one summed axis are copies whose rows or columns, and steps of a pack, are
    neighbours.
    """
    return _TileWriter(form, high, wide, packed).write()


class _TileWriter:
    """Writes a kernel from the top down, from the outermost loop inwards."""

    def __init__(self, form: JoinForm, high: int, wide: int, packed: bool) -> None:
        self.form, self.program, self.packed = form, form.program, packed
        self.high, self.wide = range(high), range(wide)
        self._blocks = [*product(self.high, self.wide)]
        self._moving = [k for k, access in enumerate(form.inputs) if access.varies[SUMMED]]
        self._lines: list[str] = []
        self._depth = 0
        self._computed = 0

    def write(self) -> str:
        """The source."""
        typed = [f"{name}: tl.constexpr" for name in CONSTANTS]
        self._put("@triton.jit", f"def kernel({', '.join([*self.form.parameters(), *typed])}):")
        self._depth += 1
        self._put(f"origin = tl.full([{POINT}], 0, tl.int32)")
        self._put(*(f"s{k} = tl.load(c{k} + origin)" for k in range(len(self.form.scalars))))
        self._place()
        self._index()
        for name, access in self.form.arrays():
            self._begin_array(name, access)
        for k in range(len(self.form.inputs)):
            if k not in self._moving:
                self._load(k, f"a{k}_at")
        for r, c in self._blocks:
            for value, neutral in zip(self._state(r, c), self.program.identity, strict=True):
                self._put(f"{value.name} = {literal(neutral, value.type, _TILE)}")
        self._loops()
        for r, c in self._blocks:
            self._store(r, c)
        return "\n".join(self._lines) + "\n"

    def _put(self, *lines: str) -> None:
        """Add lines at the current depth."""
        self._lines += ["    " * self._depth + line for line in lines]

    @contextmanager
    def _under(self, head: str) -> Generator[None]:
        """Add a line and indent what follows."""
        self._put(head)
        self._depth += 1
        yield
        self._depth -= 1

    def _place(self) -> None:
        """Find this program's tile: bands of rows are walked by columns, so that caches serve."""
        high, wide = len(self.high), len(self.wide)
        self._put(
            f"rows = {self._extent(ROWS)}",
            f"cols = {self._extent(COLS)}",
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
        with self._under("if LONG:"):
            self._put("row, col, b = row.to(tl.int64), col.to(tl.int64), b.to(tl.int64)")

    def _extent(self, group: int) -> str:
        """How many elements a group's axes have together."""
        return " * ".join(f"{LETTERS[group]}{j}" for j in range(self.form.counts[group])) or "1"

    def _index(self) -> None:
        self._decode(BATCH, "b")
        sides = ((ROWS, "m", "row", self.high), (COLS, "n", "col", self.wide))
        for group, letter, name, blocks in sides:
            for at in blocks:
                size = name.upper() + "S"
                flat = f"{letter}_{at}"
                with self._under("if PADDED:"):
                    self._put(f"{flat} = {name} + {at} * {size}")
                with self._under("else:"):
                    self._put(f"{flat} = tl.minimum({name} + {at} * {size}, {name}s - 1)")
                self._decode(group, flat, f"_{at}")

    def _decode(self, group: int, flat: str, suffix: str = "") -> None:
        """Take a group's flat index apart into those of its axes, `{letter}{j}_i`."""
        letter, rest = LETTERS[group], flat
        for j in reversed(range(self.form.counts[group])):
            index = f"{letter}{j}_i{suffix}"
            if j:
                self._put(f"{index} = {rest} % {letter}{j}", f"{flat}_r = {rest} // {letter}{j}")
                rest = f"{flat}_r"
            else:
                self._put(f"{index} = {rest}")

    def _steps(self, name: str, group: int, suffix: str = "") -> str:
        """The sum of index times stride over a group's axes."""
        letter = LETTERS[group]
        axes = range(self.form.counts[group])
        return " + ".join(f"{letter}{j}_i{suffix} * {name}_{letter}{j}" for j in axes)

    def _begin_array(self, name: str, access: JoinAccess) -> None:
        """Name where an array begins for this element of the batch, and its offsets by block."""
        packed = self.packed and name in {f"a{k}" for k in self._moving}
        steps = f" + {self._steps(name, BATCH)}" if access.varies[BATCH] else ""
        self._put(f"{name}_at = {name}{steps}")
        for group, letter, flat, blocks in (
            (ROWS, "r", "row", self.high),
            (COLS, "c", "col", self.wide),
        ):
            if packed and access.varies[group]:
                self._put(f"{name}_{letter} = {flat} * {PACK}")
            elif access.varies[group]:
                offsets = {at: self._steps(name, group, f"_{at}") for at in blocks}
                self._put(*(f"{name}_{letter}{at} = {text}" for at, text in offsets.items()))

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

    def _load(self, k: int, pointer: str) -> None:
        """Load an input for all blocks, as it meets them, in the type it is computed in."""
        access = self.form.inputs[k]
        values = dict(self._value(k, r, c) for r, c in self._blocks)
        turn = {(True, False): "[:, None]", (False, True): "[None, :]"}
        shape = turn.get((access.varies[ROWS], access.varies[COLS]), "")
        for name, offsets in values.items():
            self._put(f"{name} = tl.load({pointer} + {offsets}){_widened(access)}{shape}")

    def _packs(self, k: int) -> dict[str, tuple[str, str]]:
        """Names for the blocks of a packed input, each with its offset and the text that adds it.

        A block adds a constant, so that one address serves all of them.
        """
        if self.form.inputs[k].varies[ROWS]:
            size, letter, places = "ROWS", "r", {f"x{k}_{r}_": r for r in self.high}
        else:
            size, letter, places = "COLS", "c", {f"x{k}__{c}": c for c in self.wide}
        return {name: (f"a{k}_{letter}", f"{at} * {size} * {PACK}") for name, at in places.items()}

    def _load_pack(self, k: int, pointer: str) -> None:
        """Load the steps of a pack of an input at once, and take them apart."""
        access = self.form.inputs[k]
        size, shape = ("ROWS", "[:, None]") if access.varies[ROWS] else ("COLS", "[None, :]")
        for name, (offsets, block) in self._packs(k).items():
            tile = f"{offsets}[:, None] + step[None, :] + {block}"
            self._put(
                f"pack = tl.load({pointer} + {tile}){_widened(access)}",
                f"even, odd = tl.split(tl.reshape(pack, [{size}, 2, 2]))",
                f"{name}u0, {name}u2 = tl.split(even)",
                f"{name}u1, {name}u3 = tl.split(odd)",
                *(f"{name}u{u} = {name}u{u}{shape}" for u in range(PACK)),
            )

    def _loops(self) -> None:
        """Loops over the summed axes; the innermost is written out in steps."""
        last, moving = self.form.counts[SUMMED] - 1, self._moving
        at = {k: f"a{k}_at" for k in moving}
        before = self._depth
        self._put("zero = tl.full([], 0, tl.int64)")
        for j in range(last):
            self._put(f"for i{j} in range(k{j}):")
            self._depth += 1
            for k in moving:
                self._put(f"a{k}_at{j} = {at[k]} + i{j} * (zero + a{k}_k{j})")
                at[k] = f"a{k}_at{j}"
        for k in moving:
            self._put(f"a{k}_p = {at[k]}", f"a{k}_s = zero + a{k}_k{last}")
        if self.packed:
            self._put(f"step = tl.arange(0, {PACK})", f"steps = k{last} // {PACK}")
        else:
            self._put(f"steps = k{last}")
        self._put("whole = steps // UNROLL * UNROLL")
        with self._under("for _ in range(0, whole, UNROLL):"):
            with self._under("for u in tl.static_range(UNROLL):"):
                self._step("u")
            self._put(*(f"a{k}_p += UNROLL * a{k}_s" for k in moving))
        # Without the condition, the same loop would be compiled twice.
        with self._under("if UNROLL > 1:"), self._under("for _ in range(whole, steps):"):
            self._step("0")
            self._put(*(f"a{k}_p += a{k}_s" for k in moving))
        if self.packed:
            with self._under(f"for u in range(k{last} - steps * {PACK}):"):
                self._load_rest()
                self._compute("")
        self._depth = before

    def _load_rest(self) -> None:
        """Load one step of the last pack, which is not whole."""
        for k in self._moving:
            access = self.form.inputs[k]
            shape = "[:, None]" if access.varies[ROWS] else "[None, :]"
            for name, (offsets, block) in self._packs(k).items():
                place = f"a{k}_p + u + {offsets} + {block}"
                self._put(f"{name} = tl.load({place}){_widened(access)}{shape}")

    def _step(self, at: str) -> None:
        """Load a step, or a pack of them, and combine."""
        for k in self._moving:
            load = self._load_pack if self.packed else self._load
            load(k, f"a{k}_p + {at} * a{k}_s")
        for suffix in [f"u{u}" for u in range(PACK)] if self.packed else [""]:
            self._compute(suffix)

    def _compute(self, suffix: str) -> None:
        """Combine the accumulators with the join of what was loaded."""
        for r, c in self._blocks:
            args = [
                NamedValue(
                    self._value(k, r, c)[0] + (suffix if k in self._moving else ""),
                    widen(access.type),
                )
                for k, access in enumerate(self.form.inputs)
            ]
            state = self._state(r, c)
            joined = self._as_state(self.program.join, lambda k, args=args: args[k])
            both = [*state, *joined]
            combined = self._as_state(self.program.combine or (), lambda k, both=both: both[k])
            for value, new in zip(state, combined, strict=True):
                self._put(f"{value.name} = tl.broadcast_to({new.name}, [{_TILE}])")

    def _state(self, r: int, c: int) -> list[NamedValue]:
        """The accumulators of a block."""
        return [NamedValue(f"acc{j}_{r}_{c}", t) for j, t in enumerate(self.program.state)]

    def _as_state(
        self, exprs: Sequence[Expr], args: Callable[[int], NamedValue]
    ) -> list[NamedValue]:
        """The values of expressions, in the types of a state."""
        self._computed += 1
        scalars = {f"s{k}": NamedValue(f"s{k}", t, True) for k, t in enumerate(self.form.scalars)}
        lines = ScalarLines(TRITON, f"t{self._computed}_", args, scalars)
        values = [lines.value(expr) for expr in exprs]
        cast = [lines.cast(v, t) for v, t in zip(values, self.program.state, strict=True)]
        self._put(*lines.lines)
        return cast

    def _store(self, r: int, c: int) -> None:
        inside = f"(row + {r} * ROWS < rows)[:, None] & (col + {c} * COLS < cols)[None, :]"
        for j, (value, access) in enumerate(zip(self._state(r, c), self.form.outputs, strict=True)):
            offsets = [f"z{j}_r{r}[:, None]"] if access.varies[ROWS] else []
            offsets += [f"z{j}_c{c}[None, :]"] if access.varies[COLS] else []
            pointer = " + ".join([f"z{j}_at", *offsets, f"tl.full([{_TILE}], 0, tl.int32)"])
            lines = ScalarLines(TRITON, f"y{j}_{r}_{c}_", lambda _, value=value: value)
            cast = lines.cast(value, access.type)
            self._put(*lines.lines, f"y{j} = tl.broadcast_to({cast.name}, [{_TILE}])")
            with self._under("if EXACT:"):
                self._put(f"tl.store({pointer}, y{j})")
            with self._under("else:"):
                self._put(f"tl.store({pointer}, y{j}, mask={inside})")


def _widened(access: JoinAccess) -> str:
    """The conversion of what is loaded to the type it is computed in."""
    to = widen(access.type)
    return "" if to == access.type else f".to({type_text(to)})"
