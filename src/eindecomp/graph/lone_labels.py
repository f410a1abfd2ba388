"""Labels that are summed alone in two factors of a product: probably one of them was misspelt."""

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
    """Two labels of one size, each of one factor only of a product that is summed over both.

    Of `sum X[i,jj] * Y[j,k]` these are jj and j: it is the product of two sums.
    """
    if not isinstance(op, EinSum) or op.agg != SUM:
        return None
    factors = [used_args(factor) for factor in _factors(op.join)]
    lone: dict[str, int] = {}
    for label in op.aggregated:
        has = [k for k, args in enumerate(factors) if any(label in op.inputs[a] for a in args)]
        count = max((op.inputs[a].count(label) for k in has for a in factors[k]), default=0)
        if len(has) == count == 1:  # a diagonal is meant
            lone[label] = has[0]
    for first, second in combinations(lone, 2):
        if lone[first] != lone[second] and sizes[first] == sizes[second] > 1:
            return first, second
    return None


def warn_of_lone_labels(op: Op, sizes: Mapping[str, int], told: Callable[[str, str], str]) -> None:
    """Warn of such labels; `told` puts before a message where the label stands."""
    found = lone_labels(op, sizes)
    if found is None:
        return
    first, second = found
    message = (
        f"labels {first!r} and {second!r}, both of size {sizes[first]}, are summed alone, each in "
        f"one factor: is one misspelt? If not, sum each factor first, or ignore LabelWarning"
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
