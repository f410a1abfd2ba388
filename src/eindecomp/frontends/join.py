"""EinSums over arrays without labels: aligning dimensions, and adding the vertex."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

from eindecomp.errors import ExpressionError, GraphError
from eindecomp.frontends.arrange import merged, split, without_axis
from eindecomp.frontends.draft import (
    Dim,
    DimFactor,
    Draft,
    View,
    common_factors,
    has_axis,
    size_of,
    with_dim,
)
from eindecomp.frontends.formulas import formula, typed_number
from eindecomp.graph.ops import Fill, Input
from eindecomp.lang.dtypes import Kind, Type, kind
from eindecomp.lang.monoid import Monoid
from eindecomp.lang.scalar import Arg, Expr, call, replace_args
from eindecomp.lang.scalar_types import type_of

Agg = str | Monoid
_REPEATS = {"sum": "mul", "prod": "pow"}
"""What repeating elements comes to in these aggregations."""
_IDEMPOTENT = ("max", "min", "any", "all")


Factors = dict[int, tuple[int, ...]]
"""For each symbol the sizes into which it is cut."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """An operand: an array, and a symbol for each of its dimensions."""

    array: View
    symbols: tuple[int, ...]

    @property
    def items(self) -> Iterator[tuple[int, Dim]]:
        """Each symbol with its dimension."""
        return zip(self.symbols, self.array.dims, strict=True)


def joined(
    draft: Draft, reads: Sequence[Indexed], output: Sequence[int], join: Expr, agg: Agg | None
) -> View:
    """Add an EinSum: equal symbols are aligned, those that are not in `output` are aggregated.

    Dimensions of size 1 are repeated where others of their symbol are longer.
    """
    sizes = _sizes(reads, output)
    reads, join = _without_numbers(reads, join)
    reads = [_without_ones(draft, read, sizes) for read in reads]
    factors = _factors(draft, reads, sizes)
    reads = [_refined(draft, read, factors) for read in reads]
    dims = {symbol: _dim(symbol, size, reads, factors[symbol]) for symbol, size in sizes.items()}
    if agg is not None:
        repeats = [f.size for s, dim in dims.items() if s not in output for f in dim if not f.label]
        join = _repeated(join, prod(repeats), agg)
    labels = tuple(f.label for symbol in output for f in dims[symbol] if f.label)
    is_single = not any(f.label for s, dim in dims.items() if s not in output for f in dim)
    if agg is not None and is_single and _is_needless(agg, reads, join):
        agg = None
    if agg is None:
        labels = _as_they_lie(reads, labels)
    made = _as_formula(draft, reads, labels, join) if agg is None else None
    if made is None:
        operands = [(read.array.vertex, _labels(read)) for read in reads]
        made = draft.einsum(labels, operands, join, agg) if reads else formula(draft, (), join)
    parts = dict(zip(labels, made.dims, strict=True))
    shown = [
        [parts[part.label] if part.label else (DimFactor(part.size),) for part in dims[symbol]]
        for symbol in output
    ]
    return replace(made, dims=tuple(tuple(f for dim in own for f in dim) for own in shown))


def _as_they_lie(reads: Sequence[Indexed], labels: tuple[str, ...]) -> tuple[str, ...]:
    """The labels in the order in which an operand with all of them has them in memory."""
    for read in reads:
        if {*(own := _labels(read))} == {*labels}:
            return tuple(dict.fromkeys(own))
    return labels


def _is_needless(agg: Agg, reads: Sequence[Indexed], join: Expr) -> bool:
    """Whether an aggregation of single elements changes none: it may turn truth into numbers."""
    name = agg if isinstance(agg, str) else agg.name
    if name in ("sum", "prod"):
        return kind(joined_type(reads, join)) is not Kind.BOOL
    return name in ("max", "min")


def joined_type(reads: Sequence[Indexed], join: Expr) -> Type:
    """The type of a join of these operands."""
    reads, join = _without_numbers(reads, join)
    return type_of(join, [read.array.dtype for read in reads], {})


def _without_numbers(reads: Sequence[Indexed], join: Expr) -> tuple[list[Indexed], Expr]:
    """The operands that are not numbers, and the join with the numbers written into it."""
    real: list[Indexed] = []
    by: list[Expr] = []
    for read in reads:
        if read.array.number is None:
            by.append(Arg(len(real)))
            real.append(read)
        else:
            by.append(typed_number(read.array.number, read.array.dtype))
    return real, replace_args(join, by)


def _sizes(reads: Sequence[Indexed], output: Sequence[int]) -> dict[int, int]:
    """The size of every symbol."""
    sizes = dict.fromkeys(output, 1)
    for read in reads:
        for symbol, dim in read.items:
            size = size_of(dim)
            before = sizes.get(symbol, 1)
            if before != size and before != 1 and size != 1:
                shapes = ", ".join(str(each.array.shape) for each in reads)
                raise GraphError(f"arrays of shapes {shapes} do not align")
            sizes[symbol] = size if before == 1 else before
    return sizes


def _without_ones(draft: Draft, read: Indexed, sizes: Mapping[int, int]) -> Indexed:
    """Drop axes of size 1 where others of their symbol are longer."""
    array = read.array
    for place, (symbol, dim) in enumerate(read.items):
        if size_of(dim) == 1 and sizes[symbol] != 1:
            array = without_axis(draft, array, place)
    return replace(read, array=array)


def _factors(draft: Draft, reads: Sequence[Indexed], sizes: Mapping[int, int]) -> Factors:
    """The factors into which all operands cut each symbol; none if all only repeat it."""
    factors: Factors = {}
    for symbol, size in sizes.items():
        dims = [dim for read in reads for own, dim in read.items if own == symbol]
        if not any(map(has_axis, dims)):
            factors[symbol] = ()
        elif size == 1:
            factors[symbol] = (1,)
        elif any(_is_given(draft, read, symbol) for read in reads):
            factors[symbol] = (size,)
        else:
            factors[symbol] = common_factors([dim for dim in dims if dim]) or (size,)
    return factors


def _is_given(draft: Draft, read: Indexed, symbol: int) -> bool:
    """Whether an operand is an input with a symbol as one axis, which is better not split.

    Inputs may be wanted whole by every device: what is made of them would have to be moved there.
    """
    dims = [dim for own, dim in read.items if own == symbol]
    is_axis = any(len(dim) == 1 and dim[0].axis is not None for dim in dims)
    return is_axis and isinstance(draft.graph[read.array.vertex].op, Input)


def _refined(draft: Draft, read: Indexed, factors: Factors) -> Indexed:
    """The operand with every dimension cut into the factors of its symbol, or only repeated."""
    array = read.array
    for place, symbol in enumerate(read.symbols):
        dim, wanted = array.dims[place], factors[symbol]
        if not has_axis(dim):
            array = with_dim(array, place, ())
        elif wanted == (size_of(dim),):
            array = merged(draft, array, [place])
        else:
            array = split(draft, array, place, wanted)
    return replace(read, array=array)


@dataclass(frozen=True, slots=True)
class _Part:
    """A factor of a symbol, with a label unless all operands only repeat it."""

    size: int
    label: str


def _dim(
    symbol: int, size: int, reads: Sequence[Indexed], factors: tuple[int, ...]
) -> tuple[_Part, ...]:
    """The factors of a symbol in the result."""
    if not factors:
        return (_Part(size, ""),) if size != 1 else ()
    dims = [dim for read in reads for own, dim in read.items if own == symbol]
    held = {k for dim in dims for k, factor in enumerate(dim) if factor.axis is not None}
    return tuple(_Part(n, f"s{symbol}f{k}" if k in held else "") for k, n in enumerate(factors))


def _repeated(join: Expr, times: int, agg: Agg) -> Expr:
    """The join that accounts for aggregated elements that all operands only repeat."""
    name = agg if isinstance(agg, str) else agg.name
    if times == 1 or name in _IDEMPOTENT:
        return join
    if name not in _REPEATS:
        raise GraphError(f"aggregation {name!r} of elements that only repeat is not imported")
    return call(_REPEATS[name], join, times)


def _labels(read: Indexed) -> tuple[str, ...]:
    """The label of every axis of an operand's vertex."""
    of = {
        factor.axis: f"s{symbol}f{k}"
        for symbol, dim in read.items
        for k, factor in enumerate(dim)
        if factor.axis is not None
    }
    return tuple(of[axis] for axis in range(len(of)))


def _as_formula(
    draft: Draft, reads: Sequence[Indexed], labels: tuple[str, ...], join: Expr
) -> View | None:
    """The result as a formula, where all operands are: positions and masks stay formulas."""
    by: list[Expr] = []
    shape = dict.fromkeys(labels, 1)
    classes: dict[str, list[int]] = {label: [] for label in labels}
    for read in reads:
        vertex = draft.graph[read.array.vertex]
        if not isinstance(vertex.op, Fill):
            return None
        own = _labels(read)
        value = replace_args(vertex.op.value, [Arg(labels.index(label)) for label in own])
        by.append(call(vertex.dtype.name, value))
        for label, size, dim in zip(own, vertex.shape, draft.dims(vertex.name), strict=True):
            shape[label] = size
            classes[label].append(dim)
    known = [reduce(draft.names.same, dims) if dims else None for dims in classes.values()]
    try:
        return formula(draft, [*shape.values()], replace_args(join, by), known)
    except ExpressionError:
        return None  # too long for one formula
