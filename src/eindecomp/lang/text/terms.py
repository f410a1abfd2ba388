"""Questions about syntax trees: what a term refers to, with which indices, what comes first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.lang.scalar import FUNCTIONS
from eindecomp.lang.text import syntax as s

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eindecomp.lang.einsum import Labels

_INFIX = frozenset(f.name for f in FUNCTIONS.values() if f.symbol is not None and f.arity == 2)


def refs_of(terms: Sequence[s.Term]) -> Iterator[s.Ref]:
    """The references of terms, from left to right."""
    for term in terms:
        match term:
            case s.Ref():
                yield term
            case s.Apply(args=args):
                yield from refs_of(args)
            case _:
                pass


def first_call(term: s.Term) -> s.Apply | None:
    """The function call that a term's text starts with: `f(a)` in `f(a)**2 + b`."""
    while isinstance(term, s.Apply) and term.op in _INFIX:
        term = term.args[0]
    return term if isinstance(term, s.Apply) else None


def replace_first_call(term: s.Term, by: s.Term) -> s.Term:
    """The term with the call that it starts with replaced."""
    if not isinstance(term, s.Apply) or term.op not in _INFIX:
        return by
    first, *rest = term.args
    return s.Apply(term.op, (replace_first_call(first, by), *rest), term.at)


def has(ref: s.Ref, *kinds: type[s.Item]) -> bool:
    """Whether a reference has an index of one of these kinds."""
    return any(isinstance(item, kinds) for item in ref.items)


def is_plain(ref: s.Ref) -> bool:
    """Whether all indices are labels."""
    return all(isinstance(item, s.Label) for item in ref.items)


def label_of(item: s.Item) -> str:
    """The label of an index that has exactly one; of others the empty string."""
    return item.name if isinstance(item, s.Label | s.Window) else ""


def group_of(item: s.Item) -> Labels:
    """The labels that an index merges, one for a plain label."""
    return tuple(n.name for n in item.labels) if isinstance(item, s.Group) else (label_of(item),)


def labels_of(ref: s.Ref) -> Iterator[str]:
    """The labels of a reference, those of lookups and groups among them."""
    for item in ref.items:
        match item:
            case s.Label(name) | s.Window(name):
                yield name
            case s.Group(labels):
                yield from (label.name for label in labels)
            case s.Lookup(inner):
                yield from labels_of(inner)
            case _:
                pass
