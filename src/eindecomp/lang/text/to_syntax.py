"""Building syntax nodes while the parser reduces the rules of `ein.lark`.

One method for each rule, named after it, taking the rule's children: tokens, and what the methods
of the rules below returned.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

from lark import Token, Transformer, v_args  # pyright: ignore[reportUnknownVariableType]

from eindecomp.errors import ExpressionError
from eindecomp.lang.names import IDENTIFIER
from eindecomp.lang.scalar import MAX_DEPTH, Number
from eindecomp.lang.text import syntax as s

MAX_SIZE = 2**62
_COMPARE = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}


class Misplaced(Exception):  # noqa: N818 - never leaves the reader
    """What is wrong with the text at an offset."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


class Default(NamedTuple):
    """`name = number` among parameters or arguments."""

    name: str
    value: Number
    at: int


class ToSyntax(Transformer[Token, Any]):
    """Turns every reduced rule into a syntax node."""

    def start(self, *statements: Any) -> tuple[s.Statement, ...]:
        """The statements; declarations of several names come as lists."""
        return tuple(statement for each in statements for statement in _many(each))

    def join(self, terms: Any) -> tuple[s.Term, ...]:
        """The terms of a join string."""
        return tuple(_many(terms))

    # Declarations

    def input_decl(self, *declared: Any) -> list[Any]:
        """`input A[…], B[…]`, and the same of scalars and ties."""
        return list(declared)

    scalar_decl = tie_decl = input_decl

    def declared(self, ref: s.Ref, dtype: Token | None) -> s.InputDecl:
        """One input, with its dtype or None."""
        return s.InputDecl(ref, None if dtype is None else str(dtype), ref.at)

    def scalar(self, name: Token, dtype: Token | None) -> s.ScalarDecl:
        """One scalar, with its dtype or None."""
        return s.ScalarDecl(str(name), None if dtype is None else str(dtype), _at(name))

    def output_decl(self, *names: Token) -> list[s.OutputDecl]:
        """`output A, B`."""
        return [s.OutputDecl(str(name), _at(name)) for name in names]

    def tie(self, given: Token, result: Token) -> s.TieDecl:
        """One input and the result that becomes it."""
        return s.TieDecl(self.name(given), self.name(result), _at(given))

    def names(self, *names: Token) -> tuple[str, ...]:
        """A list of names."""
        return tuple(str(name) for name in names)

    def macro_labels(self, labels: tuple[str, ...] | None) -> tuple[str, ...]:
        """`[a, b]` after a macro's name."""
        return labels or ()

    def macro_decl(self, name: Token, labels: tuple[str, ...] | None, *rest: Any) -> s.MacroDecl:
        """`macro name[labels](parameters) -> result { body }`."""
        split = max(k for k, node in enumerate(rest) if not isinstance(node, s.Assign))
        params, options = _options(rest[:split])
        body = rest[split + 1 :]
        return s.MacroDecl(str(name), labels or (), params, options, rest[split], body, _at(name))

    def monoid_decl(
        self, name: Token, left: tuple[str, ...], right: tuple[str, ...], *values: Any
    ) -> s.MonoidDecl:
        """`monoid name(x; y) = combine identity e [finish f] [grad g]`."""
        if len(left) != len(right):
            message = f"monoid {name!s} combines {len(left)} with {len(right)} values"
            raise Misplaced(message, _at(name))
        combine, identity, finish, rule = values
        both = tuple(_many(combine)), tuple(_many(identity))
        return s.MonoidDecl(str(name), left, right, *both, finish, rule, _at(name))

    def finish(self, term: s.Term) -> s.Term:
        """`finish f`, and `+a`."""
        return term

    plus = finish
    rule = join

    # Assignments

    def assign(self, target: s.Ref, rhs: Any, extra: tuple[s.Ref, ...] = ()) -> s.Assign:
        """`target <- right-hand side [with refs]`."""
        if not isinstance(rhs, s.Aggregate | s.FillTerm | s.MacroCall):
            terms = tuple(_many(rhs))
            rhs = s.Aggregate(None, terms, terms[0].at)
        return s.Assign(target, rhs, extra, target.at)

    def with_refs(self, *refs: s.Ref) -> tuple[s.Ref, ...]:
        """`with A[…], B[…]`."""
        return refs

    def prefixed(self, agg: Token, terms: Any) -> s.Aggregate:
        """`agg term`."""
        return s.Aggregate(str(agg), tuple(_many(terms)), _at(agg))

    def fill(self, term: s.Term) -> s.FillTerm:
        """`fill term`."""
        return s.FillTerm(term, term.at)

    def macro_call(self, name: Token, labels: tuple[s.Item, ...], *args: Any) -> s.MacroCall:
        """`macro[labels](arguments)`."""
        return s.MacroCall(str(name), labels, *_options(args), _at(name))

    def labelled(self, name: Token, labels: tuple[s.Item, ...], term: s.Term) -> s.MacroCall:
        """`macro[labels] argument` or `agg[labels] term`."""
        is_open = not isinstance(term, s.Ref | s.Literal)
        return s.MacroCall(str(name), labels, (term,), (), _at(name), is_open)

    def brackets(self, *items: Any) -> tuple[s.Item, ...]:
        """`[i, j: 3]` after a macro or an aggregation; a tensor there is looked up."""
        given = (item for item in items if item is not None)
        return tuple(s.Lookup(item, item.at) if isinstance(item, s.Ref) else item for item in given)

    def plain_brackets(self, labels: Token) -> tuple[s.Item, ...]:
        """`[i, j]`, one token."""
        words = IDENTIFIER.finditer(labels)
        return tuple(s.Label(word[0], _at(labels) + word.start()) for word in words)

    def default(self, name: Token, number: s.Literal) -> Default:
        """`name = number`."""
        return Default(str(name), number.value, _at(name))

    def infinity(self) -> s.Literal:
        """`inf` as an option's value."""
        return s.Literal(math.inf, 0)

    def minus_infinity(self) -> s.Literal:
        """`-inf` as an option's value."""
        return s.Literal(-math.inf, 0)

    # Indices

    def ref(self, name: Token, *items: Any) -> s.Ref:
        """`X[…]`."""
        return s.Ref(str(name), self.brackets(*items), _at(name))

    def plain_ref(self, name: Token, labels: Token) -> s.Ref:
        """`X[i, j]`, its brackets one token."""
        return s.Ref(str(name), self.plain_brackets(labels), _at(name))

    def label(self, name: Token) -> s.Label:
        """`i`."""
        return s.Label(str(name), _at(name))

    def sized(self, name: Token, size: Token) -> s.Label:
        """`i: 10`."""
        return s.Label(str(name), _at(name), _integer(size))

    def window(self, name: Token, start: Token, stop: Token) -> s.Window:
        """`i in 2:10`."""
        return s.Window(str(name), _integer(start), _integer(stop), _at(name))

    def fixed(self, index: Token) -> s.Fixed:
        """`0`."""
        return s.Fixed(_integer(index), _at(index))

    def fixed_from_end(self, index: Token) -> s.Fixed:
        """`-1`."""
        return s.Fixed(-_integer(index), _at(index))

    def arithmetic(self, *tokens: Token) -> s.Arithmetic | s.Affine:
        """`w + r`."""
        return _affine(tokens, 1, None)

    def divided(self, *tokens: Token) -> s.Arithmetic | s.Affine:
        """`(x - r) / 2`."""
        return _affine(tokens[:-2], _integer(tokens[-1]), None)

    def arithmetic_else(self, *tokens: Any) -> s.Arithmetic | s.Affine:
        """`w + r else 0`."""
        return _affine(tokens[:-1], 1, tokens[-1])

    def divided_else(self, *tokens: Any) -> s.Arithmetic | s.Affine:
        """`(x - r) / 2 else 0`."""
        return _affine(tokens[:-3], _integer(tokens[-2]), tokens[-1])

    def placed(self, name: Token, size: Token, *tokens: Token) -> s.Placed:
        """`x: 100 = 2*w + r`."""
        return _placed(self.sized(name, size), tokens)

    def placed_anywhere(self, name: Token, *tokens: Token) -> s.Placed:
        """`x = 2*w + r`."""
        return _placed(self.label(name), tokens)

    def index_call(self, function: Token, label: Token) -> Token:
        """`abs(n)` in an index that is computed; `size(n)` is a number and not indexed by n."""
        kind = "NUMBER" if function == "size" else "NAME"
        return Token(kind, f"{function}({label})", function.start_pos)

    def star(self, name: Token) -> s.Star:
        """`*b`."""
        return s.Star(str(name), _at(name))

    def scattered(self, name: Token, size: Token, ref: s.Ref) -> s.Scattered:
        """`v: 100 = ids[b]`."""
        return s.Scattered(self.sized(name, size), ref, _at(name))

    def group(self, *labels: s.Label) -> s.Group:
        """`(h, d)`."""
        return s.Group(labels, labels[0].at)

    # Expressions

    def rhs_tuple(self, *terms: s.Term) -> list[s.Term]:
        """`(a, b)`: a list, which no other rule returns, until its parent reads it."""
        return list(terms)

    def number(self, token: Token) -> s.Literal:
        """`2.5`."""
        return s.Literal(_number(token), _at(token))

    def negative(self, token: Token) -> s.Literal:
        """`-2.5` as an option's value."""
        return s.Literal(-_number(token), _at(token))

    def name(self, token: Token) -> s.Name:
        """`lr`."""
        return s.Name(str(token), _at(token))

    def call(self, name: Token, *args: s.Term) -> s.Term:
        """`f(a, b)`."""
        return _apply(str(name), args, _at(name))

    def expr(self, first: s.Term, *rest: s.Term) -> s.Term:
        """`a or b or c`."""
        return _chain(first, [("or", term) for term in rest])

    def conjunction(self, first: s.Term, *rest: s.Term) -> s.Term:
        """`a and b and c`."""
        return _chain(first, [("and", term) for term in rest])

    def total(self, first: s.Term, *rest: Any) -> s.Term:
        """`a + b - c`, and `a * b / c`."""
        pairs = zip(rest[::2], rest[1::2], strict=True)
        return _chain(first, [(_BINARY[str(sign)], term) for sign, term in pairs])

    term = total

    def compare(self, left: s.Term, sign: Token, right: s.Term) -> s.Term:
        """`a <= b`."""
        return _apply(_COMPARE[str(sign)], (left, right), left.at)

    def not_(self, operand: s.Term) -> s.Term:
        """`not a`."""
        return _apply("not", (operand,), operand.at)

    def minus(self, operand: s.Term) -> s.Term:
        """`-a`."""
        return _apply("-", (operand,), operand.at)

    def pow(self, base: s.Term, exponent: s.Term) -> s.Term:
        """`a**b`."""
        return _apply("pow", (base, exponent), base.at)


