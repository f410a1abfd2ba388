"""Sums of products of labelled tensors, by matrix products where those are worth it.

Two factors at a time: every label is a batch (both have it, and it is needed later), left, right
(one of them has it) or summed. Groups of labels are merged in the order in which they lie in memory
and the result is a permuted view, so that nothing is copied that is one matrix, or a stack of them,
as it lies. Low-precision factors are multiplied as they are, with sums in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from eindecomp.kernels.torch.decoding import row_product, suits_rows
from eindecomp.kernels.torch.reductions import in_pieces, is_traced
from eindecomp.kernels.torch.tensors import LOW, aligned, window
from eindecomp.kernels.trees import cheapest_trees

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from eindecomp.kernels.torch.tensors import LabelBox
    from eindecomp.kernels.trees import Tree
    from eindecomp.lang.einsum import Labels

_SHORT = 16
"""The longest sum that is taken element by element, unless matrices are wide."""
_WIDE = 64
"""The shortest side of matrices that are multiplied however short the sum is."""
_MATRIX = 2**12
"""Elements of a matrix from which its product with a vector is a matrix product."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A tensor and its labels, each once."""

    tensor: Tensor
    labels: Labels

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each label."""
        return dict(zip(self.labels, self.tensor.shape, strict=True))


@dataclass(frozen=True, slots=True)
class Groups:
    """The labels of two factors by what becomes of them."""

    batch: Labels
    left: Labels
    right: Labels
    summed: Labels


def contract(
    factors: Sequence[Labelled], output: Labels, held: torch.dtype, out: torch.dtype
) -> Labelled:
    """The sum of the product over all labels that are not in `output`; each of those has a factor.

    Sums are taken in the type `held`. The result has that type or, of two low-precision factors,
    possibly already the type `out`.
    """
    sizes = {label: size for factor in factors for label, size in factor.sizes.items()}
    [(_, tree)] = cheapest_trees([factor.labels for factor in factors], output, sizes)
    return _sum_out(_contract_tree(tree, factors, output, held, out), output, held)


def _contract_tree(
    tree: Tree, factors: Sequence[Labelled], output: Labels, held: torch.dtype, out: torch.dtype
) -> Labelled:
    if isinstance(tree, int):
        return factors[tree]
    a, b = (_contract_tree(part, factors, output, held, held) for part in tree)
    others = [own.labels for k, own in enumerate(factors) if k not in _leaves(tree)]
    needed = dict.fromkeys((*output, *(label for labels in others for label in labels)))
    return _multiply(a, b, tuple(needed), held, out)


def _leaves(tree: Tree) -> set[int]:
    return {tree} if isinstance(tree, int) else _leaves(tree[0]) | _leaves(tree[1])


def _multiply(
    a: Labelled, b: Labelled, needed: Labels, held: torch.dtype, out: torch.dtype
) -> Labelled:
    a, b = _sum_out(a, (*needed, *b.labels), held), _sum_out(b, (*needed, *a.labels), held)
    both = [label for label in a.labels if label in b.labels]
    groups = Groups(
        tuple(label for label in both if label in needed),
        tuple(label for label in a.labels if label not in b.labels),
        tuple(label for label in b.labels if label not in a.labels),
        tuple(label for label in both if label not in needed),
    )
    sizes = a.sizes | b.sizes
    if not _is_matrix_product(groups, sizes, a.tensor.device, held):
        return _multiply_elements(a, b, needed, held)
    # What lies innermost in the result is a column of the product.
    last = next((label for label in reversed(needed) if sizes.get(label, 1) > 1), None)
    if last in groups.left:
        a, b, groups = b, a, Groups(groups.batch, groups.right, groups.left, groups.summed)
    return _multiply_matrices(a, b, groups, held, out)


def _sum_out(x: Labelled, needed: Labels, held: torch.dtype) -> Labelled:
    """Sum over labels that nothing else has."""
    axes = [k for k, label in enumerate(x.labels) if label not in needed]
    if not axes:
        return x
    kept = tuple(label for label in x.labels if label in needed)
    return Labelled(torch.sum(x.tensor.to(held), axes).to(held), kept)


def _is_matrix_product(
    groups: Groups, sizes: dict[str, int], device: torch.device, held: torch.dtype
) -> bool:
    """Whether a call of matrix products is the way, rather than a multiplication and a sum.

    CUDA multiplies no matrices of integers, and a float that holds all their products may not
    exist: integers there are multiplied element by element.
    """
    if device.type != "cpu" and not (held.is_floating_point or held.is_complex):
        return False
    rows, columns, length = (
        prod(sizes[label] for label in part) for part in (groups.left, groups.right, groups.summed)
    )
    short, long = sorted((rows, columns))
    if length <= _SHORT:
        return short >= _WIDE and length > 1
    return short > 1 or long * length >= _MATRIX


def times_rows(x: Tensor, rows: Tensor) -> Tensor:
    """The products of the rows of two matrices with each other, in their type."""
    if len(x) == 1 and suits_rows(x, rows):
        return row_product(x.squeeze(0), rows).unsqueeze(0)
    return x @ rows.mT


def _multiply_elements(a: Labelled, b: Labelled, needed: Labels, held: torch.dtype) -> Labelled:
    """The product of aligned views, summed; in pieces where it would take too much memory."""
    sizes = a.sizes | b.sizes
    kept = _in_order_of(max(a, b, key=lambda x: x.tensor.numel()), needed, sizes)
    space = (*kept, *(label for label in sizes if label not in kept))
    axes = list(range(len(kept), len(space)))

    def compute(box: LabelBox) -> tuple[Tensor, ...]:
        tiles = [window(x.tensor, x.labels, box).to(held) for x in (a, b)]
        x, y = (aligned(t, f.labels, space) for t, f in zip(tiles, (a, b), strict=True))
        return (torch.sum(x * y, axes).to(held) if axes else x * y,)

    whole = {label: (0, size) for label, size in sizes.items()}
    if not axes or is_traced():
        return Labelled(compute(whole)[0], kept)
    [found] = in_pieces(whole, kept, held.itemsize, compute, lambda x, y: (x[0] + y[0],))
    return Labelled(found, kept)


def _multiply_matrices(
    a: Labelled, b: Labelled, groups: Groups, held: torch.dtype, out: torch.dtype
) -> Labelled:
    sizes = a.sizes | b.sizes
    larger = max(a, b, key=lambda x: x.tensor.numel())
    batch, summed = (_as_it_lies(part, larger) for part in (groups.batch, groups.summed))
    left, right = _as_it_lies(groups.left, a), _as_it_lies(groups.right, b)
    rows, columns = _matrices(a, batch, left, summed), _matrices(b, batch, right, summed).mT
    labels = (*batch, *left, *right)
    found = _product(rows, columns, held, out)
    return Labelled(found.reshape([sizes[label] for label in labels]), labels)


def _as_it_lies(labels: Labels, x: Labelled) -> Labels:
    """Labels in the order in which they lie in memory, the outermost first."""
    stride = dict(zip(x.labels, x.tensor.stride(), strict=True))
    return tuple(sorted(labels, key=lambda label: -stride[label]))


def _in_order_of(x: Labelled, needed: Labels, sizes: dict[str, int]) -> Labels:
    """What is needed as it lies in a tensor; labels that it lacks before what follows them.

    So a result lies as its larger factor does, and who reads both reads them in one order.
    """
    order = list(_as_it_lies(tuple(label for label in x.labels if label in needed), x))
    following: str | None = None
    for label in reversed([label for label in needed if label in sizes]):
        if label not in order:
            order.insert(len(order) if following is None else order.index(following), label)
        following = label
    return tuple(order)


def _matrices(x: Labelled, batch: Labels, rows: Labels, columns: Labels) -> Tensor:
    """A tensor as a stack of matrices, or as one where the stack would have one.

    If it must be copied for that, what lies innermost stays so.
    """
    inner = _as_it_lies(tuple(k for k, size in x.sizes.items() if size > 1), x)[-1:]
    if set(inner) <= set(rows):
        return _stack(x, batch, columns, rows).mT
    return _stack(x, batch, rows, columns)


def _stack(x: Labelled, batch: Labels, rows: Labels, columns: Labels) -> Tensor:
    sizes = x.sizes
    tensor = x.tensor.permute([x.labels.index(label) for label in (*batch, *rows, *columns)])
    count, height, width = (prod(sizes[k] for k in part) for part in (batch, rows, columns))
    return tensor.reshape([height, width] if count == 1 else [count, height, width])


def _product(a: Tensor, b: Tensor, held: torch.dtype, out: torch.dtype) -> Tensor:
    """The matrix product: on a GPU, of low precision as it is, in the type that is wanted.

    Its sums are in float32, and rounded once. Few CPUs multiply low precision, and those that do
    not are slower at it than in float32.
    """
    multiply: Any = torch.mm if a.ndim == 2 else torch.bmm
    if a.device.type == "cuda" and a.dtype == b.dtype and a.dtype in LOW:
        if out == a.dtype and a.ndim == 2 and 1 in (len(a), b.shape[1]):
            return times_rows(a, b.mT) if len(a) == 1 else times_rows(b.mT, a).mT
        if out == a.dtype:
            return multiply(a, b)
        if held == torch.float32:
            return multiply(a, b, out_dtype=held)
    return multiply(a.to(held), b.to(held))
