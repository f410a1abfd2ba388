"""Aggregations: sums of products by matrix products, others by torch's own reductions or a tree.

*Products*, two factors at a time: every label is a batch (both have it, and it is needed later),
left, right (one of them has it) or summed. Groups of labels are merged in the order in which they
lie in memory and the result is a permuted view, so that nothing is copied that is one matrix, or a
stack of them, as it lies. Low-precision factors are multiplied as they are, with sums in float32.

*Pieces*: a label space is worked through in pieces so that what is joined at once stays small. This
is the last resort of joins that no matrix product and no generated kernel computes. While a region
is traced it is left out for aggregations that the compiler fuses with their joins: those are never
in memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from eindecomp.graph.orders import Contraction, Step, steps_of
from eindecomp.kernels.torch.decoding import row_product, suits_rows
from eindecomp.kernels.torch.functions import extreme
from eindecomp.kernels.torch.tensors import CARRIED, LOW, aligned, carried, put_back, window
from eindecomp.lang.einsum import Labels
from eindecomp.lang.monoid import BUILTIN, Monoid

if TYPE_CHECKING:
    from eindecomp.kernels.torch.tensors import LabelBox

    States = tuple[Tensor, ...]

LIMIT = 2**28
"""The most bytes that are joined at once."""
_TRACER = "torch.fx.experimental.proxy_tensor"


def is_builtin(agg: Monoid) -> bool:
    """Whether torch has a reduction for an aggregation."""
    return BUILTIN.get(agg.name) == agg


def reduce_builtin(agg: Monoid, x: Tensor, axes: Sequence[int], identity: Tensor) -> Tensor:
    """Aggregate joined values of the state's type along dimensions."""
    if not axes:
        return x
    match agg.name:
        case "any":
            return torch.any(x, dim=tuple(axes))
        case "all":
            return torch.all(x, dim=tuple(axes))
        case "sum":
            return put_back(torch.sum(carried(x), dim=tuple(axes)), x.dtype)
        case "prod":
            product = carried(x)
            for axis in sorted(axes, reverse=True):
                product = torch.prod(product, dim=axis)
            return put_back(product, x.dtype)
        case _:
            return _extreme(agg.name, x, axes, identity)


def _extreme(name: str, x: Tensor, axes: Sequence[int], identity: Tensor) -> Tensor:
    """The largest or smallest, NaN if there is one; the identity where there is nothing."""
    left = _without(x.shape, axes)
    if any(x.shape[axis] == 0 for axis in axes):
        return identity.expand(left)
    function: Any = torch.amax if name == "max" else torch.amin
    if x.dtype in CARRIED:
        return extreme(partial(function, dim=tuple(axes)), x)
    return function(x, dim=tuple(axes))


def reduce_tree(
    values: States,
    axes: Sequence[int],
    combine: Callable[[States, States], States],
    identity: States,
) -> States:
    """Aggregate by halving, n values in log2(n) steps; the identity is combined with them once.

    One value alone has to go through `combine` too, for it may change what enters a state.
    """
    shape = values[0].shape
    left = _without(shape, axes)
    neutral = tuple(x.expand(left) for x in identity)
    if any(shape[axis] == 0 for axis in axes):
        return neutral
    for axis in sorted(axes, reverse=True):
        values = _halved(values, axis, combine)
    return combine(neutral, values)


def _halved(values: States, axis: int, combine: Callable[[States, States], States]) -> States:
    rest: States | None = None
    while (size := values[0].shape[axis]) > 1:
        half, odd = divmod(size, 2)
        if odd:
            last = _part(values, axis, size - 1, 1)
            rest = last if rest is None else combine(rest, last)
        values = combine(_part(values, axis, 0, half), _part(values, axis, half, half))
    values = values if rest is None else combine(values, rest)
    return tuple(x.squeeze(axis) for x in values)


def _part(values: States, axis: int, start: int, length: int) -> States:
    return tuple(x.narrow(axis, start, length) for x in values)


