"""Aggregations ⊕: commutative monoids over one value or a tuple of values.

A monoid of width k keeps a state of k numbers. `combine` reads a left state (inputs 0…k−1) and a
right state (inputs k…2k−1) and yields the combined one; `identity` is its neutral state; `finish`
turns the final state (inputs 0…k−1) into the result, which is the state itself when it is None. A
joined value enters as a state of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any

import numpy as np

from eindecomp.errors import ExpressionError
from eindecomp.lang.compile import compile_scalar
from eindecomp.lang.dtypes import (
    BOOL,
    Array,
    DType,
    Kind,
    ScalarTypes,
    Type,
    Types,
    concrete,
    dtype,
    fits,
    kind,
    promote,
    widen,
)
from eindecomp.lang.names import check_name
from eindecomp.lang.numpy_backend import NUMPY, cast
from eindecomp.lang.scalar import (
    FUNCTIONS,
    Arg,
    Const,
    Expr,
    Number,
    call,
    from_values,
    to_text,
    used_args,
    used_scalars,
    values,
)
from eindecomp.lang.scalar_types import type_of, with_casts
from eindecomp.lang.text.resolve import parse_expr

MAX_WIDTH = 16


@dataclass(frozen=True, slots=True, repr=False)
class Monoid:
    """A commutative monoid, checked when it is made; `ed.monoid` makes one from strings.

    Args:
        name: What statements call it, such as `"hypot"`.
        combine: The combined state, of a left and a right one, such as `call("add", Arg(0),
            Arg(1))`.
        identity: The neutral state, such as `(Const(0),)`.
        finish: The result, of the final state, such as `call("sqrt", Arg(0))`; None if that is the
            state itself.
        rule: ∂result/∂value for each value of the join, over the joined values (inputs 0…k−1), the
            final state (k…2k−1) and the result (2k), such as `Arg(2)`; None where no gradient is
            given.
        over: The type that joined values are turned into first, such as `dtype("bool")`.

    Raises:
        ExpressionError: It is not well formed, or breaks a law at some sample.

    Examples:
        >>> x, y = Arg(0), Arg(1)
        >>> Monoid("minus", call("sub", x, y), (Const(0),))
        Traceback (most recent call last):
        eindecomp.errors.ExpressionError: 'minus' is not a commutative monoid: x ⊕ y ≠ y ⊕ x for ...
    """

    name: str
    combine: Expr
    identity: tuple[Const, ...]
    finish: Expr | None = None
    rule: Expr | None = None
    over: DType | None = None

    def __post_init__(self) -> None:
        check_name(self.base_name, "monoid")
        if self.base_name in FUNCTIONS and self.base_name not in BUILTIN_NAMES:
            raise ExpressionError(f"{self.name!r} cannot name a monoid: it is a function")
        k = self.width
        if not 1 <= k <= MAX_WIDTH:
            raise ExpressionError(
                f"monoid {self.name!r} has {k} values; 1 to {MAX_WIDTH} are allowed"
            )
        self._check_part("combine", self.combine, k, 2 * k)
        self._check_part("finish", self.finish, 1, k)
        self._check_part("grad", self.rule, k, 2 * k + 1)
        if self.name not in BUILTIN_NAMES and self.name == self.base_name:
            _check_laws(self)

    def _check_part(self, part: str, expr: Expr | None, width: int, arity: int) -> None:
        if expr is None:
            return
        if len(values(expr)) != width:
            raise ExpressionError(
                f"{part} of monoid {self.name!r} yields {len(values(expr))} values, not {width}"
            )
        if max(used_args(expr), default=0) >= arity:
            raise ExpressionError(f"{part} of monoid {self.name!r} reads more than {arity} values")
        if used_scalars(expr):
            raise ExpressionError(
                f"{part} of monoid {self.name!r} reads the unknown value {used_scalars(expr)[0]!r}"
            )

    @property
    def width(self) -> int:
        """How many numbers a state has."""
        return len(self.identity)

    @property
    def base_name(self) -> str:
        """The name without a selected field: 'attend' for 'attend.1'."""
        return self.name.partition(".")[0]

    @property
    def is_plain(self) -> bool:
        """Whether aggregating one value leaves it as it is."""
        return self.width == 1 and self.finish is None and self.over is None

    @property
    def definition(self) -> str:
        """The whole definition as a text for cache keys, the same for equal monoids only."""
        return repr(tuple(getattr(self, field.name) for field in fields(self)))

    def __repr__(self) -> str:
        neutral = ", ".join(str(c.value) for c in self.identity)
        return f"<Monoid {self.name}: {self.combine}, identity {neutral}>"

    def select(self, index: int) -> Monoid:
        """One value of a state as the result: 'attend.1' is the second value of 'attend'.

        Args:
            index: Which one, such as `1`.
        """
        if not 0 <= index < self.width:
            raise ExpressionError(f"monoid {self.name!r} has values 0 to {self.width - 1}")
        return replace(self, name=f"{self.base_name}.{index}", finish=Arg(index), rule=None)

    def identity_for(self, state: Sequence[DType]) -> tuple[Any, ...]:
        """The neutral state in the given types; for integers, ±∞ is their largest or smallest.

        Args:
            state: The type of each number of it, such as `[dtype("int32")]`.
        """
        return tuple(_fit(c.value, t) for c, t in zip(self.identity, state, strict=True))

    def state_types(self, joined: Sequence[Type], scalars: ScalarTypes) -> tuple[Type, ...]:
        """The types of the state when values are aggregated.

        Args:
            joined: The types of the joined values, such as `[dtype("float32")]`.
            scalars: Those of run-time scalars, such as `{"lr": dtype("float64")}`.
        """
        if self.over is not None:
            return (self.over,) * self.width
        state = tuple(joined)
        for _ in range(2 + int(Kind.COMPLEX)):
            combined = [type_of(value, (*state, *state), scalars) for value in values(self.combine)]
            grown = tuple(promote(a, b) for a, b in zip(state, combined, strict=True))
            if grown == state:
                return state
            state = grown
        raise ExpressionError(f"monoid {self.name!r} has no stable types for values of {joined}")

    def result_type(self, joined: Sequence[Type], scalars: ScalarTypes) -> Type:
        """The type of the result when values are aggregated.

        Args:
            joined: The types of the joined values, such as `[dtype("float32")]`.
            scalars: Those of run-time scalars, such as `{"lr": dtype("float64")}`.
        """
        state = self.state_types(joined, scalars)
        self.identity_for([widen(concrete(t)) for t in state])  # refuses what does not fit
        return state[0] if self.finish is None else type_of(self.finish, state, scalars)


def _fit(value: Number, to: DType) -> Any:
    if kind(to) is Kind.INT and isinstance(value, float) and math.isinf(value):
        limits = np.iinfo(to.name)
        return to.type(limits.max if value > 0 else limits.min)
    if kind(to) is Kind.BOOL and isinstance(value, float):
        return np.bool_(value > 0)
    if kind(to) is Kind.INT:
        number = value.real
        is_whole = not isinstance(number, float) or number.is_integer()
        if not is_whole or not fits(int(number), to):
            raise ExpressionError(f"the identity {value} does not fit {to}")
        return to.type(int(number))
    with np.errstate(over="ignore"):
        return np.asarray(value).astype(to)[()]


def _binary(op: str) -> Expr:
    return call(op, Arg(0), Arg(1))


BUILTIN_NAMES = frozenset({"sum", "prod", "max", "min", "any", "all"})
SUM = Monoid("sum", _binary("add"), (Const(0),))
PROD = Monoid("prod", _binary("mul"), (Const(1),))
MAX = Monoid("max", _binary("max"), (Const(-math.inf),))
MIN = Monoid("min", _binary("min"), (Const(math.inf),))
ANY = Monoid("any", _binary("or"), (Const(False),), over=BOOL)
ALL = Monoid("all", _binary("and"), (Const(True),), over=BOOL)
BUILTIN: Mapping[str, Monoid] = {m.name: m for m in (SUM, PROD, MAX, MIN, ANY, ALL)}


def find_monoid(name: str, known: Mapping[str, Monoid]) -> Monoid | None:
    """The monoid of a name, which may select a value, as in `attend.1`; None if it is not known."""
    base, dot, index = name.partition(".")
    if base not in known or (dot and not index.isdigit()):
        return None
    return known[base].select(int(index)) if dot else known[base]


def distributes(join: str, agg: Monoid) -> bool:
    """Whether the binary function `join` distributes over the aggregation.

    Then a chain of `join`s may be aggregated early, in any order: a semiring.

    >>> distributes("mul", SUM), distributes("add", MAX), distributes("mul", MAX)
    (True, True, False)
    """
    return (join, agg.name) in {
        ("mul", "sum"), ("add", "max"), ("add", "min"),
        ("min", "max"), ("max", "min"), ("and", "any"), ("or", "all"),
    }  # fmt: skip


# Whole numbers and repeated ones among the samples bring ties and integer tricks to light.
SAMPLES = np.array([-2.5, -1.0, -1.0, -0.3, 0.0, 0.0, 0.4, 1.0, 1.0, 1.7, 2.0, 3.0])
DOMAINS = (SAMPLES, SAMPLES[SAMPLES >= 0], SAMPLES[SAMPLES > 0])
_TRIALS = 200


def combining(monoid: Monoid, state: Types) -> Callable[[list[Array], list[Array]], list[Array]]:
    """A function that combines states, given as arrays of these types."""
    both = (*state, *state)
    parts = [with_casts(value, both, {})[0] for value in values(monoid.combine)]
    functions = [compile_scalar(part, len(both), NUMPY) for part in parts]

    def combine(left: list[Array], right: list[Array]) -> list[Array]:
        with np.errstate(all="ignore"):
            combined = zip(functions, state, strict=True)
            return [np.broadcast_to(cast(f(*left, *right), t), left[0].shape) for f, t in combined]

    return combine


def _check_laws(monoid: Monoid) -> None:
    """Refuse a monoid that breaks a law at some sample.

    One whose identity is a truth value is tried on truth values, others on real numbers. A
    definition that is lawful only for values ≥ 0 (say √(x² + y²)) or > 0 (a mean with its count) is
    accepted: what its user feeds it is theirs to know.
    """
    combine = combining(monoid, (dtype("float64"),) * monoid.width)
    is_truth = all(isinstance(c.value, bool) for c in monoid.identity)
    domains = [np.array([0.0, 1.0])] if is_truth else DOMAINS
    broken = _broken_law(monoid, combine, domains[0])
    if broken and all(_broken_law(monoid, combine, domain) for domain in domains[1:]):
        raise ExpressionError(f"{monoid.name!r} is not a commutative monoid: {broken}")


def _broken_law(monoid: Monoid, combine: Any, samples: np.ndarray[Any, Any]) -> str | None:
    rng = np.random.default_rng(0)
    x, y, z = ([rng.choice(samples, _TRIALS) for _ in range(monoid.width)] for _ in range(3))
    neutral = [np.full(_TRIALS, float(np.real(c.value))) for c in monoid.identity]
    laws = {
        "x ⊕ y ≠ y ⊕ x": (combine(x, y), combine(y, x)),
        "(x ⊕ y) ⊕ z ≠ x ⊕ (y ⊕ z)": (combine(combine(x, y), z), combine(x, combine(y, z))),
        "identity ⊕ x ≠ x": (combine(neutral, x), x),
    }
    for law, (left, right) in laws.items():
        pairs = zip(left, right, strict=True)
        same = (np.isclose(a, b, rtol=1e-9, atol=1e-9, equal_nan=True) for a, b in pairs)
        close = reduce(np.logical_and, same)
        if not close.all():
            at = int(np.argmin(close))
            states = zip("xyz", (x, y, z), strict=True)
            shown = ", ".join(
                f"{name} = {_show(state, at)}" for name, state in states if name in law
            )
            return f"{law} for {shown}"
    return None


def _show(state: list[Any], at: int) -> str:
    text = ", ".join(f"{float(value[at]):g}" for value in state)
    return text if len(state) == 1 else f"({text})"


# As text


def monoid(
    name: str,
    combine: str,
    identity: Number | Sequence[Number],
    finish: str | None = None,
    grad: str | None = None,
) -> Monoid:
    """Define an aggregation of your own, to be passed as `agg`.

    Over one value the states are `x` and `y`; over k values `x0, …` and `y0, …`.

    Args:
        name: What it is called, such as `"hypot"`.
        combine: The combined state, such as `"sqrt(x**2 + y**2)"`.
        identity: The neutral state, such as `0` or `(0, 0)`.
        finish: The result, of the final state under the left names, such as `"x0 / x1"`.
        grad: ∂result/∂value for each value, such as `"x / result"`: its left names are a joined
            value, its right ones the final state, and `result` is the result.

    Raises:
        ExpressionError: It is not well formed, or no commutative monoid.

    Examples:
        >>> hypot = monoid("hypot", "sqrt(x**2 + y**2)", identity=0, grad="x / result")
        >>> print(declaration(hypot))
        monoid hypot(x; y) = sqrt(x**2 + y**2) identity 0 grad x / result
    """
    given = identity if isinstance(identity, Sequence) else (identity,)
    for item in given:
        if not isinstance(item, Number | np.number | np.bool_):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ExpressionError(f"an identity must consist of numbers, got {item!r}")
    neutral = tuple(Const(np.asarray(item).item()) for item in given)
    names = _names(len(neutral))
    return Monoid(
        name,
        parse_expr(combine, names, what=f"combine of {name}"),
        neutral,
        None if finish is None else parse_expr(finish, names, what=f"finish of {name}"),
        None if grad is None else parse_expr(grad, [*names, "result"], what=f"grad of {name}"),
    )


def declaration(monoid: Monoid) -> str:
    """Write a monoid as a `monoid` declaration of the text syntax."""
    k = monoid.width
    names = _names(k)
    text = (
        f"monoid {monoid.base_name}({', '.join(names[:k])}; {', '.join(names[k:])}) = "
        f"{to_text(monoid.combine, names)} identity {to_text(from_values(monoid.identity))}"
    )
    # A selected field is part of the name that a statement uses, not of the declaration.
    if monoid.finish is not None and monoid.name == monoid.base_name:
        text += f" finish {to_text(monoid.finish, names)}"
    if monoid.rule is not None:
        text += f" grad {to_text(monoid.rule, [*names, 'result'])}"
    return text


def _names(width: int) -> list[str]:
    if width == 1:
        return ["x", "y"]
    return [f"{side}{k}" for side in "xy" for k in range(width)]
