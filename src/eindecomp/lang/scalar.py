"""Scalar functions: the ⊗ of an EinSum, as a small immutable tree.

An expression reads its inputs by position (`Arg`), literals (`Const`), run-time scalars (`Scalar`)
and applies functions of the fixed table `FUNCTIONS` (`Call`). `Tuple` stands only at the root,
where a tuple-valued aggregation reads several values at once.

Every node knows its depth and size when it is born and refuses to grow past the limits below, so
that no traversal of it can exhaust the stack or run for ever, whatever text it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache, reduce

from eindecomp.errors import ExpressionError
from eindecomp.lang import dtypes
from eindecomp.lang.names import check_name

MAX_DEPTH = 100
MAX_SIZE = 20_000

Number = bool | int | float | complex


class ResultKind(Enum):
    """How the type of a function's value follows from its operands' types."""

    ARITHMETIC = "promoted, truth values counting as integers"
    SAME = "promoted"
    FRACTION = "promoted to at least a float"
    TRUTH = "bool"
    REAL = "the real part's type"
    SELECT = "promoted from all operands but the first"
    CAST = "the type that names the function"


@dataclass(frozen=True, slots=True)
class Function:
    """One scalar function: its spelling, arity and how its type follows."""

    name: str
    arity: int
    result: ResultKind
    symbol: str | None = None
    """Its operator, where it is written with one."""
    precedence: int = 0
    complex: bool = True
    """Whether complex operands make sense."""

    def is_spelled_out(self, operand: Expr) -> bool:
        """Whether it is written by name; `-1` reads as a literal, so negating 1 is `neg(1)`."""
        return self.symbol is None or (self.name == "neg" and isinstance(operand, Const))


def _table() -> Mapping[str, Function]:
    r = ResultKind
    real = False
    rows = [
        Function("or", 2, r.TRUTH, "or", 1),
        Function("and", 2, r.TRUTH, "and", 2),
        Function("not", 1, r.TRUTH, "not", 3),
        Function("lt", 2, r.TRUTH, "<", 4, complex=real),
        Function("le", 2, r.TRUTH, "<=", 4, complex=real),
        Function("gt", 2, r.TRUTH, ">", 4, complex=real),
        Function("ge", 2, r.TRUTH, ">=", 4, complex=real),
        Function("eq", 2, r.TRUTH, "==", 4),
        Function("ne", 2, r.TRUTH, "!=", 4),
        Function("add", 2, r.ARITHMETIC, "+", 5),
        Function("sub", 2, r.ARITHMETIC, "-", 5),
        Function("mul", 2, r.ARITHMETIC, "*", 6),
        Function("div", 2, r.FRACTION, "/", 6),
        Function("floordiv", 2, r.ARITHMETIC, "//", 6, complex=real),
        Function("mod", 2, r.ARITHMETIC, "%", 6, complex=real),
        Function("neg", 1, r.ARITHMETIC, "-", 7),
        Function("pow", 2, r.ARITHMETIC, "**", 8),
        Function("abs", 1, r.REAL),
        Function("sign", 1, r.ARITHMETIC, complex=real),
        Function("min", 2, r.SAME, complex=real),
        Function("max", 2, r.SAME, complex=real),
        Function("where", 3, r.SELECT),
        Function("real", 1, r.REAL),
        Function("imag", 1, r.REAL),
        Function("conj", 1, r.SAME),
        Function("relu", 1, r.ARITHMETIC, complex=real),
        *(Function(name, 1, r.FRACTION) for name in ("exp", "log", "sqrt", "sin", "cos", "tanh")),
        *(
            Function(name, 1, r.FRACTION, complex=real)
            for name in ("rsqrt", "erf", "sigmoid", "silu", "gelu")
        ),
        *(Function(name, 1, r.CAST) for name in dtypes.type_names),
    ]
    return {row.name: row for row in rows}


FUNCTIONS: Mapping[str, Function] = _table()
ATOM_PRECEDENCE = 9


@dataclass(frozen=True, slots=True)
class Arg:
    """The value of the input at a position, from 0."""

    index: int

    def __post_init__(self) -> None:
        if self.index < 0:
            raise ExpressionError(f"an input's position must be 0 or more, got {self.index}")

    def __str__(self) -> str:
        return to_text(self)


@dataclass(frozen=True, slots=True, eq=False)
class Const:
    """A literal. `Const(1)`, `Const(1.0)` and `Const(True)` differ: their types do."""

    value: Number

    def __post_init__(self) -> None:
        if isinstance(self.value, int) and not -(2**63) <= self.value < 2**64:
            raise ExpressionError("an integer literal must fit 64 bits")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[type, str]:
        return type(self.value), repr(self.value)

    def __str__(self) -> str:
        return to_text(self)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A named value that is given when the computation runs."""

    name: str

    def __post_init__(self) -> None:
        check_name(self.name, "scalar")

    def __str__(self) -> str:
        return to_text(self)


