"""Functions that partial results pass through: homomorphisms of an aggregation ⊕.

Devices that share an aggregation each hold a part of its value, x = x₁ ⊕ … ⊕ xₙ. A function may be
applied to the parts before they are combined if f(x ⊕ x′, y ⊕ y′, …) = f(x, y, …) ⊕ f(x′, y′, …),
jointly in all operands that are in parts, the others being whole. For a sum those are the linear
functions; for a maximum the nondecreasing ones, while nonincreasing ones turn it into a minimum.

That holds for finite numbers: 0 times ∞ is not 0. Whole numbers wrap around: of them, only what is
right modulo 2ⁿ passes through sums and products, and only a larger or smaller of two through maxima
and minima. Parts are rounded when they are combined, so no function may round them before.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations

from eindecomp.lang.dtypes import DType, Kind, Types, dtype, kind, type_names, widen
from eindecomp.lang.monoid import ALL, ANY, BUILTIN, MAX, MIN, PROD, SUM, Monoid
from eindecomp.lang.scalar import Arg, Call, Const, Expr, used_args

_WHOLE = "whole"
"""The value of an expression that reads nothing in parts."""
_Value = Monoid | str | None

_SWAPPED = {MAX: MIN, MIN: MAX, ANY: ALL, ALL: ANY}
_JOINS = {MAX: "max", MIN: "min", ANY: "or", ALL: "and"}
"""The functions of two operands that idempotent aggregations are repeated applications of."""
_LOGICAL = (ANY, ALL)
_NONDECREASING = frozenset({"exp", "tanh", "erf", "sigmoid", "relu", "sign"})
"""Those that are defined for all numbers, and for the identities −∞ and ∞."""
_LINEAR = frozenset({"neg", "real", "imag", "conj"})
_WHOLE_NUMBERS = {
    SUM: {"add", "sub", "neg", "mul", "where"},
    PROD: {"mul", "pow", "where"},
    MAX: {"max", "min", "where"},
    MIN: {"max", "min", "where"},
}
"""What passes whole numbers through, which wrap around."""
_MOST_OPERANDS = 8
"""The most operands of which all subsets are considered."""


IDEMPOTENT = frozenset(agg.name for agg in _SWAPPED)
"""The names of aggregations that leave a value combined with itself as it is."""


def repeats(agg: Monoid) -> bool:
    """Whether combining a value with itself leaves it as it is."""
    return agg in _SWAPPED


@lru_cache(maxsize=1 << 12)
def carried(join: Expr, parts: frozenset[int], agg: Monoid, types: Types = ()) -> Monoid | None:
    """The ⊕ of the parts of a join's value if these operands are in parts of `agg`.

    None if the join is no homomorphism jointly in them. Without `types`, operands are float32.

    >>> from eindecomp.lang.scalar import call
    >>> x, y = Arg(0), Arg(1)
    >>> carried(call("add", x, y), frozenset({0, 1}), SUM)
    <Monoid sum: x + y, identity 0>
    >>> print(carried(call("add", x, y), frozenset({0}), SUM))
    None
    >>> carried(call("sub", x, y), frozenset({1}), MAX)
    <Monoid min: min(x, y), identity inf>
    """
    value = _Parts(parts, agg, types).value(join)
    return value if isinstance(value, Monoid) else None


@lru_cache(maxsize=1 << 12)
def parts_of_join(join: Expr, agg: Monoid, types: Types = ()) -> tuple[frozenset[int], ...]:
    """The largest sets of operands that a join can read in parts of `agg` together.

    >>> from eindecomp.lang.scalar import call
    >>> [sorted(own) for own in parts_of_join(call("mul", Arg(0), Arg(1)), SUM)]
    [[0], [1]]
    """
    used = sorted(used_args(join))
    sizes = range(len(used), 0, -1) if len(used) <= _MOST_OPERANDS else (len(used), 1)
    largest: list[frozenset[int]] = []
    for size in sizes:
        for own in map(frozenset, combinations(used, size)):
            if any(own < other for other in largest):
                continue
            if carried(join, own, agg, types) is not None:
                largest.append(own)
    return tuple(largest)


@dataclass(frozen=True)
class _Parts:
    """The operands that are in parts, of what, and the types of all operands."""

    operands: frozenset[int]
    agg: Monoid
    types: Types

    @cached_property
    def are_whole_numbers(self) -> bool:
        """Whether what is in parts are whole numbers."""
        return bool(self.types) and any(kind(self.types[k]) is Kind.INT for k in self.operands)

    @cached_property
    def precision(self) -> int:
        """The bytes of the widest number that is in parts."""
        return max((_precision(self.types[k]) for k in self.operands if self.types), default=4)

    def value(self, expr: Expr) -> _Value:
        """The ⊕ of the parts of an expression's value.

        "whole" without parts, None if it has no ⊕.
        """
        match expr:
            case Arg(index) if index in self.operands:
                return self.agg
            case Arg(index):
                return None if self.are_whole_numbers and not self._wraps(index) else _WHOLE
            case Const(number):
                return None if self.are_whole_numbers and not isinstance(number, int) else _WHOLE
            case Call(op, args):
                values = [self.value(arg) for arg in args]
                if all(value == _WHOLE for value in values):
                    return _WHOLE
                if self._applies_own(expr):
                    return self.agg
                return None if None in values else self._of_call(expr, op, values)
            case _:
                return None if self.are_whole_numbers else _WHOLE

    def _wraps(self, operand: int) -> bool:
        return kind(self.types[operand]) in (Kind.INT, Kind.BOOL)

    def _of_call(self, expr: Call, op: str, values: list[_Value]) -> _Value:
        """The same for a call some of whose operands are in parts."""
        kinds = {value for value in values if isinstance(value, Monoid)}
        if len(kinds) > 1:
            return None
        [agg] = kinds
        if self.are_whole_numbers and op not in _WHOLE_NUMBERS.get(agg, ()):
            return None
        if op == "where":
            return _of_where(expr.args, values, agg)
        if op in type_names:
            return self._of_cast(dtype(op), agg)
        if agg == SUM:
            return agg if _is_linear(op, values) else None
        if agg == PROD:
            return agg if _is_multiplicative(op, expr.args, values) else None
        return _of_monotone(op, expr.args, values, agg) if agg in _SWAPPED else None

    def _of_cast(self, to: DType, agg: Monoid) -> _Value:
        """A cast to a type as wide as what is in parts; parts of a smaller one are float32."""
        is_float = kind(to) in (Kind.FLOAT, Kind.COMPLEX)
        is_wide = _precision(to) >= self.precision
        return agg if is_float and is_wide and agg in (SUM, PROD, MAX, MIN) else None

    def _applies_own(self, expr: Expr) -> bool:
        """Whether it applies a monoid of one's own to two values in parts of it."""
        sides = None if self.agg.name in BUILTIN else _operands_of(expr, self.agg.combine)
        if sides is None or {*sides} != {0, 1}:
            return False
        return all(self.value(side) == self.agg for side in sides.values())


