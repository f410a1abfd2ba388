"""Sums of products: what is multiplied, and in which orders it can be, two at a time.

A tree is an input's position, or a pair of trees: `((0, 2), 1)` multiplies inputs 0 and 2 first.
Every label is summed as soon as nothing else needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import nsmallest
from math import prod

from eindecomp.kernels.point_program import PointProgram
from eindecomp.lang.dtypes import LOW_PRECISION, DType
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.monoid import SUM
from eindecomp.lang.scalar import Arg, Call, Const, Expr, call, used_args

_ZERO = (Const(0), Const(0.0), Const(-0.0))
"""What no sum is divided by: of 1/0 and -1/0 it is not infinite."""


@dataclass(frozen=True, slots=True)
class Term:
    """A function of some inputs that one of these has all labels of."""

    expr: Expr
    args: tuple[int, ...]
    labels: Labels

    @property
    def is_input(self) -> bool:
        """Whether it is an input as it is."""
        return isinstance(self.expr, Arg)


@dataclass(frozen=True, slots=True)
class Product:
    """Terms that are multiplied and summed, and what the sum is multiplied by."""

    terms: tuple[Term, ...]
    factors: tuple[Expr, ...]

    @property
    def labels(self) -> set[str]:
        """The labels of all terms."""
        return {label for term in self.terms for label in term.labels}


def product_of(op: EinSum, program: PointProgram, types: Sequence[DType]) -> Product | None:
    """The product that an EinSum sums, if it does and the product can be taken apart.

    A term that runs over labels of several inputs is as large as what it would be multiplied with,
    and nothing is gained.
    """
    if op.agg != SUM or not op.aggregated:
        return None
    terms: list[Term] = []
    factors: list[Expr] = []
    for expr in (_without_widening(e, types) for e in _multiplied(program.join[0])):
        args = used_args(expr)
        if not args:
            factors.append(expr)
            continue
        labels = max((tuple(dict.fromkeys(op.inputs[k])) for k in args), key=len)
        if any(not set(op.inputs[k]) <= set(labels) for k in args):
            return None
        terms.append(Term(expr, args, labels))
    return Product(tuple(terms), tuple(factors)) if len(terms) > 1 else None


def _multiplied(expr: Expr) -> list[Expr]:
    match expr:
        case Call("mul", (left, right)):
            return [*_multiplied(left), *_multiplied(right)]
        case Call("div", (left, right)) if not used_args(right) and right not in _ZERO:
            return [*_multiplied(left), call("div", 1.0, right)]
        case Call("neg", (inner,)) if used_args(inner):
            return [*_multiplied(inner), Const(-1)]
        case _:
            return [expr]


def _without_widening(expr: Expr, types: Sequence[DType]) -> Expr:
    """A low-precision input itself where the join asks for it in float32: sums are in that."""
    match expr:
        case Call("float32", (Arg(index) as arg,)) if types[index] in LOW_PRECISION:
            return arg
        case _:
            return expr


# The order of products

Tree = int | tuple["Tree", "Tree"]
Ranked = tuple[int, Tree]
"""How many operations a tree takes, and the tree."""

_ALL = 8
"""Inputs up to which all trees are considered: subsets of them are a few thousand pairs."""


def cheapest_trees(
    inputs: Sequence[Labels], output: Labels, sizes: Mapping[str, int], count: int = 1
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
    if len(inputs) > _ALL:
        return (_found_by_search(inputs, output, sizes),)
    best: dict[int, list[Ranked]] = {1 << k: [(0, k)] for k in range(len(inputs))}
    kept = _kept(inputs, output)
    for subset in range(1, 1 << len(inputs)):
        if subset not in best:
            best[subset] = nsmallest(count, _joined(subset, best, kept, sizes), key=_work)
    return tuple(best[(1 << len(inputs)) - 1])


def _work(ranked: Ranked) -> int:
    return ranked[0]


def _kept(inputs: tuple[Labels, ...], output: Labels) -> dict[int, frozenset[str]]:
    """The labels of each subset's product: those that the output or other inputs have."""
    found: dict[int, frozenset[str]] = {}
    for subset in range(1, 1 << len(inputs)):
        members = [own for k, own in enumerate(inputs) if subset >> k & 1]
        others = [own for k, own in enumerate(inputs) if not subset >> k & 1]
        needed = {label for own in (*others, output) for label in own}
        own = {label for labels in members for label in labels}
        found[subset] = frozenset(own if len(members) == 1 else own & needed)
    return found


def _joined(
    subset: int,
    best: Mapping[int, Sequence[Ranked]],
    kept: Mapping[int, frozenset[str]],
    sizes: Mapping[str, int],
) -> list[Ranked]:
    """The trees of a subset, by its two parts, the first of which has its lowest input."""
    found: list[Ranked] = []
    lowest = subset & -subset
    part = subset
    while part := (part - 1) & subset:
        if part & lowest:
            rest = subset ^ part
            step = _operations(kept[part] | kept[rest], kept[subset], sizes)
            found += [(step + a + b, (x, y)) for a, x in best[part] for b, y in best[rest]]
    return found


def _operations(labels: frozenset[str], left: frozenset[str], sizes: Mapping[str, int]) -> int:
    return prod(sizes[label] for label in labels) * (2 if labels - left else 1)


def _found_by_search(
    inputs: tuple[Labels, ...], output: Labels, sizes: Mapping[str, int]
) -> Ranked:
    """One tree of many inputs, as opt_einsum finds it."""
    import opt_einsum  # here, because few vertices have so many inputs and importing it takes time

    symbols = {label: opt_einsum.get_symbol(k) for k, label in enumerate(sizes)}
    terms = ",".join("".join(symbols[label] for label in own) for own in inputs)
    result = "".join(symbols[label] for label in output)
    shapes = [tuple(sizes[label] for label in own) for own in inputs]
    path, _ = opt_einsum.contract_path(f"{terms}->{result}", *shapes, shapes=True, optimize="auto")
    queue: list[tuple[Tree, frozenset[str]]] = [(k, frozenset(own)) for k, own in enumerate(inputs)]
    total = 0
    for step in path:
        picked = [queue[k] for k in step]
        queue = [entry for k, entry in enumerate(queue) if k not in step]
        tree, labels = picked[0]
        for other, own in picked[1:]:
            needed = frozenset(output).union(*(rest for _, rest in queue))
            both = labels | own
            total += _operations(both, both & needed, sizes)
            tree, labels = (tree, other), both & needed
        queue.append((tree, labels))
    return total, queue[0][0]
