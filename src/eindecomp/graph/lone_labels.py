"""Labels that are aggregated alone in two operands: probably one of them was misspelt."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from inspect import currentframe
from itertools import combinations
from typing import TYPE_CHECKING

from eindecomp.errors import LabelWarning
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import SUM
from eindecomp.lang.scalar import Call, Expr, used_args

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from eindecomp.graph.ops import Op


def lone_labels(op: Op, sizes: Mapping[str, int]) -> tuple[str, str] | None:
    """Two labels of one size that are aggregated, each in one operand only.

    Of `sum X[i,jj] * Y[j,k]` these are jj and j: it is the product of two sums. Operands are the
    factors of such a product. Of other expressions they are the tensors, if these have no label
    in common but each another one: `sum abs(X[i,d] - Y[j,d])` and `max X[i] + Y[j]` are over pairs.
    """
    if not isinstance(op, EinSum) or op.agg is None:
        return None
    factors = [used_args(factor) for factor in _factors(op.join)]
    is_product = op.agg == SUM and len(factors) > 1
    if not is_product:
        factors = [(k,) for k in used_args(op.join)]
    lone: dict[str, int] = {}
    for label in op.aggregated:
        has = [k for k, args in enumerate(factors) if any(label in op.inputs[a] for a in args)]
        count = max((op.inputs[a].count(label) for k in has for a in factors[k]), default=0)
        if len(has) == count == 1:  # a diagonal is meant
            lone[label] = has[0]
    for first, second in combinations(lone, 2):
        if lone[first] == lone[second] or not sizes[first] == sizes[second] > 1:
            continue
        if is_product or _are_apart(*(op.inputs[factors[lone[k]][0]] for k in (first, second))):
            return first, second
    return None


def _are_apart(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether two tensors have no label in common, and both more than one."""
    return {*one}.isdisjoint(other) and min(len({*one}), len({*other})) > 1


def warn_of_lone_labels(op: Op, sizes: Mapping[str, int], told: Callable[[str, str], str]) -> None:
    """Warn of such labels; `told` puts before a message where the label stands."""
    pair = lone_labels(op, sizes)
    if pair is None:
        return
    first, second = pair
    message = (
        f"labels {first!r} and {second!r}, both of size {sizes[first]}, are aggregated alone, each "
        f"in one operand: is one misspelt? If not, aggregate each first, or ignore LabelWarning"
    )
    # The line that is to blame is the first one outside of this package.
    frame, depth = currentframe(), 1
    while frame is not None and frame.f_globals["__name__"].startswith("eindecomp."):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(told(message, first), LabelWarning, stacklevel=depth)


@contextmanager
def as_written() -> Generator[None]:
    """Within it no label is taken for misspelt: the text was written by a program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelWarning)
        yield


def _factors(join: Expr) -> Iterator[Expr]:
    match join:
        case Call("mul" | "div" | "neg", args):
            for arg in args:
                yield from _factors(arg)
        case _:
            yield join