def _precision(of: DType) -> int:
    wide = widen(of)
    return wide.itemsize // (2 if kind(wide) is Kind.COMPLEX else 1)


def _operands_of(expr: Expr, pattern: Expr) -> dict[int, Expr] | None:
    """What stands in an expression where a pattern has its operands; None if it is another one."""
    if isinstance(pattern, Arg):
        return {pattern.index: expr}
    if not (isinstance(pattern, Call) and isinstance(expr, Call) and pattern.op == expr.op):
        return {} if pattern == expr else None
    found: dict[int, Expr] = {}
    for own, other in zip(expr.args, pattern.args, strict=True):
        each = _operands_of(own, other)
        if each is None or any(found.setdefault(k, side) != side for k, side in each.items()):
            return None
    return found


def _of_where(args: tuple[Expr, ...], values: list[_Value], agg: Monoid) -> _Value:
    """A choice between parts; what is whole must be the identity, or be left alone by ⊕."""
    if values[0] != _WHOLE:
        return None
    whole = [arg for arg, value in zip(args[1:], values[1:], strict=True) if value == _WHOLE]
    neutral = agg.identity[0].value
    kept = (repeats(agg) or (isinstance(arg, Const) and arg.value == neutral) for arg in whole)
    return agg if all(kept) else None


def _is_linear(op: str, values: list[_Value]) -> bool:
    is_whole = [value == _WHOLE for value in values]
    if op in ("add", "sub"):
        return not any(is_whole)
    if op == "mul":
        return is_whole.count(True) == 1
    return op in _LINEAR or (op == "div" and is_whole == [False, True])


def _is_multiplicative(op: str, args: tuple[Expr, ...], values: list[_Value]) -> bool:
    if op in ("mul", "div"):
        return _WHOLE not in values
    if op == "pow":
        exponent = args[1].value if isinstance(args[1], Const) else None
        return values[0] != _WHOLE and type(exponent) is int and exponent > 0
    return op in ("abs", "conj")


def _of_monotone(op: str, args: tuple[Expr, ...], values: list[_Value], agg: Monoid) -> _Value:
    """A function of a maximum or a minimum that grows, or falls, with what is in parts."""
    if op in (_JOINS[agg], _JOINS[_SWAPPED[agg]]):
        return agg if _WHOLE in values or op == _JOINS[agg] else None
    if op == ("not" if agg in _LOGICAL else "neg"):
        return _SWAPPED[agg]
    if agg in _LOGICAL:
        return None
    if op in _NONDECREASING:
        return agg
    if values.count(_WHOLE) != 1:
        return None
    at = values.index(_WHOLE)
    if op == "add":
        return agg
    if op == "sub":
        return _SWAPPED[agg] if at == 0 else agg
    known = args[at]
    factor = known.value if isinstance(known, Const) else 0
    if op not in ("mul", "div") or isinstance(factor, complex) or not factor:
        return None
    if op == "div" and at == 0:
        return None
    return agg if factor > 0 else _SWAPPED[agg]
