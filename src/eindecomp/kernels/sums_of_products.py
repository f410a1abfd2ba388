"""Sums of products: what is multiplied, and in which orders it can be, two at a time.

A tree is an input's position, or a pair of trees: `((0, 2), 1)` multiplies inputs 0 and 2 first.
Every label is summed as soon as nothing else needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import nsmallest

from eindecomp.graph.orders import path_of
from eindecomp.graph.work import MOST_OPERANDS, halves, kept_labels, pair_operations
from eindecomp.kernels.point_program import PointProgram
from eindecomp.lang.dtypes import LOW_PRECISION, DType
from eindecomp.lang.einsum import EinSum, Labels, Sizes
from eindecomp.lang.monoid import SUM
from eindecomp.lang.scalar import Arg, Call, Const, Expr, call, used_args

_ZERO = (Const(0), Const(0.0), Const(-0.0))
"""Divisors that stay in the join: the sum of 1/0 and -1/0 is not infinite."""


@dataclass(frozen=True, slots=True)
class Term:
    """A function of some inputs, one of which has all of their labels."""

    expr: Expr
    args: tuple[int, ...]
    labels: Labels

    @property
    def is_input(self) -> bool:
        """Whether it is an input as it is."""
        return isinstance(self.expr, Arg)


@dataclass(frozen=True, slots=True)
class SumOfProducts:
    """Terms that are multiplied and summed, and what the sum is multiplied by."""

    terms: tuple[Term, ...]
    factors: tuple[Expr, ...]

    @property
    def labels(self) -> set[str]:
        """The labels of all terms."""
        return {label for term in self.terms for label in term.labels}


def product_of(op: EinSum, program: PointProgram, types: Sequence[DType]) -> SumOfProducts | None:
    """The product that an EinSum sums; None if it sums none, or none that can be taken apart.

    A term that runs over the labels of several inputs is as large as the product itself, so that
    nothing would be gained.
    """
    if op.agg != SUM or not op.aggregated:
        return None
    terms: list[Term] = []
    factors: list[Expr] = []
    for expr in _multiplied(program.join[0], types):
        args = used_args(expr)
        if not args:
            factors.append(expr)
            continue
        labels = max((tuple(dict.fromkeys(op.inputs[k])) for k in args), key=len)
        if any(not set(op.inputs[k]) <= set(labels) for k in args):
            return None
        terms.append(Term(expr, args, labels))
    return SumOfProducts(tuple(terms), tuple(factors)) if len(terms) > 1 else None


def _multiplied(expr: Expr, types: Sequence[DType]) -> list[Expr]:
    match expr:
        case Call("mul", (left, right)):
            return [*_multiplied(left, types), *_multiplied(right, types)]
        case Call("div", (left, right)) if not used_args(right) and right not in _ZERO:
            return [*_multiplied(left, types), call("div", 1.0, right)]
        case Call("neg", (inner,)) if used_args(inner):
            return [*_multiplied(inner, types), Const(-1)]
        case Call("float32", (Arg(index) as arg,)) if types[index] in LOW_PRECISION:
            return [arg]  # sums are in float32 in any case
        case _:
            return [expr]


# The order of products

Tree = int | tuple["Tree", "Tree"]
Ranked = tuple[int, Tree]
"""How many operations a tree takes, and the tree."""


def cheapest_trees(
    inputs: Sequence[Labels], output: Labels, sizes: Sizes, count: int = 1
) -> tuple[Ranked, ...]:
    """The trees with the fewest operations, at most `count` of them.

    A product that is summed takes two operations a point, one that is not takes one.

    >>> chain = [("i", "j"), ("j", "k"), ("k", "l")]
    >>> cheapest_trees(chain, ("i", "l"), {"i": 9, "j": 9, "k": 9, "l": 1})
    ((324, (0, (1, 2))),)
    """
    known = {label: sizes[label] for own in inputs for label in own}
    seen = tuple(label for label in output if label in known)
    return _cheapest(tuple(inputs), seen, tuple(known.items()), count)


@lru_cache(maxsize=2**12)
def _cheapest(
    inputs: tuple[Labels, ...], output: Labels, known: tuple[tuple[str, int], ...], count: int
) -> tuple[Ranked, ...]:
    sizes = dict(known)
    if len(inputs) > MOST_OPERANDS:
        return (_searched_tree(inputs, output, sizes),)
    best: dict[int, list[Ranked]] = {1 << k: [(0, k)] for k in range(len(inputs))}
    kept = [kept_labels(inputs, output, mask) for mask in range(1 << len(inputs))]
    for subset in range(1, 1 << len(inputs)):
        if subset not in best:
            trees = _trees_of_subset(subset, best, kept, sizes)
            best[subset] = nsmallest(count, trees, key=lambda ranked: ranked[0])
    return tuple(best[(1 << len(inputs)) - 1])


def _trees_of_subset(
    subset: int, best: Mapping[int, Sequence[Ranked]], kept: Sequence[frozenset[str]], sizes: Sizes
) -> list[Ranked]:
    """The trees of a subset, by its two parts, the first of which has its lowest input."""
    trees: list[Ranked] = []
    lowest = subset & -subset
    parts = (half if half & lowest else subset ^ half for half in halves(subset))
    for part in sorted(parts, reverse=True):
        rest = subset ^ part
        step = pair_operations(kept[part], kept[rest], kept[subset], sizes)
        trees += [(step + a + b, (x, y)) for a, x in best[part] for b, y in best[rest]]
    return trees


def _searched_tree(inputs: tuple[Labels, ...], output: Labels, sizes: Sizes) -> Ranked:
    """One tree of many inputs, as opt_einsum finds it."""
    queue: list[tuple[Tree, frozenset[str]]] = [(k, frozenset(own)) for k, own in enumerate(inputs)]
    total = 0
    for step in path_of(inputs, output, sizes):
        picked = [queue[k] for k in step]
        queue = [entry for k, entry in enumerate(queue) if k not in step]
        tree, labels = picked[0]
        for other, own in picked[1:]:
            needed = frozenset(output).union(*(rest for _, rest in queue))
            kept = (labels | own) & needed
            total += pair_operations(labels, own, kept, sizes)
            tree, labels = (tree, other), kept
        queue.append((tree, labels))
    return total, queue[0][0]
