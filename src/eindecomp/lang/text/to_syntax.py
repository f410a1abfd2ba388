"""Building syntax nodes while the parser reduces the rules of `ein.lark`.

One method for each rule, named after it, getting the rule's children: tokens, and what the methods
of the rules below returned.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from lark import Token, Transformer

from eindecomp.errors import ExpressionError
from eindecomp.lang.names import IDENTIFIER
from eindecomp.lang.scalar import MAX_DEPTH
from eindecomp.lang.text import syntax as s

if TYPE_CHECKING:
    from collections.abc import Callable

    from eindecomp.lang.scalar import Number

MAX_SIZE = 2**62
_COMPARE = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}


class Misplaced(Exception):  # noqa: N818 - never leaves the reader
    """What is wrong with the text at an offset."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


class Default:
    """`name = number` among parameters or arguments."""

    def __init__(self, name: str, value: Number, at: int) -> None:
        self.name, self.value, self.at = name, value, at


class ToSyntax(Transformer[Token, Any]):
    """Turns every reduced rule into a syntax node."""

    def start(self, found: list[Any]) -> tuple[s.Statement, ...]:
        """The statements; declarations of several names come as lists."""
        lists = [_many(item) for item in found]
        return tuple(statement for part in lists for statement in part)

    def join(self, found: list[Any]) -> tuple[s.Term, ...]:
        """The terms of a join string."""
        return _terms(found[0])

    # Declarations

    def input_decl(self, found: list[s.InputDecl]) -> list[s.InputDecl]:
        """`input A[…], B[…]`."""
        return list(found)

    def declared(self, found: list[Any]) -> s.InputDecl:
        """One input, with its dtype or None."""
        ref, dtype = found
        return s.InputDecl(ref, None if dtype is None else str(dtype), ref.at)

    def scalar_decl(self, found: list[s.ScalarDecl]) -> list[s.ScalarDecl]:
        """`scalar a, b`."""
        return list(found)

    def scalar(self, found: list[Any]) -> s.ScalarDecl:
        """One scalar, with its dtype or None."""
        name, dtype = found
        return s.ScalarDecl(str(name), None if dtype is None else str(dtype), _at(name))

    def output_decl(self, found: list[Token]) -> list[s.OutputDecl]:
        """`output A, B`."""
        return [s.OutputDecl(str(name), _at(name)) for name in found]

    def tie_decl(self, found: list[s.TieDecl]) -> list[s.TieDecl]:
        """`tie A <- B, C <- D`."""
        return list(found)

    def tie(self, found: list[Token]) -> s.TieDecl:
        """One input and the result that becomes it."""
        given, result = (s.Name(str(name), _at(name)) for name in found)
        return s.TieDecl(given, result, given.at)

    def names(self, found: list[Token]) -> tuple[str, ...]:
        """A list of names."""
        return tuple(str(name) for name in found)

    def macro_labels(self, found: list[Any]) -> tuple[str, ...]:
        """`[a, b]` after a macro's name."""
        return found[0] or ()

    def macro_decl(self, found: list[Any]) -> s.MacroDecl:
        """`macro name[labels](parameters) -> result { body }`."""
        name, labels, *rest = found
        split = max(k for k, node in enumerate(rest) if not isinstance(node, s.Assign))
        params, result, body = rest[:split], rest[split], rest[split + 1 :]
        return s.MacroDecl(
            name=str(name),
            labels=labels or (),
            params=tuple(p for p in params if not isinstance(p, Default)),
            options=tuple((p.name, p.value) for p in params if isinstance(p, Default)),
            result=result,
            body=tuple(body),
            at=_at(name),
        )

    def monoid_decl(self, found: list[Any]) -> s.MonoidDecl:
        """`monoid name(x; y) = combine identity e [finish f] [grad g]`."""
        name, left, right, combine, identity, finish, rule = found
        if len(left) != len(right):
            raise Misplaced(
                f"monoid {name!s} combines {len(left)} with {len(right)} values", _at(name)
            )
        return s.MonoidDecl(
            str(name), left, right, _terms(combine), _terms(identity), finish, rule, _at(name)
        )

    def finish(self, found: list[s.Term]) -> s.Term:
        """`finish f`."""
        return found[0]

    def rule(self, found: list[Any]) -> tuple[s.Term, ...]:
        """`grad g`."""
        return _terms(found[0])

    # Assignments

    def assign(self, found: list[Any]) -> s.Assign:
        """`target <- right-hand side [with refs]`."""
        target, rhs, *extra = found
        if isinstance(rhs, list) or not isinstance(rhs, s.Aggregate | s.FillTerm | s.MacroCall):
            rhs = s.Aggregate(None, _terms(rhs), _terms(rhs)[0].at)
        return s.Assign(target, rhs, extra[0] if extra else (), target.at)

    def with_refs(self, found: list[s.Ref]) -> tuple[s.Ref, ...]:
        """`with A[…], B[…]`."""
        return tuple(found)

    def prefixed(self, found: list[Any]) -> s.Aggregate:
        """`agg term`."""
        agg, terms = found
        return s.Aggregate(str(agg), _terms(terms), _at(agg))

    def fill(self, found: list[s.Term]) -> s.FillTerm:
        """`fill term`."""
        return s.FillTerm(found[0], found[0].at)

    def macro_call(self, found: list[Any]) -> s.MacroCall:
        """`macro[labels](arguments)`."""
        name, labels, *args = found
        return s.MacroCall(
            name=str(name),
            labels=labels,
            args=tuple(a for a in args if not isinstance(a, Default)),
            options=tuple((a.name, a.value) for a in args if isinstance(a, Default)),
            at=_at(name),
        )

    def labelled(self, found: list[Any]) -> s.MacroCall:
        """`macro[labels] argument` or `agg[labels] term`."""
        name, labels, term = found
        is_open = not isinstance(term, s.Ref | s.Literal)
        return s.MacroCall(str(name), labels, (term,), (), _at(name), is_open)

    def brackets(self, found: list[Any]) -> tuple[s.Item, ...]:
        """`[i, j: 3]` after a macro or an aggregation."""
        return _items(found)

    def plain_brackets(self, found: list[Token]) -> tuple[s.Item, ...]:
        """`[i, j]`, one token."""
        return _plain_items(found[0])

    def default(self, found: list[Any]) -> Default:
        """`name = number`."""
        name, number = found
        return Default(str(name), number.value, _at(name))

    def infinity(self, _: list[Any]) -> s.Literal:
        """`inf` as an option's value."""
        return s.Literal(math.inf, 0)

    def minus_infinity(self, _: list[Any]) -> s.Literal:
        """`-inf` as an option's value."""
        return s.Literal(-math.inf, 0)

    # Indices

    def ref(self, found: list[Any]) -> s.Ref:
        """`X[…]`."""
        name, *items = found
        return s.Ref(str(name), _items(items), _at(name))

    def plain_ref(self, found: list[Token]) -> s.Ref:
        """`X[i, j]`, its brackets one token."""
        name, labels = found
        return s.Ref(str(name), _plain_items(labels), _at(name))

    def label(self, found: list[Token]) -> s.Label:
        """`i`."""
        return s.Label(str(found[0]), _at(found[0]))

    def sized(self, found: list[Token]) -> s.Label:
        """`i: 10`."""
        name, size = found
        return s.Label(str(name), _at(name), _integer(size))

    def window(self, found: list[Token]) -> s.Window:
        """`i in 2:10`."""
        name, start, stop = found
        return s.Window(str(name), _integer(start), _integer(stop), _at(name))

    def fixed(self, found: list[Token]) -> s.Fixed:
        """`0`."""
        return s.Fixed(_integer(found[0]), _at(found[0]))

    def fixed_from_end(self, found: list[Token]) -> s.Fixed:
        """`-1`."""
        return s.Fixed(-_integer(found[0]), _at(found[0]))

    def arithmetic(self, found: list[Token]) -> s.Arithmetic:
        """`w + r`."""
        read = [token for token in found if token.type == "NAME"]
        labels = dict.fromkeys(str(token).rpartition("(")[2].rstrip(")") for token in read)
        return s.Arithmetic(" ".join(found), tuple(labels), _at(found[0]))

    def index_call(self, found: list[Token]) -> Token:
        """`abs(n)` in an index that is computed; `size(n)` is a number and not indexed by n."""
        function, label = found
        kind = "NUMBER" if function == "size" else "NAME"
        return Token(kind, f"{function}({label})", function.start_pos)

    def star(self, found: list[Token]) -> s.Star:
        """`*b`."""
        return s.Star(str(found[0]), _at(found[0]))

    def scattered(self, found: list[Any]) -> s.Scattered:
        """`v: 100 = ids[b]`."""
        name, size, ref = found
        return s.Scattered(s.Label(str(name), _at(name), _integer(size)), ref, _at(name))

    def group(self, found: list[s.Label]) -> s.Group:
        """`(h, d)`."""
        return s.Group(tuple(found), found[0].at)

    # Expressions

    def rhs_tuple(self, found: list[s.Term]) -> list[s.Term]:
        """`(a, b)`: kept a list, which no other rule returns, until its parent reads it."""
        return list(found)

    def number(self, found: list[Token]) -> s.Literal:
        """`2.5`."""
        return s.Literal(_number(found[0]), _at(found[0]))

    def negative(self, found: list[Token]) -> s.Literal:
        """`-2.5` as an option's value."""
        return s.Literal(-_number(found[0]), _at(found[0]))

    def name(self, found: list[Token]) -> s.Name:
        """`lr`."""
        return s.Name(str(found[0]), _at(found[0]))

    def call(self, found: list[Any]) -> s.Term:
        """`f(a, b)`."""
        name, *args = found
        return _apply(str(name), tuple(args), _at(name))

    def expr(self, found: list[s.Term]) -> s.Term:
        """`a or b or c`."""
        return _chain(found[0], [("or", term) for term in found[1:]])

    def conjunction(self, found: list[s.Term]) -> s.Term:
        """`a and b and c`."""
        return _chain(found[0], [("and", term) for term in found[1:]])

    def total(self, found: list[Any]) -> s.Term:
        """`a + b - c`."""
        return _chain(found[0], _pairs(found))

    def term(self, found: list[Any]) -> s.Term:
        """`a * b / c`."""
        return _chain(found[0], _pairs(found))

    def compare(self, found: list[Any]) -> s.Term:
        """`a <= b`."""
        left, sign, right = found
        return _apply(_COMPARE[str(sign)], (left, right), left.at)

    def plus(self, found: list[s.Term]) -> s.Term:
        """`+a`."""
        return found[0]


