"""Products of matrices, and sums of products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opt_einsum.parser import parse_einsum_input

from eindecomp.frontends.join import Read
from eindecomp.frontends.operations import group_of, grouped_product
from eindecomp.frontends.torch.registry import number, operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.frontends.torch.registry import Number, Operation
    from eindecomp.frontends.views import View


@operator("aten.linear")
def linear(op: Operation, x: View, weight: View, bias: View | None = None) -> View:
    """Rows times a matrix with its output dimension first, plus a bias."""
    rank = len(x.dims)
    rows = tuple(range(rank - 1))
    if len(weight.dims) == 1:
        return matmul(op, x, weight)
    reads = [Read(x, (*rows, rank)), Read(weight, (rank + 1, rank))]
    made = op.trace.einsum(reads, (*rows, rank + 1), dtype=op.dtype)
    op.trace.vote(weight, ("f", None), 1)
    return made if bias is None else op.trace.map("x + y", made, bias, dtype=op.dtype)


@operator("aten.matmul", "aten.mm", "aten.bmm")
def matmul(op: Operation, x: View, other: View | None = None, mat2: View | None = None) -> View:
    """A product of matrices, or vectors, with all dimensions before them alike or repeated."""
    second = mat2 if other is None else other
    assert second is not None  # noqa: S101 - one of both is in every schema
    left, right = len(x.dims), len(second.dims)
    rank = max(left, right, 2)
    i, j, k = rank, rank + 1, rank + 2
    batch = tuple(range(rank - 2))
    first = (*batch[len(batch) - max(left - 2, 0) :], *((i, k) if left > 1 else (k,)))
    last = (*batch[len(batch) - max(right - 2, 0) :], *((k, j) if right > 1 else (k,)))
    output = (*batch, *((i,) if left > 1 else ()), *((j,) if right > 1 else ()))
    return op.trace.einsum([Read(x, first), Read(second, last)], output, dtype=op.dtype)


@operator("aten.addmm", "aten.baddbmm")
def add_product(
    op: Operation, x: View, beta: Number = 1, alpha: Number = 1, **factors: View
) -> View:
    """A product of matrices added to another matrix."""
    left, right = factors.values()
    op.trace.vote(right, (*(None,) * (len(right.dims) - 1), "f"), 1)
    made = matmul(op, left, right)
    if beta == 0:
        return op.trace.map(f"x * {number(alpha)}", made, dtype=op.dtype)
    join = "x + y" if alpha == beta == 1 else f"x * {number(beta)} + y * {number(alpha)}"
    return op.trace.map(join, x, made, dtype=op.dtype)


@operator("aten.einsum")
def einsum(op: Operation, equation: str, tensors: Sequence[View], **_: Any) -> View:
    """What an equation says, in any order; dimensions under dots are aligned from the right."""
    shapes = [tensor.shape for tensor in tensors]
    inputs, output, _shapes = parse_einsum_input([equation, *shapes], shapes=True)
    terms = inputs.split(",")
    for tensor, term in zip(tensors, terms, strict=True):
        if "..." not in equation and len({*term}) == len(term):
            op.trace.vote(tensor, [c.lower() for c in term], 1)
    reads = [
        Read(tensor, tuple(map(ord, term))) for tensor, term in zip(tensors, terms, strict=True)
    ]
    return op.trace.einsum(reads, [*map(ord, output)], dtype=op.dtype)


@operator("aten._grouped_mm")
def grouped_mm(op: Operation, x: View, mat2: View, offs: View | None = None, **_: Any) -> View:
    """Rows times the matrix of their group, by where the groups of rows end."""
    if offs is None or len(x.dims) != 2 or len(mat2.dims) != 3:
        raise op.refuse("is imported for groups of rows: a matrix, matrices and where groups end")
    group = group_of(op.trace, offs, x.shape[0])
    return grouped_product(op.trace, x, mat2, group, op.dtype)
