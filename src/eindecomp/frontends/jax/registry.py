"""The registry of primitives: one function each, which a user can add to.

    from eindecomp.frontends.jax.registry import primitive

    @primitive("logaddexp")
    def logaddexp(op, x, y):
        return op.map("max(x, y) + log(1 + exp(-abs(x - y)))", x, y)

A rule gets the equation as an `Equation` and one `View` for every operand; it returns a view, or a
list of views where the primitive has several results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from eindecomp.errors import GraphError
from eindecomp.frontends.draft import View
from eindecomp.frontends.trace import Trace
from eindecomp.lang.scalar import Expr

Rule = Callable[..., View | list[View]]

RULES: dict[str, Rule] = {}
"""What every primitive is imported as, by its name."""
ELEMENTWISE: set[str] = set()
"""The primitives of elements, which are worked out at once where all operands are numbers."""

CONTROL = frozenset({"scan", "while", "cond"})
"""Primitives that hold jaxprs and more."""

_CALLS = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "remat2": "jaxpr",
}
"""Primitives that call a jaxpr with their own operands, and the parameter that it is."""


def primitive(*names: str, elementwise: bool = False) -> Callable[[Rule], Rule]:
    """Import the primitives of these names by the function that follows."""

    def register(rule: Rule) -> Rule:
        for name in names:
            RULES[name] = rule
            if elementwise:
                ELEMENTWISE.add(name)
        return rule

    return register


@dataclass(frozen=True, slots=True)
class Equation:
    """An equation of a jaxpr, for a rule: its parameters, its results, and the trace to add to."""

    name: str
    params: Mapping[str, Any]
    results: tuple[Any, ...]
    """The shape and the type of each result, as JAX found them."""
    place: str
    """Where in the user's source it comes from."""
    trace: Trace
    """What operations are added to."""
    inline: Callable[[Any, Sequence[View]], list[View]]
    """The results of a jaxpr inside this one."""
    pieces: dict[View, tuple[int, tuple[View, ...]]]
    """What arrays were concatenated from, and along which dimension."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its first result."""
        return tuple(map(int, self.results[0].shape))

    @property
    def dtype(self) -> Any:
        """The type of its first result."""
        return self.results[0].dtype

    def map(self, join: str | Expr, *arrays: View) -> View:
        """A function of elements, of the type that JAX gives the result."""
        return self.trace.map(join, *arrays, dtype=self.dtype)

    def refuse(self, reason: str) -> NoReturn:
        """Say that this equation is not imported, where it is, and why."""
        raise GraphError(f"{self.name} at {self.place} is not imported: {reason}")


def inner_jaxpr(eqn: Any) -> Any:
    """The jaxpr that an equation calls with its own operands, or None."""
    return eqn.params.get(_CALLS.get(eqn.primitive.name, ""))
