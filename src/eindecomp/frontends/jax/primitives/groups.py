"""`ragged_dot`: rows times the matrix of their group, where sizes of groups are data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.frontends.jax.registry import Equation, primitive
from eindecomp.frontends.operations.groups import ends_of, group_of, grouped_product

if TYPE_CHECKING:
    from eindecomp.frontends.views import View


@primitive("ragged_dot_general")
def _ragged_dot(op: Equation, x: View, matrices: View, sizes: View) -> View:
    numbers = op.params["ragged_dot_dimension_numbers"]
    (left, right), batch = numbers.dot_dimension_numbers
    rows, groups = numbers.lhs_ragged_dimensions, numbers.rhs_group_dimensions
    found = (len(x.dims), len(matrices.dims), *left, *rows, *groups, len(right), *batch)
    if found != (2, 3, 1, 0, 0, 1, (), ()) or op.params["group_offset"] is not None:
        op.refuse("rows of a matrix times one matrix for each group of them are")
    matrices = op.trace.transpose(matrices, [0, int(right[0]), 3 - int(right[0])])
    group = group_of(op.trace, ends_of(op.trace, sizes), x.shape[0])
    return grouped_product(op.trace, x, matrices, group, op.dtype)