def _without(shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    return [size for axis, size in enumerate(shape) if axis not in axes]


def is_traced() -> bool:
    """Whether operations are recorded for a compiler rather than run."""
    tracer: Any = sys.modules.get(_TRACER)  # what was never imported traces nothing
    return torch.compiler.is_compiling() or (
        tracer is not None and tracer.get_proxy_mode() is not None
    )


def in_pieces(
    box: LabelBox,
    output: Labels,
    itemsize: int,
    compute: Callable[[LabelBox], States],
    combine: Callable[[States, States], States],
) -> States:
    """The states of a box of labels: `compute` gives those of a part, of at most `LIMIT` bytes."""
    points = prod(length for _, length in box.values())
    pieces = -(-points * itemsize // LIMIT)
    if pieces <= 1:
        return compute(box)
    # The longest label of the result, or an aggregated one where the result has none left.
    kept = [label for label in output if box[label][1] > 1]
    label = max(kept or box, key=lambda label: box[label][1])
    start, length = box[label]
    step = -(-length // min(pieces, length))
    states: list[States] = []
    for low in range(start, start + length, step):
        part = {**box, label: (low, min(step, start + length - low))}
        states.append(in_pieces(part, output, itemsize, compute, combine))
    if label not in output:
        return reduce(combine, states)
    axis = output.index(label)
    return tuple(torch.cat(parts, axis) for parts in zip(*states, strict=True))


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
    """The labels of two factors, by their roles in the product."""

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
    inputs = tuple(factor.labels for factor in factors)
    left = list(factors)
    for step in _cheapest_steps(inputs, output, tuple(sizes.items())):
        a, b = (left[k] for k in step)
        left = [x for k, x in enumerate(left) if k not in step]
        needed = dict.fromkeys((*output, *(label for x in left for label in x.labels)))
        left.append(_multiply(a, b, tuple(needed), held, held if left else out))
    [product] = left
    return _sum_out(product, output, held)


@lru_cache(maxsize=2**12)
def _cheapest_steps(
    inputs: tuple[Labels, ...], output: Labels, sizes: tuple[tuple[str, int], ...]
) -> list[Step]:
    contraction = Contraction(inputs, output, dict(sizes), paired=False)
    return steps_of(contraction.cheapest, len(inputs))


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
    """Whether matrix products compute it, rather than a multiplication and a sum.

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
    [total] = in_pieces(whole, kept, held.itemsize, compute, lambda x, y: (x[0] + y[0],))
    return Labelled(total, kept)


def _multiply_matrices(
    a: Labelled, b: Labelled, groups: Groups, held: torch.dtype, out: torch.dtype
) -> Labelled:
    sizes = a.sizes | b.sizes
    larger = max(a, b, key=lambda x: x.tensor.numel())
    batch, summed = (_as_it_lies(part, larger) for part in (groups.batch, groups.summed))
    left, right = _as_it_lies(groups.left, a), _as_it_lies(groups.right, b)
    rows, columns = _matrices(a, batch, left, summed), _matrices(b, batch, right, summed).mT
    labels = (*batch, *left, *right)
    product = _product(rows, columns, held, out)
    return Labelled(product.reshape([sizes[label] for label in labels]), labels)


def _as_it_lies(labels: Labels, x: Labelled) -> Labels:
    """Labels in the order in which they lie in memory, the outermost first."""
    stride = dict(zip(x.labels, x.tensor.stride(), strict=True))
    return tuple(sorted(labels, key=lambda label: -stride[label]))


def _in_order_of(x: Labelled, needed: Labels, sizes: dict[str, int]) -> Labels:
    """The needed labels in the order of a tensor's memory; one it lacks goes before its successor.

    So a result lies as its larger factor does, and whoever reads both reads them in one order.
    """
    order = list(_as_it_lies(tuple(label for label in x.labels if label in needed), x))
    following: str | None = None
    for label in reversed([label for label in needed if label in sizes]):
        if label not in order:
            order.insert(len(order) if following is None else order.index(following), label)
        following = label
    return tuple(order)


def _matrices(x: Labelled, batch: Labels, rows: Labels, columns: Labels) -> Tensor:
    """A tensor as a stack of matrices, or as one matrix where the stack would have only one.

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
    """The matrix product, in the wanted type; a GPU multiplies low precision as it is.

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
