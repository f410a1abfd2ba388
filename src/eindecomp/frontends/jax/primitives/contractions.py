"""`dot_general`: products summed over dimensions, and the names of the dimensions they show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.frontends.jax.registry import Equation, primitive
from eindecomp.frontends.join import Read
from eindecomp.lang.dtypes import dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.frontends.views import View


@primitive("dot_general")
def _dot_general(op: Equation, x: View, y: View) -> View:
    (left, right), (of_left, of_right) = op.params["dimension_numbers"]
    first = tuple(range(len(x.dims)))
    second = [len(first) + k for k in range(len(y.dims))]
    for a, b in (*zip(left, right, strict=True), *zip(of_left, of_right, strict=True)):
        second[int(b)] = int(a)
    batch = [int(a) for a in of_left]
    gone = {int(a) for a in left} | {*batch}
    output = [*batch, *(s for s in first if s not in gone), *(s for s in second if s not in first)]
    if not batch:
        _vote(op, x, y, first, tuple(second))
    wanted = dtype(op.dtype)
    if wanted not in (x.dtype, y.dtype):
        # A sum in a wider type is not rounded to the operands' type first.
        x, y = op.trace.cast(x, wanted), op.trace.cast(y, wanted)
    return op.trace.einsum([Read(x, first), Read(y, tuple(second))], output, dtype=op.dtype)


def _vote(op: Equation, x: View, y: View, first: Sequence[int], second: Sequence[int]) -> None:
    """Suggest names of a linear layer: what it contracts, its features, and what they are of."""
    contracted = [s for s in first if s in second]
    free, features = [s for s in first if s not in second], [s for s in second if s not in first]
    if len(contracted) != 1 or len(features) != 1 or len(y.dims) != 2:
        return
    names = dict(zip(free, ["b", "s"] if len(free) == 2 else ["b"], strict=False))
    names |= {contracted[0]: "a", features[0]: "f"}
    op.trace.vote(x, [names.get(s) for s in first], 1)
    op.trace.vote(y, [names.get(s) for s in second], 1)