def _items(found: list[Any]) -> tuple[s.Item, ...]:
    """What stands in brackets; a tensor there is looked up."""
    return tuple(s.Lookup(i, i.at) if isinstance(i, s.Ref) else i for i in found if i is not None)


def _plain_items(labels: Token) -> tuple[s.Item, ...]:
    start = _at(labels)
    return tuple(s.Label(n[0], start + n.start()) for n in IDENTIFIER.finditer(labels))


def _operator(op: str) -> Callable[[ToSyntax, list[s.Term]], s.Term]:
    def method(_self: ToSyntax, found: list[s.Term]) -> s.Term:
        return _apply(op, tuple(found), found[0].at)

    return method


for _rule, _op in {"not_": "not", "pow": "pow", "minus": "-"}.items():
    setattr(ToSyntax, _rule, _operator(_op))


_BINARY = {"+": "add", "-": "sub", "*": "mul", "/": "div", "//": "floordiv", "%": "mod"}
# In a chain of these, what two of them come to when they stand side by side.
_REGROUPED = {
    ("add", "add"): "add", ("add", "sub"): "sub", ("sub", "add"): "sub", ("sub", "sub"): "add",
    ("mul", "mul"): "mul", ("or", "or"): "or", ("and", "and"): "and",
}  # fmt: skip


