"""What the sources of all generated kernels have in common: indices, offsets, states, results.

A source is made of numbers and of names made here; nothing of a user's text is in it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from eindecomp.kernels.torch.generated.emit import POINT, NamedValue, ScalarLines
from eindecomp.kernels.torch.generated.form import LETTERS
from eindecomp.lang.dtypes import widen

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from eindecomp.kernels.torch.generated.form import Form


class Writer:
    """Writes one kernel from the top down."""

    def __init__(self, form: Form) -> None:
        self.form, self.program = form, form.program
        self.lines: list[str] = []
        self.depth = 0
        self.made = 0

    def put(self, *lines: str) -> None:
        """Add lines at the current depth."""
        self.lines += ["    " * self.depth + line for line in lines]

    @contextmanager
    def under(self, head: str) -> Generator[None]:
        """Add a line and indent what follows."""
        self.put(head)
        self.depth += 1
        yield
        self.depth -= 1

    def text(self) -> str:
        """The source."""
        return "\n".join(self.lines) + "\n"

    def begin(self, constants: Sequence[str]) -> None:
        """The kernel's head, and its run-time scalars."""
        typed = [f"{name}: tl.constexpr" for name in constants]
        self.put("@triton.jit", f"def kernel({', '.join([*self.form.parameters(), *typed])}):")
        self.depth += 1
        self.put(f"origin = tl.full([{POINT}], 0, tl.int32)")
        self.put(*(f"s{k} = tl.load(c{k} + origin)" for k in range(len(self.form.scalars))))

    def extent(self, group: int) -> str:
        """How many elements a group's axes have together."""
        return " * ".join(f"{LETTERS[group]}{j}" for j in range(self.form.counts[group])) or "1"

    def decode(self, group: int, flat: str, suffix: str = "") -> None:
        """Take a group's flat index apart into those of its axes, `{letter}{j}_i`."""
        letter, rest = LETTERS[group], flat
        for j in reversed(range(self.form.counts[group])):
            index = f"{letter}{j}_i{suffix}"
            if j:
                self.put(f"{index} = {rest} % {letter}{j}", f"{flat}_r = {rest} // {letter}{j}")
                rest = f"{flat}_r"
            else:
                self.put(f"{index} = {rest}")

    def steps(self, name: str, group: int, suffix: str = "") -> str:
        """The sum of index times stride over a group's axes."""
        letter = LETTERS[group]
        axes = range(self.form.counts[group])
        return " + ".join(f"{letter}{j}_i{suffix} * {name}_{letter}{j}" for j in axes)

    def computing(self, args: Callable[[int], NamedValue], shape: str = POINT) -> ScalarLines:
        """Lines that compute on the given values, under names of their own."""
        self.made += 1
        scalars = {f"s{k}": NamedValue(f"s{k}", t, True) for k, t in enumerate(self.form.scalars)}
        return ScalarLines(f"t{self.made}_", args, scalars, shape)

    def state(self, suffix: str = "") -> list[NamedValue]:
        """The accumulators."""
        return [NamedValue(f"acc{j}{suffix}", t) for j, t in enumerate(self.program.state)]

    def joined(self, args: Sequence[NamedValue]) -> list[NamedValue]:
        """The values of the join, as a state."""
        lines = self.computing(lambda k: args[k])
        found = [lines.value(expr) for expr in self.program.join]
        cast = [lines.cast(v, t) for v, t in zip(found, self.program.state, strict=True)]
        self.put(*lines.lines)
        return cast

    def combined(
        self, left: Sequence[NamedValue], right: Sequence[NamedValue], shape: str = POINT
    ) -> list[NamedValue]:
        """Two states combined."""
        lines = self.computing(lambda k: [*left, *right][k], shape)
        found = [lines.value(expr) for expr in self.program.combine or ()]
        cast = [lines.cast(v, t) for v, t in zip(found, self.program.state, strict=True)]
        self.put(*lines.lines)
        return cast

    def finished(self, state: Sequence[NamedValue]) -> list[NamedValue]:
        """The results that a state stands for, in the types that outputs are stored from."""
        lines = self.computing(lambda k: state[k])
        if self.program.finish is not None:
            state = [lines.value(expr) for expr in self.program.finish]
        types = [widen(access.type) for access in self.form.outputs]
        found = [lines.cast(v, t) for v, t in zip(state, types, strict=True)]
        self.put(*lines.lines)
        return found
