"""Spec strings: NumPy's `"ij,jk->ik"` and the spaced form `"row col, col out -> row out"`."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from eindecomp.errors import ExpressionError
from eindecomp.lang.names import check_label

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eindecomp.lang.einsum import Labels

Spec = tuple["tuple[Labels, ...]", "Labels"]


@lru_cache(maxsize=2**10)
def parse_spec(spec: str, ranks: tuple[int, ...]) -> Spec:
    """Read the input labels and the output labels for inputs of the given ranks.

    A spec in which some operand has spaces inside is spaced; otherwise each letter is a label,
    unless only words fit the ranks. Without `->` the output has, as in NumPy, the labels that occur
    once, in alphabetical order.

    >>> parse_spec("ij,jk->ik", (2, 2))
    ((('i', 'j'), ('j', 'k')), ('i', 'k'))
    >>> parse_spec("row, row col -> col", (1, 2))
    ((('row',), ('row', 'col')), ('col',))
    >>> parse_spec("ij,jk->ik", (2, 3))
    Traceback (most recent call last):
    eindecomp.errors.ExpressionError: spec 'ij,jk->ik': 'jk' has 2 labels, but input 1 has rank 3
    """
    left, arrow, right = spec.partition("->")
    operands = left.split(",")
    if len(operands) != len(ranks):
        raise ExpressionError(f"spec {spec!r} names {len(operands)} inputs, got {len(ranks)}")
    if "." in spec:
        return _spelled_out(spec, operands, right if arrow else None, ranks)
    split = _reading(spec, operands, right, ranks)
    inputs = tuple(split(operand) for operand in operands)
    for k, (operand, labels, rank) in enumerate(zip(operands, inputs, ranks, strict=True)):
        if len(labels) != rank:
            raise ExpressionError(
                f"spec {spec!r}: {operand.strip()!r} has {len(labels)} labels, "
                f"but input {k} has rank {rank}"
            )
    output = split(right) if arrow else _implicit_output(inputs)
    for labels in (*inputs, output):
        for label in labels:
            check_label(label)
    return inputs, output


def is_ellipsis_label(label: str) -> bool:
    """Whether a label is one of those that an ellipsis stands for."""
    return label.startswith("_dim")


def _spelled_out(spec: str, operands: list[str], output: str | None, ranks: Sequence[int]) -> Spec:
    """Read a spec with '...': the dimensions it covers are counted from the last, as in NumPy.

    >>> parse_spec("...ij,jk->...ik", (4, 2))
    ((('_dim1', '_dim0', 'i', 'j'), ('j', 'k')), ('_dim1', '_dim0', 'i', 'k'))
    """
    parts = [*operands, *([] if output is None else [output])]
    if any(part.count(".") != 3 * part.count("...") or part.count("...") > 1 for part in parts):
        raise ExpressionError(f"spec {spec!r}: an operand has '...' once or not at all")
    is_spaced = any(len(side.split()) > 1 for part in parts for side in part.split("..."))
    split = _words if is_spaced else _letters
    counts = [
        rank - sum(len(split(side)) for side in part.split("..."))
        for part, rank in zip(operands, ranks, strict=True)
    ]
    for k, (part, count) in enumerate(zip(operands, counts, strict=True)):
        if count < 0 or (count and "..." not in part):
            raise ExpressionError(
                f"spec {spec!r}: {part.strip()!r} does not fit input {k} of rank {ranks[k]}"
            )
    most = max((n for n, part in zip(counts, operands, strict=True) if "..." in part), default=0)

    def spell(part: str, count: int) -> Labels:
        before, dots, after = part.partition("...")
        covered = tuple(f"_dim{k}" for k in reversed(range(count))) if dots else ()
        return (*split(before), *covered, *split(after))

    inputs = tuple(spell(part, count) for part, count in zip(operands, counts, strict=True))
    if output is None:
        named = tuple(tuple(la for la in own if not is_ellipsis_label(la)) for own in inputs)
        found = (*spell("...", most), *_implicit_output(named))
    elif most and "..." not in output:
        raise ExpressionError(f"spec {spec!r}: the output lacks the '...' of its inputs")
    else:
        found = spell(output, most)
    for label in {label for own in (*inputs, found) for label in own}:
        check_label(label)
    return inputs, found


def _reading(
    spec: str, operands: list[str], output: str, ranks: Sequence[int]
) -> Callable[[str], Labels]:
    is_spaced = any(len(part.split()) > 1 for part in (*operands, output))
    fits = {
        read: all(len(read(op)) == rank for op, rank in zip(operands, ranks, strict=True))
        for read in (_letters, _words)
    }
    if is_spaced or (fits[_words] and not fits[_letters]):
        return _words
    if ">" in spec.replace("->", "", 1) or "-" in spec.replace("->", "", 1):
        raise ExpressionError(f"spec {spec!r} is not of the form 'ij,jk->ik'")
    return _letters


def _letters(part: str) -> Labels:
    return tuple(part.strip())


def _words(part: str) -> Labels:
    return tuple(part.split())


def _implicit_output(inputs: tuple[Labels, ...]) -> Labels:
    count = Counter(label for labels in inputs for label in labels)
    return tuple(sorted(label for label, times in count.items() if times == 1))


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