@dataclass(frozen=True, slots=True)
class Call:
    """A function of `FUNCTIONS` applied to as many operands as it takes."""

    op: str
    args: tuple[Expr, ...]
    depth: int = field(init=False, compare=False, repr=False)
    size: int = field(init=False, compare=False, repr=False)
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        function = FUNCTIONS.get(self.op)
        if function is None:
            raise ExpressionError(f"unknown function {self.op!r}")
        if len(self.args) != function.arity:
            raise ExpressionError(
                f"{self.op} takes {function.arity} operands, got {len(self.args)}"
            )
        _measure(self, self.args)
        object.__setattr__(self, "_hash", hash((self.op, self.args)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[Call], tuple[str, tuple[Expr, ...]]]:
        return Call, (self.op, self.args)  # hashes of strings differ between processes

    def __str__(self) -> str:
        return to_text(self)


@dataclass(frozen=True, slots=True)
class Tuple:
    """Several values at once, for an aggregation over tuples; only ever a root."""

    items: tuple[Expr, ...]
    depth: int = field(init=False, compare=False, repr=False)
    size: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.items) < 2:
            raise ExpressionError("a tuple holds two or more values")
        _measure(self, self.items)

    def __str__(self) -> str:
        return to_text(self)


Expr = Arg | Const | Scalar | Call | Tuple


def _measure(node: Call | Tuple, children: tuple[Expr, ...]) -> None:
    depth = size = 1
    for child in children:
        if isinstance(child, Call):
            depth = max(depth, child.depth + 1)
            size += child.size
        elif isinstance(child, Tuple):
            raise ExpressionError(f"a tuple cannot be nested inside {type(node).__name__}")
        else:
            size += 1
    if depth > MAX_DEPTH:
        raise ExpressionError(f"an expression nests more than {MAX_DEPTH} deep")
    if size > MAX_SIZE:
        raise ExpressionError(f"an expression has more than {MAX_SIZE} terms")
    object.__setattr__(node, "depth", depth)
    object.__setattr__(node, "size", size)


def size_of(expr: Expr) -> int:
    """How many nodes an expression has, counting a shared one at each use."""
    return expr.size if isinstance(expr, Call | Tuple) else 1


def call(op: str, *args: Expr | Number) -> Call:
    """Apply a function, reading Python numbers as literals.

    >>> print(call("mul", Arg(0), call("add", Arg(1), 1)))
    x * (y + 1)
    """
    return Call(op, tuple(a if isinstance(a, Expr) else Const(a) for a in args))


def chain(op: str, items: Sequence[Expr]) -> Expr:
    """An associative function of any number of operands, from left to right or, of many, in pairs.

    >>> print(chain("add", [Arg(0), Arg(1), Arg(2)]))
    x + y + z
    """
    depth = 0
    for item in items:
        depth = 1 + max(depth, item.depth if isinstance(item, Call | Tuple) else 0)
    if depth <= MAX_DEPTH:
        return reduce(lambda a, b: Call(op, (a, b)), items)
    while len(items) > 1:
        pairs = zip(items[::2], items[1::2], strict=False)
        together = [Call(op, pair) for pair in pairs]
        items = [*together, *items[2 * len(together) :]]
    return items[0]


def values(expr: Expr) -> tuple[Expr, ...]:
    """The values an expression yields: a tuple's items, or itself alone."""
    return expr.items if isinstance(expr, Tuple) else (expr,)


def from_values(items: Sequence[Expr]) -> Expr:
    """Join values back into one expression: the inverse of `values`."""
    return items[0] if len(items) == 1 else Tuple(tuple(items))


def leaves(expr: Expr) -> Iterator[Arg | Const | Scalar]:
    """The leaves from left to right, as they are written."""
    match expr:
        case Call(args=children) | Tuple(items=children):
            for child in children:
                yield from leaves(child)
        case leaf:
            yield leaf


