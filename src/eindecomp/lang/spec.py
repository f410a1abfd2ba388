"""Spec strings: NumPy's `"ij,jk->ik"` and the spaced form `"row col, col out -> row out"`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from eindecomp.errors import ExpressionError
from eindecomp.lang.names import check_label

if TYPE_CHECKING:
    from eindecomp.lang.einsum import Labels

Spec = tuple["tuple[Labels, ...]", "Labels"]


@lru_cache(maxsize=2**10)
def parse_spec(spec: str, ranks: tuple[int, ...]) -> Spec:
    """Read the input labels and the output labels for inputs of the given ranks.

    A spec in which some operand has spaces inside is spaced; otherwise each letter is a label,
    unless only words fit the ranks. Without `->` the output has, as in NumPy, the labels that occur
    once, in alphabetical order. An operand may have '...' for the dimensions that it does not name.

    >>> parse_spec("ij,jk->ik", (2, 2))
    ((('i', 'j'), ('j', 'k')), ('i', 'k'))
    >>> parse_spec("row, row col -> col", (1, 2))
    ((('row',), ('row', 'col')), ('col',))
    >>> parse_spec("...ij,jk->...ik", (4, 2))
    ((('_dim1', '_dim0', 'i', 'j'), ('j', 'k')), ('_dim1', '_dim0', 'i', 'k'))
    >>> parse_spec("ij,jk->ik", (2, 3))
    Traceback (most recent call last):
    eindecomp.errors.ExpressionError: spec 'ij,jk->ik': 'jk' has 2 labels, but input 1 has rank 3
    """
    left, arrow, right = spec.partition("->")
    operands = left.split(",")
    if len(operands) != len(ranks):
        raise ExpressionError(f"spec {spec!r} names {len(operands)} inputs, got {len(ranks)}")
    parts = [*operands, right]
    if any(part.count(".") != 3 * part.count("...") or part.count("...") > 1 for part in parts):
        raise ExpressionError(f"spec {spec!r}: an operand has '...' once or not at all")
    split = _reading(spec, parts, ranks)
    counts: list[int] = []
    for k, (part, rank) in enumerate(zip(operands, ranks, strict=True)):
        named = sum(len(split(side)) for side in part.split("..."))
        if named > rank or (named < rank and "..." not in part):
            raise ExpressionError(
                f"spec {spec!r}: {part.strip()!r} has {named} labels, but input {k} has rank {rank}"
            )
        counts.append(rank - named)
    most = max(counts, default=0)

    def spell(part: str, count: int) -> Labels:
        """The labels of a part; those that its '...' stands for are counted from the last."""
        before, dots, after = part.partition("...")
        covered = tuple(f"_dim{k}" for k in reversed(range(count))) if dots else ()
        return (*split(before), *covered, *split(after))

    inputs = tuple(spell(part, count) for part, count in zip(operands, counts, strict=True))
    if most and arrow and "..." not in right:
        raise ExpressionError(f"spec {spec!r}: the output lacks the '...' of its inputs")
    output = spell(right, most)
    if not arrow:
        times = Counter(label for labels in inputs for label in labels)
        once = sorted(la for la, n in times.items() if n == 1 and not is_ellipsis_label(la))
        output = (*spell("...", most), *once)
    for label in {label for own in (*inputs, output) for label in own}:
        check_label(label)
    return inputs, output


def is_ellipsis_label(label: str) -> bool:
    """Whether a label is one of those that an ellipsis stands for."""
    return label.startswith("_dim")


def _reading(spec: str, parts: list[str], ranks: Sequence[int]) -> Callable[[str], Labels]:
    """How labels are written: as words with spaces between, or each as one letter."""
    if any(len(side.split()) > 1 for part in parts for side in part.split("...")):
        return _words
    fits = {
        read: all(len(read(part)) == rank for part, rank in zip(parts, ranks, strict=False))
        for read in (_letters, _words)
    }
    if "..." not in spec and fits[_words] and not fits[_letters]:
        return _words
    if ">" in spec.replace("->", "", 1) or "-" in spec.replace("->", "", 1):
        raise ExpressionError(f"spec {spec!r} is not of the form 'ij,jk->ik'")
    return _letters


def _letters(part: str) -> Labels:
    return tuple(part.strip())


def _words(part: str) -> Labels:
    return tuple(part.split())


def parse_groups(spec: str) -> tuple[tuple[Labels, ...], tuple[Labels, ...]]:
    """Read a reshape such as `"b (h d) -> b h d"`: groups of labels, one for each dimension.

    >>> parse_groups("b (h d) -> b h d")
    ((('b',), ('h', 'd')), (('b',), ('h',), ('d',)))
    """
    left, arrow, right = spec.partition("->")
    if not arrow:
        raise ExpressionError(f"reshape {spec!r} has no '->'")
    return _groups(left, spec), _groups(right, spec)


def _groups(part: str, spec: str) -> tuple[Labels, ...]:
    found: list[Labels] = []
    group: list[str] | None = None
    for word in part.replace("(", " ( ").replace(")", " ) ").split():
        if word == "(" and group is None:
            group = []
        elif word == ")" and group:
            found.append(tuple(group))
            group = None
        elif group is not None:
            group.append(check_label(word))
        else:
            found.append((check_label(word),))
    if group is not None:
        raise ExpressionError(f"reshape {spec!r} has a '(' without its ')'")
    return tuple(found)
