"""EinSum: Z[ℓ_Z] ← ⊕ ⊗(X[ℓ_X], Y[ℓ_Y], …), the one operation everything else is built from.

Glossary, the paper's symbols to our names: ℓ_X `inputs[0]`, ℓ_Z `output`, ℓ_agg `aggregated`,
⊗ `join`, ⊕ `agg`, b_X a tensor's shape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from eindecomp.errors import ExpressionError
from eindecomp.lang.monoid import SUM, Monoid
from eindecomp.lang.names import check_label
from eindecomp.lang.scalar import Arg, Expr, chain, replace_args, to_text, used_args, values

Labels = tuple[str, ...]
Sizes = Mapping[str, int]
"""The size of each label."""
Operand = tuple[str, Labels]
"""A tensor by its name, and the labels under which it is read."""
Operands = list[Operand]
Read = TypeVar("Read", bound="tuple[object, ...]")
MAX_LABELS = 50
"""How many labels one vertex may have; NumPy's arrays and einsum allow few more."""


@dataclass(frozen=True, slots=True, repr=False)
class EinSum:
    """One extended Einstein summation; sizes live with the tensors, not here.

    Inputs that the join reads come first, in the order in which it first reads them; those of which
    only the labels are used come after them. `canonical_inputs` puts them in that order.

    Args:
        inputs: The labels of each input, such as `(("i", "j"), ("j", "k"))`.
        output: The labels of the result, such as `("i", "k")`.
        join: The scalar function ⊗ of the inputs, such as `product(2)`.
        agg: The aggregation ⊕ over the other labels, such as `SUM`; None where there are none.

    Raises:
        ExpressionError: The parts do not fit each other.

    Examples:
        >>> matmul = EinSum((("i", "j"), ("j", "k")), ("i", "k"), product(2), SUM)
        >>> matmul.aggregated
        ('j',)
        >>> matmul
        <EinSum i k <- sum [i j] * [j k]>
    """

    inputs: tuple[Labels, ...]
    output: Labels
    join: Expr
    agg: Monoid | None = None

    def __post_init__(self) -> None:
        for label in {label for labels in (*self.inputs, self.output) for label in labels}:
            check_label(label)
        if len(self.labels) > MAX_LABELS:
            raise ExpressionError(
                f"an EinSum has at most {MAX_LABELS} labels, not {len(self.labels)}"
            )
        if len(set(self.output)) < len(self.output):
            raise ExpressionError(f"an output label appears twice in [{', '.join(self.output)}]")
        used = used_args(self.join)
        if used != tuple(range(len(used))) or len(used) > len(self.inputs):
            raise ExpressionError(
                f"join {self.join} reads inputs {used} of {len(self.inputs)}, not in that order"
            )
        width = 1 if self.agg is None else self.agg.width
        if len(values(self.join)) != width:
            name = "no aggregation" if self.agg is None else f"aggregation {self.agg.name!r}"
            raise ExpressionError(
                f"join {self.join} yields {len(values(self.join))} values, but {name} takes {width}"
            )
        if self.agg is None and self.aggregated:
            raise ExpressionError(
                f"label {self.aggregated[0]!r} is in no output: say how to aggregate it"
            )
        if self.agg is not None and self.agg.width > 1 and self.agg.finish is None:
            raise ExpressionError(
                f"aggregation {self.agg.name!r} has no finish: select a value, such as "
                f"'{self.agg.name}.0'"
            )

    @property
    def labels(self) -> Labels:
        """Every label once: the output's, then the aggregated ones."""
        return (*self.output, *self.aggregated)

    @property
    def aggregated(self) -> Labels:
        """The labels that ⊕ runs over, in order of appearance."""
        read = dict.fromkeys(label for labels in self.inputs for label in labels)
        return tuple(label for label in read if label not in self.output)

    @property
    def broadcast(self) -> Labels:
        """The output labels that no input has."""
        read = {label for labels in self.inputs for label in labels}
        return tuple(label for label in self.output if label not in read)

    @property
    def is_contraction(self) -> bool:
        """Whether it multiplies its inputs, each as it is, and sums."""
        return self.agg == SUM and self.join == product(len(self.inputs))

    def __str__(self) -> str:
        names = [f"[{' '.join(labels)}]" for labels in self.inputs]
        agg = "" if self.agg is None else f"{self.agg.name} "
        return f"{' '.join(self.output)} <- {agg}{to_text(self.join, names)}"

    def __repr__(self) -> str:
        return f"<EinSum {self}>"

    @property
    def definition(self) -> str:
        """The whole definition as a text for cache keys, the same for equal EinSums only."""
        agg = None if self.agg is None else self.agg.definition
        return repr((self.inputs, self.output, self.join, agg))


