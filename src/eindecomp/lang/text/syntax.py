"""The syntax tree of a `.ein` text.

`at` is always the character offset a node starts at; it does not count when nodes are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from eindecomp.errors import ExpressionError
from eindecomp.lang.scalar import FUNCTIONS, MAX_DEPTH, Number


@dataclass(frozen=True, slots=True)
class Label:
    """A label in brackets, with its size where one is written."""

    name: str
    at: int = field(compare=False)
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Star:
    """`*b` in a macro: all labels that are not named otherwise."""

    name: str
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Window:
    """`j in 2:10`: a slice."""

    name: str
    start: int
    stop: int
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Fixed:
    """`0` or `-1`: one index, counted from the end if negative; its dimension goes."""

    index: int
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`abs(w)`: refused, with the gather that does it."""

    text: str
    labels: tuple[str, ...]
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Affine:
    """`(2*w + r - 1) / 2 else 0`: a place that labels, and numbers, add up to."""

    products: tuple[tuple[int, tuple[str, ...]], ...]
    """Each a number times names: of labels, of a macro's options, or of sizes, as `size(n)`."""
    divisor: int
    outside: int | float | str | None
    """A number, `clamp`, `wrap` or `identity`; None if nothing is said."""
    at: int = field(compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """What it reads, each once."""
        return tuple(dict.fromkeys(name for _, names in self.products for name in names))


@dataclass(frozen=True, slots=True)
class Placed:
    """`x: 100 = 2*w + r` as an index on the left of `<-`: elements that land at computed places."""

    label: Label
    place: Affine
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Group:
    """`(h, d)`: several labels merged into one dimension."""

    labels: tuple[Label, ...]
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Lookup:
    """`ids[b, s]` as an index on the right of `<-`: a gather."""

    ref: Ref
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Scattered:
    """`v: 100 = ids[b, s]` as an index on the left of `<-`: a scatter into the rows of v."""

    label: Label
    ref: Ref
    at: int = field(compare=False)


Item = Label | Star | Window | Fixed | Arithmetic | Affine | Placed | Group | Lookup | Scattered


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor and its indices."""

    name: str
    items: tuple[Item, ...]
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Name:
    """A word in an expression: a run-time scalar, a constant, an argument, or a label in a fill."""

    name: str
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Literal:
    """A number."""

    value: Number
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Apply:
    """A function or operator applied; `-` is the sign, `neg` the function of that name."""

    op: str
    args: tuple[Term, ...]
    at: int = field(compare=False)
    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        depth = 1 + max(arg.depth if isinstance(arg, Apply) else 0 for arg in self.args)
        if depth > MAX_DEPTH:
            raise ExpressionError(
                f"an expression nests more than {MAX_DEPTH} deep, as a chain of as many divisions "
                "does"
            )
        object.__setattr__(self, "depth", depth)


Term = Ref | Name | Literal | Apply


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The right-hand side `agg term` or `agg (term, term, …)`; `agg` is None without one."""

    agg: str | None
    terms: tuple[Term, ...]
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class FillTerm:
    """The right-hand side `fill term`, over the labels' index values."""

    term: Term
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class MacroCall:
    """The right-hand side `macro[labels](arguments, name = number)`, or `agg[labels] term`."""

    name: str
    labels: tuple[Item, ...]
    args: tuple[Term, ...]
    options: tuple[tuple[str, Number], ...]
    at: int = field(compare=False)
    is_open: bool = False
    """Whether it goes before an expression without parentheses, as only aggregations do."""


Rhs = Aggregate | FillTerm | MacroCall


@dataclass(frozen=True, slots=True)
class Assign:
    """`target <- rhs with refs`."""

    target: Ref
    rhs: Rhs
    extra: tuple[Ref, ...]
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class InputDecl:
    """`input X[i: 10] float64`."""

    ref: Ref
    dtype: str | None
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class ScalarDecl:
    """`scalar lr`."""

    name: str
    dtype: str | None
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class OutputDecl:
    """`output Z`."""

    name: str
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class TieDecl:
    """`tie W <- new_W`."""

    input: Name
    result: Name
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class MacroDecl:
    """`macro name[labels](parameters) -> result { body }`."""

    name: str
    labels: tuple[str, ...]
    params: tuple[Ref, ...]
    options: tuple[tuple[str, Number], ...]
    result: Ref
    body: tuple[Assign, ...]
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class MonoidDecl:
    """`monoid name(x; y) = combine identity e finish f grad g`."""

    name: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    combine: tuple[Term, ...]
    identity: tuple[Term, ...]
    finish: Term | None
    rule: tuple[Term, ...] | None
    at: int = field(compare=False)


Statement = InputDecl | ScalarDecl | OutputDecl | TieDecl | MacroDecl | MonoidDecl | Assign


# What a term refers to, with which indices, and what comes first

_INFIX = frozenset(f.name for f in FUNCTIONS.values() if f.symbol is not None and f.arity == 2)


def refs_of(terms: Sequence[Term]) -> Iterator[Ref]:
    """The references of terms, from left to right."""
    for term in terms:
        match term:
            case Ref():
                yield term
            case Apply(args=args):
                yield from refs_of(args)
            case _:
                pass


def first_call(term: Term) -> Apply | None:
    """The function call that a term's text starts with: `f(a)` in `f(a)**2 + b`."""
    while isinstance(term, Apply) and term.op in _INFIX:
        term = term.args[0]
    return term if isinstance(term, Apply) else None


def replace_first_call(term: Term, by: Term) -> Term:
    """The term with the call that it starts with replaced."""
    if not isinstance(term, Apply) or term.op not in _INFIX:
        return by
    first, *rest = term.args
    return Apply(term.op, (replace_first_call(first, by), *rest), term.at)


def has(ref: Ref, *kinds: type[Item]) -> bool:
    """Whether a reference has an index of one of these kinds."""
    return any(isinstance(item, kinds) for item in ref.items)


def is_plain(ref: Ref) -> bool:
    """Whether all indices are labels."""
    return all(isinstance(item, Label) for item in ref.items)


def label_of(item: Item) -> str:
    """The label of an index that has exactly one; of others the empty string."""
    return item.name if isinstance(item, Label | Window) else ""


def group_of(item: Item) -> tuple[str, ...]:
    """The labels that an index merges, one for a plain label."""
    return tuple(n.name for n in item.labels) if isinstance(item, Group) else (label_of(item),)


def labels_of(ref: Ref) -> Iterator[str]:
    """The labels of a reference, those of lookups and groups among them."""
    for item in ref.items:
        match item:
            case Label(name) | Window(name):
                yield name
            case Affine():
                yield from (name for name in item.names if "(" not in name)
            case Group(labels):
                yield from (label.name for label in labels)
            case Lookup(inner):
                yield from labels_of(inner)
            case _:
                pass
