"""Products of matrices, and sums of products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eindecomp.frontends.join import Read
from eindecomp.frontends.torch.operators.written import number
from eindecomp.frontends.torch.registry import operator

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


@operator("aten.matmul", "aten.mm", "aten.bmm", "aten.mv", "aten.dot")
def matmul(
    op: Operation,
    x: View | None = None,
    other: View | None = None,
    mat2: View | None = None,
    vec: View | None = None,
    tensor: View | None = None,
) -> View:
    """A product of matrices, or vectors, with all dimensions before them alike or repeated."""
    second = next(each for each in (other, mat2, vec, tensor) if each is not None)
    assert x is not None  # noqa: S101 - it is in every schema
    left, right, output = _matrix_symbols(len(x.dims), len(second.dims))
    return op.trace.einsum([Read(x, left), Read(second, right)], output, dtype=op.dtype)


def _matrix_symbols(
    left: int, right: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Symbols of two factors and their product, the last ones of which are i, k and j."""
    rank = max(left, right, 2)
    i, j, k = rank, rank + 1, rank + 2
    batch = tuple(range(rank - 2))
    first = (*batch[len(batch) - max(left - 2, 0) :], *((i, k) if left > 1 else (k,)))
    second = (*batch[len(batch) - max(right - 2, 0) :], *((k, j) if right > 1 else (k,)))
    output = (*batch, *((i,) if left > 1 else ()), *((j,) if right > 1 else ()))
    return first, second, output


def _plus(op: Operation, x: View, made: View, beta: Number, alpha: Number) -> View:
    scaled = "y" if alpha == 1 else f"y * {number(alpha)}"
    if beta == 0:
        return op.trace.map(scaled.replace("y", "x"), made, dtype=op.dtype)
    kept = "x" if beta == 1 else f"x * {number(beta)}"
    return op.trace.map(f"{kept} + {scaled}", x, made, dtype=op.dtype)


@operator("aten.addmm")
def addmm(
    op: Operation, x: View, mat1: View, mat2: View, beta: Number = 1, alpha: Number = 1
) -> View:
    """A product of matrices added to another."""
    op.trace.vote(mat2, (None, "f"), 1)
    return _plus(op, x, matmul(op, mat1, mat2), beta, alpha)


@operator("aten.addmv")
def addmv(
    op: Operation, x: View, mat: View, vec: View, beta: Number = 1, alpha: Number = 1
) -> View:
    """A matrix times a vector added to another."""
    return _plus(op, x, matmul(op, mat, vec), beta, alpha)


@operator("aten.baddbmm")
def baddbmm(
    op: Operation, x: View, batch1: View, batch2: View, beta: Number = 1, alpha: Number = 1
) -> View:
    """Products of matrices added to others."""
    return _plus(op, x, matmul(op, batch1, batch2), beta, alpha)


@operator("aten.outer", "aten.ger")
def outer(op: Operation, x: View, vec2: View) -> View:
    """All products of elements of two vectors."""
    return op.trace.map("x * y", op.trace.unsqueeze(x, 1), vec2, dtype=op.dtype)


@operator("aten.tensordot")
def tensordot(
    op: Operation, x: View, other: View, dims_self: Sequence[int], dims_other: Sequence[int]
) -> View:
    """A sum of products over pairs of dimensions."""
    first = [*range(len(x.dims))]
    second = [*range(len(first), len(first) + len(other.dims))]
    for mine, others in zip(dims_self, dims_other, strict=True):
        second[others] = first[mine]
    output = [s for s in (*first, *second) if (s in first) != (s in second)]
    reads = [Read(x, tuple(first)), Read(other, tuple(second))]
    return op.trace.einsum(reads, output, dtype=op.dtype)


@operator("aten.einsum")
def einsum(op: Operation, equation: str, tensors: Sequence[View], **_: Any) -> View:
    """What an equation says, in any order; dimensions under dots are aligned from the right."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    dots = max(
        (len(t.dims) - len(term.replace("...", "")) for t, term in zip(tensors, terms, strict=True)
         if "..." in term),
        default=0,
    )  # fmt: skip
    letters = sorted({c for term in terms for c in term if c != "."})
    symbol = {c: dots + k for k, c in enumerate(letters)}
    reads: list[Read] = []
    for tensor, term in zip(tensors, terms, strict=True):
        covered = len(tensor.dims) - len(term.replace("...", ""))
        own = _equation_symbols(term, symbol, [*range(dots - covered, dots)])
        reads.append(Read(tensor, tuple(own)))
        if "..." not in term and len({*term}) == len(term):
            op.trace.vote(tensor, [c.lower() for c in term], 1)
    if not arrow:
        once = [c for c in letters if sum(term.count(c) for term in terms) == 1]
        output = ("..." if dots else "") + "".join(once)
    shown = _equation_symbols(output, symbol, [*range(dots)])
    return op.trace.einsum(reads, shown, dtype=op.dtype)


def _equation_symbols(term: str, symbol: dict[str, int], dots: list[int]) -> list[int]:
    before, found, after = term.partition("...")
    middle = dots if found else []
    return [*(symbol[c] for c in before), *middle, *(symbol[c] for c in after)]