@lru_cache(maxsize=2**14)
def make_einsum(
    inputs: tuple[Labels, ...], output: Labels, join: Expr, agg: Monoid | None
) -> EinSum:
    """Make an EinSum, or take the equal one made before: models repeat theirs in every layer."""
    return EinSum(inputs, output, join, agg)


def product(arity: int, op: str = "mul") -> Expr:
    """The join that multiplies all inputs (or chains another binary function).

    >>> print(product(3))
    x * y * z
    """
    if arity == 0:
        raise ExpressionError("a product needs at least one input")
    return chain(op, [Arg(k) for k in range(arity)])


def canonical_inputs(join: Expr, operands: Sequence[Read]) -> tuple[Expr, tuple[Read, ...]]:
    """Merge equal operands, and put those the join reads first, in the order it reads them.

    Each operand is a tensor's name and its labels, maybe with a window. The paper's x·x on one
    matrix is thus a map:

    >>> join, operands = canonical_inputs(product(2), [("X", ("i",)), ("X", ("i",))])
    >>> print(join, operands)
    x * x (('X', ('i',)),)
    """
    used = used_args(join)
    if max(used, default=-1) >= len(operands):
        raise ExpressionError(f"join {join} reads more than the {len(operands)} inputs it has")
    order = tuple(dict.fromkeys([*(operands[k] for k in used), *operands]))
    if order == tuple(operands):
        return join, order
    position = {operand: Arg(k) for k, operand in enumerate(order)}
    return replace_args(join, [position[operand] for operand in operands]), order


# Spec strings: NumPy's `"ij,jk->ik"` and the spaced form `"row col, col out -> row out"`


@lru_cache(maxsize=2**10)
def parse_spec(spec: str, ranks: tuple[int, ...]) -> tuple[tuple[Labels, ...], Labels]:
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


def _reading(spec: str, parts: list[str], ranks: Sequence[int]) -> Callable[[str], list[str]]:
    """How labels are written: as words with spaces between, or each as one letter."""
    if any(len(side.split()) > 1 for part in parts for side in part.split("...")):
        return str.split

    def fits(read: Callable[[str], list[str]]) -> bool:
        return all(len(read(part)) == rank for part, rank in zip(parts, ranks, strict=False))

    if "..." not in spec and fits(str.split) and not fits(_letters):
        return str.split
    if ">" in spec.replace("->", "", 1) or "-" in spec.replace("->", "", 1):
        raise ExpressionError(f"spec {spec!r} is not of the form 'ij,jk->ik'")
    return _letters


def _letters(part: str) -> list[str]:
    return list(part.strip())


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
    groups: list[Labels] = []
    group: list[str] | None = None
    for word in part.replace("(", " ( ").replace(")", " ) ").split():
        if word == "(" and group is None:
            group = []
        elif word == ")" and group:
            groups.append(tuple(group))
            group = None
        elif group is not None:
            group.append(check_label(word))
        else:
            groups.append((check_label(word),))
    if group is not None:
        raise ExpressionError(f"reshape {spec!r} has a '(' without its ')'")
    return tuple(groups)