v_args(inline=True)(ToSyntax)  # its methods take the children one by one


def _options(args: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[tuple[str, Number], ...]]:
    """Parameters or arguments, and the options among them."""
    named = tuple((arg.name, arg.value) for arg in args if isinstance(arg, Default))
    return tuple(arg for arg in args if not isinstance(arg, Default)), named


_BINARY = {"+": "add", "-": "sub", "*": "mul", "/": "div", "//": "floordiv", "%": "mod"}
# In a chain of these, what two of them come to when they stand side by side.
_REGROUPED = {
    ("add", "add"): "add", ("add", "sub"): "sub", ("sub", "add"): "sub", ("sub", "sub"): "add",
    ("mul", "mul"): "mul", ("or", "or"): "or", ("and", "and"): "and",
}  # fmt: skip


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


def _affine(
    tokens: tuple[Token, ...], divisor: int, outside: Token | s.Literal | None
) -> s.Arithmetic | s.Affine:
    """A sum of products of numbers and names; anything else is refused later on."""
    kinds = [token.type for token in tokens]
    is_divided = kinds[-2:] == ["SLASH", "NUMBER"] and divisor == 1 and tokens[-1].isdigit()
    if is_divided and not {"PLUS", "MINUS"} & {*kinds[1:]}:  # one product
        tokens, divisor = tokens[:-2], _integer(tokens[-1])
    read = [token for token in tokens if token.type == "NAME"]
    is_sum = all(t.type in ("NAME", "NUMBER", "PLUS", "MINUS", "STAR") for t in tokens)
    if not is_sum or any("(" in token for token in read) or not divisor:
        labels = dict.fromkeys(str(token).rpartition("(")[2].rstrip(")") for token in read)
        return s.Arithmetic(" ".join(tokens), tuple(labels), _at(tokens[0]))
    products: list[tuple[int, tuple[str, ...]]] = []
    sign, names = 1, tuple[str, ...]()
    for token in tokens:
        match token.type:
            case "PLUS" | "MINUS":
                products += [(sign, names)] if token is not tokens[0] else []
                sign, names = (-1 if token.type == "MINUS" else 1), ()
            case "NAME":
                names = (*names, str(token))
            case "NUMBER" if str(token).startswith("size("):
                names = (*names, str(token))
            case "NUMBER":
                sign *= _integer(token)
            case _:
                pass
    products.append((sign, names))
    told = outside.value if isinstance(outside, s.Literal) else outside
    assert not isinstance(told, complex)  # noqa: S101 - no number is written so
    if isinstance(told, Token) and told not in ("clamp", "wrap", "identity"):
        raise Misplaced(
            f"what lies outside is a number, 'clamp', 'wrap' or 'identity', not {told!s}", _at(told)
        )
    beyond = told if isinstance(told, int | float | None) else str(told)
    return s.Affine(tuple(products), divisor, beyond, _at(tokens[0]))


def _placed(label: s.Label, tokens: tuple[Token, ...]) -> s.Placed:
    place = _affine(tokens, 1, None)
    if isinstance(place, s.Arithmetic):
        raise Misplaced("a place is a sum of labels, each times a whole number", place.at)
    return s.Placed(label, place, label.at)


def _many(node: Any) -> list[Any]:
    return cast("list[Any]", node) if isinstance(node, list) else [node]


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
