"""EinSum: Z[ℓ_Z] ← ⊕ ⊗(X[ℓ_X], Y[ℓ_Y], …), the one operation everything else is built from.

Glossary, the paper's symbols to our names: ℓ_X `inputs[0]`, ℓ_Z `output`, ℓ_agg `aggregated`,
⊗ `join`, ⊕ `agg`, b_X a tensor's shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from eindecomp.errors import ExpressionError
from eindecomp.lang.monoid import SUM, Monoid
from eindecomp.lang.names import check_label
from eindecomp.lang.scalar import Arg, Expr, chain, replace_args, to_text, used_args, values

Labels = tuple[str, ...]
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
        found = dict.fromkeys(label for labels in self.inputs for label in labels)
        return tuple(label for label in found if label not in self.output)

    @property
    def broadcast(self) -> Labels:
        """The output labels that no input has."""
        found = {label for labels in self.inputs for label in labels}
        return tuple(label for label in self.output if label not in found)

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
        """All of it, for keys of what is kept: the same for equal EinSums only."""
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


def canonical_inputs(
    join: Expr, operands: Sequence[tuple[str, Labels]]
) -> tuple[Expr, tuple[tuple[str, Labels], ...]]:
    """Merge equal operands, and put those the join reads first, in the order it reads them.

    Each operand is a tensor's name and its labels. The paper's x·x on one matrix is thus a map:

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
