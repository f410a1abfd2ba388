"""Reading text into syntax, and syntax into scalar expressions: what each word of a term means.

The parser is only imported when a text is first read: with lark it takes a fifth of the time that
all of the package takes to import, and a plan that is loaded or a graph built from Python may never
need it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from functools import lru_cache
from typing import Any

from eindecomp.errors import ExpressionError, Source, TextError, suggest
from eindecomp.lang.names import CONSTANTS
from eindecomp.lang.scalar import (
    FUNCTIONS,
    Arg,
    Call,
    Const,
    Expr,
    Scalar,
    arg_name,
    chain,
    from_values,
    replace_args,
)
from eindecomp.lang.text import syntax as s

Leaf = Callable[[s.Ref | s.Name], Expr]
"""What a tensor or a word in a term stands for."""
# Conditions stand twice, so that what is not taken neither overflows nor has a gradient.
SHORTHANDS = {
    "softplus": ("where(x > 20, x, log(1 + exp(where(x > 20, 0, x))))", ()),
    "leaky_relu": ("where(x > 0, x, y * x)", (0.01,)),
    "elu": ("where(x > 0, x, y * (exp(where(x > 0, 0, x)) - 1))", (1,)),
}
"""Functions that stand for an expression, and the last operands where they are left out."""
MAX_TEXT = 8_000_000
"""How many characters a text may have."""


def read_statements(source: Source) -> tuple[s.Statement, ...]:
    """Parse a whole text.

    >>> [statement] = read_statements(Source("output Z"))
    >>> statement
    OutputDecl(name='Z', at=7)
    """
    return _read(source, "start")


@lru_cache(maxsize=2**10)
def read_join(text: str) -> tuple[s.Term, ...]:
    """Parse a join string: one term, or the several of a tuple."""
    return _read(Source(text, "join"), "join")


def _read(source: Source, start: str) -> Any:
    if len(source.text) > MAX_TEXT:
        raise TextError(f"the text is longer than {MAX_TEXT:,} characters", source, 0)
    from eindecomp.lang.text.parser import parse

    return parse(source, start)


def resolve(term: s.Term, source: Source, leaf: Leaf) -> Expr:
    """Turn a term into an expression; `leaf` says what tensors and unknown words stand for."""
    match term:
        case s.Literal(value):
            return Const(value)
        case s.Name(name) if name in CONSTANTS:
            return Const(CONSTANTS[name])
        case s.Name() | s.Ref():
            return leaf(term)
        case s.Apply("index", (s.Name(name),), at):
            return leaf(s.Name(f"index({name})", at))
        case s.Apply(op, args, at):
            operands = [resolve(arg, source, leaf) for arg in args]
            try:
                return _apply(op, operands)
            except ExpressionError as error:
                raise TextError(str(error), source, at) from None


def _apply(op: str, operands: list[Expr]) -> Expr:
    match op, operands:
        case "-", [Const(value)] if not isinstance(value, bool):
            return Const(-value)
        case "-", [operand]:
            return Call("neg", (operand,))
        case "complex", [Const(real), Const(imag)] if not isinstance(real, complex):
            return Const(complex(real, imag))
        case "complex", _:
            raise ExpressionError("complex(re, im) takes two real literals")
        case "min" | "max", [_, _, _, *_]:
            return chain(op, operands)
        case _ if op in SHORTHANDS:
            return _written_out(op, operands)
        case _ if op not in FUNCTIONS:
            known = [name for name in FUNCTIONS if name not in ("and", "or", "not")]
            known += SHORTHANDS
            raise ExpressionError(f"unknown function {op!r}{suggest(op, known)}")
        case _:
            return Call(op, tuple(operands))


def _written_out(op: str, operands: list[Expr]) -> Expr:
    text, defaults = SHORTHANDS[op]
    most = 1 + len(defaults)
    if not 1 <= len(operands) <= most:
        counts = " or ".join(str(n) for n in range(1, most + 1))
        raise ExpressionError(f"{op} takes {counts} operands, not {len(operands)}")
    left_out = (Const(value) for value in defaults[len(operands) - 1 :])
    return replace_args(parse_join(text, most), [*operands, *left_out])


def parse_join(
    text: str, arity: int, scalars: Container[str] = (), labels: Sequence[str] = ()
) -> Expr:
    """Parse a join string over x, y, z, x3, …, known run-time scalars and labels.

    Label k is read as input `arity + k`; `index(x)` is the label x, which `x` alone is not.

    >>> parse_join("abs(x - y)", 2)
    Call(op='abs', args=(Call(op='sub', args=(Arg(index=0), Arg(index=1))),))
    >>> parse_join("abs(x - q)", 2)
    Traceback (most recent call last):
    eindecomp.errors.TextError: join:1:9: unknown name 'q'; known: x, y
      abs(x - q)
              ^
    """
    names = [arg_name(k) for k in range(arity)]
    source = Source(text, "join")
    leaf = named_leaf(names, scalars, source)

    def with_labels(term: s.Ref | s.Name) -> Expr:
        known = term.name in names or term.name in scalars
        is_index = term.name.startswith("index(")  # `index(label)` comes as a name so spelt
        label = term.name[6:-1] if is_index else None if known else term.name
        if isinstance(term, s.Name) and label in labels:
            return Arg(arity + labels.index(label))
        return leaf(term)

    return resolve_values(read_join(text), source, with_labels)


def parse_expr(
    text: str, names: Iterable[str], scalars: Container[str] = (), what: str = "join"
) -> Expr:
    """Parse an expression whose inputs are called `names`, in that order."""
    source = Source(text, what)
    return resolve_values(read_join(text), source, named_leaf(names, scalars, source))


def resolve_values(terms: Iterable[s.Term], source: Source, leaf: Leaf) -> Expr:
    """Turn one term, or the several of a tuple, into an expression."""
    return from_values([resolve(term, source, leaf) for term in terms])


def named_leaf(names: Iterable[str], scalars: Container[str], source: Source) -> Leaf:
    """The meaning of words where inputs are named and tensors cannot be used."""
    position = {name: Arg(k) for k, name in enumerate(names)}

    def leaf(term: s.Ref | s.Name) -> Expr:
        if isinstance(term, s.Ref):
            told = f"a tensor cannot be used here; the inputs are {', '.join(position)}"
            raise TextError(told, source, term.at)
        if term.name in position:
            return position[term.name]
        if term.name in scalars:
            return Scalar(term.name)
        near = suggest(term.name, position)
        raise TextError(f"unknown name {term.name!r}{near}", source, term.at)

    return leaf