@lru_cache(maxsize=2**14)
def used_args(expr: Expr) -> tuple[int, ...]:
    """The positions of the inputs an expression reads, in order of first appearance.

    >>> used_args(call("sub", Arg(2), call("mul", Arg(0), Arg(2))))
    (2, 0)
    """
    return tuple(dict.fromkeys(leaf.index for leaf in leaves(expr) if isinstance(leaf, Arg)))


@lru_cache(maxsize=2**14)
def used_scalars(expr: Expr) -> tuple[str, ...]:
    """The names of the run-time scalars an expression reads, in order of first appearance."""
    return tuple(dict.fromkeys(leaf.name for leaf in leaves(expr) if isinstance(leaf, Scalar)))


def substitute(expr: Expr, by: Callable[[Expr], Expr | None]) -> Expr:
    """Replace every part of which `by` makes something, the largest first.

    >>> print(substitute(call("exp", Arg(0)), {Arg(0): call("neg", Arg(1))}.get))
    exp(-y)
    """
    if (new := by(expr)) is not None:
        return new
    match expr:
        case Call(op, args):
            return Call(op, tuple(substitute(arg, by) for arg in args))
        case Tuple(items):
            return Tuple(tuple(substitute(item, by) for item in items))
        case _:
            return expr


def replace_args(expr: Expr, by: Sequence[Expr] | Mapping[int, Expr]) -> Expr:
    """Put `by[k]` where input k is read."""
    return substitute(expr, lambda part: by[part.index] if isinstance(part, Arg) else None)


def _definitions() -> Mapping[str, Expr]:
    x = Arg(0)
    decay = call("exp", call("neg", call("abs", x)))  # at most 1, whatever x is
    share = call("where", call("ge", x, 0.0), 1.0, decay)
    return {
        "relu": call("max", x, 0),
        "rsqrt": call("div", 1.0, call("sqrt", x)),
        "sigmoid": call("div", share, call("add", 1.0, decay)),
        "silu": call("mul", x, call("sigmoid", x)),
    }


DEFINITIONS: Mapping[str, Expr] = _definitions()
"""Functions in terms of others, for backends that have no form of their own.

Operands have been converted to the function's type already, and literals take it.
"""


def arg_name(index: int) -> str:
    """Name an input as join strings do: x, y, z, then x3, x4 and so on."""
    return "xyz"[index] if index < 3 else f"x{index}"


def to_text(expr: Expr, names: Sequence[str] | None = None) -> str:
    """Write an expression, with `names` for the inputs; the text parses back to it.

    >>> to_text(call("pow", call("sub", Arg(0), Arg(1)), 2), ["X[i,j]", "Y[j,k]"])
    '(X[i,j] - Y[j,k])**2'
    """
    match expr:
        case Arg(index):
            return names[index] if names is not None else arg_name(index)
        case Const(value):
            return _number_text(value)
        case Scalar(name):
            return name
        case Tuple(items):
            return f"({', '.join(to_text(item, names) for item in items)})"
        case Call(op, args):
            return _call_text(FUNCTIONS[op], args, names)


def _number_text(value: Number) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, complex):
        return f"complex({_number_text(value.real)}, {_number_text(value.imag)})"
    return repr(value)


def _call_text(function: Function, args: tuple[Expr, ...], names: Sequence[str] | None) -> str:
    p = function.precedence
    if function.is_spelled_out(args[0]):
        return f"{function.name}({', '.join(to_text(arg, names) for arg in args)})"
    if function.arity == 1:
        gap = " " if function.name == "not" else ""
        return f"{function.symbol}{gap}{_operand(args[0], p, names)}"
    if function.name == "pow":
        return f"{_operand(args[0], p + 1, names)}**{_operand(args[1], p - 1, names)}"
    # Comparisons do not chain: both operands bind tighter.
    left = p + 1 if function.result is ResultKind.TRUTH and p == 4 else p
    return f"{_operand(args[0], left, names)} {function.symbol} {_operand(args[1], p + 1, names)}"


def _operand(expr: Expr, at_least: int, names: Sequence[str] | None) -> str:
    text = to_text(expr, names)
    return text if _precedence(expr) >= at_least else f"({text})"


def _precedence(expr: Expr) -> int:
    match expr:
        case Call(op, args):
            function = FUNCTIONS[op]
            return ATOM_PRECEDENCE if function.is_spelled_out(args[0]) else function.precedence
        case Const(value) if not isinstance(value, complex) and str(value).startswith("-"):
            return FUNCTIONS["neg"].precedence
        case _:
            return ATOM_PRECEDENCE