def _pairs(found: list[Any]) -> list[tuple[str, s.Term]]:
    return [(_BINARY[str(sign)], term) for sign, term in zip(found[1::2], found[2::2], strict=True)]


def _chain(first: s.Term, rest: list[tuple[str, s.Term]]) -> s.Term:
    """A chain of operators from left to right; one too long for that is balanced, if it can be."""
    depth = _depth(first)
    for _, term in rest:
        depth = 1 + max(depth, _depth(term))
    if depth > MAX_DEPTH and all((op, op) in _REGROUPED for op, _ in rest):
        return _balanced([("add" if rest[0][0] == "sub" else rest[0][0], first), *rest])
    for op, term in rest:
        first = _apply(op, (first, term), first.at)
    return first


def _balanced(chain: list[tuple[str, s.Term]]) -> s.Term:
    """Operands with the operators before them, put together in pairs."""
    while len(chain) > 1:
        pairs = zip(chain[::2], chain[1::2], strict=False)
        together = [(a, _apply(_REGROUPED[a, b], (x, y), x.at)) for (a, x), (b, y) in pairs]
        chain = together + chain[2 * len(together) :]
    return chain[0][1]


def _depth(term: s.Term) -> int:
    return term.depth if isinstance(term, s.Apply) else 0


def _apply(op: str, args: tuple[s.Term, ...], at: int) -> s.Term:
    try:
        return s.Apply(op, args, at)
    except ExpressionError as error:
        raise Misplaced(str(error), at) from None


def _terms(found: Any) -> tuple[s.Term, ...]:
    return tuple(_many(found))


def _many(found: Any) -> list[Any]:
    return cast("list[Any]", found) if isinstance(found, list) else [found]


def _at(token: Token) -> int:
    return token.start_pos or 0


def _integer(token: Token) -> int:
    value = _number(token)
    if isinstance(value, float):
        raise Misplaced(f"{str(token)[:40]!r} is not a whole number", _at(token))
    if value > MAX_SIZE:
        raise Misplaced(f"{str(token)[:40]} is too large for a size", _at(token))
    return value


def _number(token: Token) -> int | float:
    text = str(token)
    is_whole = text.replace("_", "").isdigit()
    try:
        return int(text) if is_whole else float(text)
    except ValueError:
        raise Misplaced(f"{text[:40]!r} is not a number", _at(token)) from None
