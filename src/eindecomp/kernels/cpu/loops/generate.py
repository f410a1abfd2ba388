"""From a loop nest to the source of a Python function that `assemble` reads.

The function takes the address of integers: the sizes of all loops, then the address and the byte
strides (one for each of its loops) of every input, scalar and output, then the scratch block's
address. The source is made of numbers and of names made here; nothing of a user's text is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from eindecomp.kernels.cpu.loops.emit import LOOPS, literal
from eindecomp.kernels.cpu.loops.nest import Nest, NestAccess
from eindecomp.kernels.scalar_lines import NamedValue, ScalarLines
from eindecomp.lang.dtypes import widen
from eindecomp.lang.scalar import Call, Const, Expr

State = list[NamedValue]
Index = dict[int, str]
"""Where each loop stands, in source."""
Args = Callable[[int], NamedValue]
"""Gives the value of an input."""


def source_of(nest: Nest) -> str:
    """Write the function `kernel` of a nest."""
    return _NestWriter(nest).write()


class _NestWriter:
    """Writes one function from the outermost loop inwards."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.program = nest.program
        self.lines: list[str] = ["def kernel(m):"]
        self.depth = 1
        self.made = 0

    def write(self) -> str:
        self._unpack()
        with self._loops(self.nest.outer):
            if not self.nest.aggregated:
                self._map()
            elif self.nest.reduces_lanes:
                self._rows(self._lane_tile)
            else:
                # Blocks of lanes of the result, then rows, then what is aggregated.
                vector, lanes = self.nest.vector, self.nest.lanes
                with self._under(f"for v in range(0, n{vector}, {lanes}):"):
                    self._put(f"lanes = min({lanes}, n{vector} - v)")
                    self._rows(self._block_tile)
        return "\n".join(self.lines) + "\n"

    # Lines and loops

    def _put(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    @contextmanager
    def _under(self, head: str) -> Generator[None]:
        self._put(head)
        self.depth += 1
        yield
        self.depth -= 1

    @contextmanager
    def _loops(self, loops: Sequence[int]) -> Generator[None]:
        before = self.depth
        for loop in loops:
            self._put(f"for i{loop} in range(n{loop}):")
            self.depth += 1
        yield
        self.depth = before

    def _unpack(self) -> None:
        nest, end = self.nest, self.nest.count
        self._put(*(f"n{k} = load_int64(m, {k})" for k in range(nest.count)))
        for name, access, slot in nest.slots():
            self._put(f"{name} = load_int64(m, {slot})")
            for at, loop in enumerate(access.loops, slot + 1):
                self._put(f"{name}_{loop} = load_int64(m, {at})")
            end = slot + 1 + len(access.loops)
        for k, of in enumerate(nest.scalars):
            self._put(f"s{k} = load_{of.name}(c{k}, 0)")
        self._put(f"scratch = load_int64(m, {end})")

    def _outer_index(self) -> Index:
        return {loop: f"i{loop}" for loop in self.nest.outer}

    # Values

    def _element(self, access: NestAccess, pointer: str, index: str) -> tuple[str, str]:
        """The end of the names of functions that read or write an element, and its place."""
        if access.unit:
            return access.type.name, f"{pointer}, {index}"
        return f"bytes_{access.type.name}", f"{pointer}, {index} * {pointer}_step"

    def _computing(self, args: Args) -> ScalarLines:
        scalars = {f"s{k}": NamedValue(f"s{k}", t, True) for k, t in enumerate(self.nest.scalars)}
        self.made += 1
        return ScalarLines(LOOPS, f"t{self.made}_", args, scalars)

    def _open(self, prefix: str, name: str, access: NestAccess, index: Index) -> str:
        """Name the address of one array where the loops stand, and its step along the vector."""
        pointer = f"{prefix}{name}"
        steps = [f"{index[k]} * {name}_{k}" for k in access.loops if k in index]
        self._put(f"{pointer} = {' + '.join([name, *steps])}")
        if not access.unit:
            step = f"{name}_{self.nest.vector}" if self.nest.vector in access.loops else "0"
            self._put(f"{pointer}_step = {step}")
        return pointer

    def _loader(self, prefix: str, index: Index, inside: list[str], at: str = "j") -> Args:
        """Read inputs: those without the vector loop ahead of it, the others in the list given."""
        known: dict[int, NamedValue] = {}

        def load(k: int) -> NamedValue:
            if k not in known:
                access = self.nest.inputs[k]
                pointer = self._open(prefix, f"a{k}", access, index)
                varies = self.nest.vector in access.loops
                name = f"{prefix}x{k}"
                read = "reload" if self.nest.overlaps else "load"
                kind, where = self._element(access, pointer, at if varies else "0")
                text = f"{name} = {read}_{kind}({where})"
                if varies:
                    inside.append(text)
                else:
                    self._put(text)
                known[k] = NamedValue(name, widen(access.type))
            return known[k]

        return load

    # Maps

    def _map(self) -> None:
        index = self._outer_index()
        reads: list[str] = []
        lines = self._computing(self._loader("q_", index, reads))
        values = [lines.value(expr) for expr in self.program.join]
        state = [lines.cast(v, t) for v, t in zip(values, self.program.state, strict=True)]
        if self.program.combine is not None:
            # A single value is combined with the neutral state, as several values are.
            pairs = zip(self.program.identity, self.program.state, strict=True)
            neutral = [NamedValue(literal(x, t), t) for x, t in pairs]
            state = self._combine(neutral, state, lines.lines)
        stores = self._stores(lines, state, index, "q_", "j")
        with self._under(f"for j in range(n{self.nest.vector}):"):
            self._put(*reads, *lines.lines, *stores)

    def _stores(
        self, lines: ScalarLines, state: State, index: Index, prefix: str, at: str
    ) -> list[str]:
        """Finish a state if the program does, and return the lines that store it."""
        if self.program.finish is not None:
            own = self._computing(lambda k: state[k])
            finished = [own.value(expr) for expr in self.program.finish]
            state = finished
            lines.lines += own.lines
        stores: list[str] = []
        for k, (access, value) in enumerate(zip(self.nest.outputs, state, strict=True)):
            pointer = self._open(prefix, f"z{k}", access, index)
            to = widen(access.type)
            name = value.name if value.type == to else lines.cast(value, to).name
            kind, where = self._element(access, pointer, at)
            stores.append(f"store_{kind}({where}, {name})")
        return stores

    # Aggregations

    def _rows(self, tile: Callable[[int], None]) -> None:
        """Tiles of several rows, then of one for the rest."""
        row, rows = self.nest.row, self.nest.rows
        if row is None:
            tile(1)
            return
        self._put("r = 0")
        with self._under(f"while r + {rows} <= n{row}:"):
            tile(rows)
            self._put(f"r += {rows}")
        if rows > 1:
            with self._under(f"while r < n{row}:"):
                tile(1)
                self._put("r += 1")

    def _at_row(self, k: int) -> Index:
        index = self._outer_index()
        if self.nest.row is not None:
            index[self.nest.row] = f"(r + {k})" if k else "r"
        return index

    def _slot(self, value: int, row: int, rows: int, at: str = "j") -> str:
        """Where a state's value is in the scratch block: its address and index."""
        sizes = [t.itemsize for t in self.program.state]
        start = rows * self.nest.lanes * sum(sizes[:value])
        offset = row * self.nest.lanes
        return f"scratch + {start}, {at} + {offset}" if offset else f"scratch + {start}, {at}"

    def _reloaded(self, prefix: str, row: int, rows: int, body: list[str], at: str = "j") -> State:
        """Read a state from the scratch block, under names of its own."""
        state = [NamedValue(f"{prefix}{k}", of) for k, of in enumerate(self.program.state)]
        for k, value in enumerate(state):
            slot = self._slot(k, row, rows, at)
            body.append(f"{value.name} = reload_{value.type.name}({slot})")
        return state

    def _start(self, rows: int) -> None:
        with self._under("for j in range(lanes):"):
            neutral_state = zip(self.program.state, self.program.identity, strict=True)
            for value, (of, neutral) in enumerate(neutral_state):
                text = literal(neutral, of)
                for row in range(rows):
                    self._put(f"store_{of.name}({self._slot(value, row, rows)}, {text})")

    def _block_tile(self, rows: int) -> None:
        nest = self.nest
        self._start(rows)
        last = nest.aggregated[-1]
        place = {nest.vector: "v"} | {k: f"i{k}" for k in nest.aggregated[:-1]}
        with self._loops(nest.aggregated[:-1]):
            self._put("k = 0")
            for unroll in dict.fromkeys((nest.unroll, 1)):
                with self._under(f"while k + {unroll} <= n{last}:"):
                    self._pass(rows, unroll, place, last, 1)
                    self._put(f"k += {unroll}")
        for row in range(rows):
            self._finish_row(row, rows, self._at_row(row) | {nest.vector: "v"}, "lanes")

    def _lane_tile(self, rows: int) -> None:
        nest, lanes = self.nest, self.nest.lanes
        vector = nest.vector
        used = f"max(1, min({lanes}, n{vector}))"  # where nothing is aggregated, a neutral state
        self._put(f"lanes = {used}")
        self._start(rows)
        place = {k: f"i{k}" for k in nest.aggregated[:-1]}
        with self._loops(nest.aggregated[:-1]):
            self._put("k = 0", f"lanes = {lanes}")
            for unroll in dict.fromkeys((nest.unroll, 1)):
                with self._under(f"while k + {unroll * lanes} <= n{vector}:"):
                    self._pass(rows, unroll, place, vector, lanes, str(lanes))
                    self._put(f"k += {unroll * lanes}")
            with self._under(f"if k < n{vector}:"):
                self._put(f"lanes = n{vector} - k")
                self._pass(rows, 1, place, vector, lanes)
        self._put(f"lanes = {used}")
        self._fold(rows)
        for row in range(rows):
            self._finish_row(row, rows, self._at_row(row), "1")

    def _pass(
        self, rows: int, unroll: int, place: Index, inner: int, step: int, count: str = "lanes"
    ) -> None:
        """Combine the values of `unroll` steps of the innermost loop with the states."""
        body: list[str] = []
        for row in range(rows):
            state = self._reloaded(f"w{row}_", row, rows, body)
            for u in range(unroll):
                index = self._at_row(row) | place
                index[inner] = f"(k + {u * step})" if u else "k"
                # Rows and steps read some elements twice, until LLVM finds that out.
                load = self._loader(f"p{row}_{u}_", index, body)
                state = self._combined(state, load, body)
            body += [
                f"store_{of.name}({self._slot(k, row, rows)}, {value.name})"
                for k, (of, value) in enumerate(zip(self.program.state, state, strict=True))
            ]
        with self._under(f"for j in range({count}):"):
            self._put(*body)

    def _combined(self, state: State, args: Args, body: list[str]) -> State:
        program = self.program
        lines = self._computing(args)
        lines.lines = body
        factors = _factors(program.join[0]) if program.fuses else None
        if factors is not None:
            a, b = (lines.value(factor) for factor in factors)
            if a.type == b.type == program.state[0]:
                name = f"{lines.prefix}{len(body)}"
                body.append(f"{name} = muladd({a.name}, {b.name}, {state[0].name})")
                return [NamedValue(name, program.state[0])]
        typed = zip(program.join, program.state, strict=True)
        joined = [lines.cast(lines.value(expr), of) for expr, of in typed]
        return self._combine(state, joined, body)

    def _combine(self, left: State, right: State, body: list[str]) -> State:
        both = [*left, *right]
        lines = self._computing(lambda k: both[k])
        lines.lines = body
        typed = zip(self.program.combine or (), self.program.state, strict=True)
        return [lines.cast(lines.value(expr), of) for expr, of in typed]

    def _fold(self, rows: int) -> None:
        """Combine the states of all lanes by halving."""
        with self._under("while lanes > 1:"):
            self._put("half = lanes // 2")
            with self._under("for j in range(half):"):
                for row in range(rows):
                    body: list[str] = []
                    left = self._reloaded(f"l{row}_", row, rows, body)
                    right = self._reloaded(f"h{row}_", row, rows, body, "j + half")
                    folded = self._combine(left, right, body)
                    self._put(*body)
                    for k, (of, value) in enumerate(zip(self.program.state, folded, strict=True)):
                        self._put(f"store_{of.name}({self._slot(k, row, rows)}, {value.name})")
            with self._under("if lanes % 2:"):
                for row in range(rows):
                    for k, of in enumerate(self.program.state):
                        left = self._slot(k, row, rows, "half")
                        right = self._slot(k, row, rows, "lanes - 1")
                        self._put(f"store_{of.name}({left}, reload_{of.name}({right}))")
            self._put("lanes = half + lanes % 2")

    def _finish_row(self, row: int, rows: int, index: Index, count: str) -> None:
        """Finish the states of so many lanes of one row and store them."""
        body: list[str] = []
        state = self._reloaded("e", row, rows, body)
        lines = self._computing(lambda k: state[k])
        lines.lines = body
        stores = self._stores(lines, state, index, f"f{row}_", "j")
        with self._under(f"for j in range({count}):"):
            self._put(*body, *stores)


def _factors(expr: Expr) -> tuple[Expr, Expr] | None:
    """The two factors of a product or a square."""
    match expr:
        case Call("mul", (a, b)):
            return a, b
        case Call("pow", (a, Const(2 | 2.0))):
            return a, a
        case _:
            return None
