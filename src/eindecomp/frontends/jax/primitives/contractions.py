"""`dot_general`: products summed over dimensions, and the names of the dimensions they show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.frontends.join import Read
from eindecomp.frontends.jax.registry import Equation, primitive
from eindecomp.lang.dtypes import dtype, widen

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
    _vote(op, x, y, (first, tuple(second)), batch)
    wanted = dtype(op.dtype)
    if wanted != x.dtype and wanted != y.dtype and wanted == widen(x.dtype):
        # Rounded once only, when the sum is complete.
        x, y = op.trace.cast(x, wanted), op.trace.cast(y, wanted)
    elif wanted not in (x.dtype, y.dtype):
        x, y = op.trace.cast(x, wanted), op.trace.cast(y, wanted)
    return op.trace.einsum([Read(x, first), Read(y, tuple(second))], output, dtype=op.dtype)


def _vote(
    op: Equation,
    x: View,
    y: View,
    symbols: tuple[tuple[int, ...], tuple[int, ...]],
    batch: Sequence[int],
) -> None:
    """Suggest names: heads, queries and keys of an attention, features of a linear layer."""
    first, second = symbols
    contracted = {s for s in first if s in second and s not in batch}
    free = [s for s in first if s not in second], [s for s in second if s not in first]
    names: dict[int, str] = {}
    if batch and len(contracted) == 1 and free[0] and free[1]:
        strength = 2
        leading = batch[0] == 0 and len(batch) > 1
        names |= dict(zip(batch, ["b", "h", "g"] if leading else ["h", "g", "k"], strict=False))
        names |= {s: "d" for s in contracted}
        names |= {free[0][-1]: "s", free[1][-1]: "t"}
    elif not batch and len(contracted) == 1 and len(free[1]) == 1:
        strength = 1
        names = dict(zip(free[0], ["b", "s"] if len(free[0]) == 2 else ["b"], strict=False))
        names |= {s: "a" for s in contracted} | {free[1][0]: "f"}
    else:
        return
    op.trace.vote(x, [names.get(s) for s in first], strength)
    op.trace.vote(y, [names.get(s) for s in second], strength)
