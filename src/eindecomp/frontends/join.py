"""EinSums over arrays without labels: aligning dimensions, and adding the vertex."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

from eindecomp.errors import ExpressionError, GraphError
from eindecomp.frontends.arrange import merged, split, without_axis
from eindecomp.frontends.formulas import formula, typed_number
from eindecomp.frontends.record import (
    Dim,
    Factor,
    Record,
    View,
    common_factors,
    has_axis,
    size_of,
    with_dim,
)
from eindecomp.graph.ops import Fill, Input
from eindecomp.lang.dtypes import Kind, Type, kind
from eindecomp.lang.monoid import Monoid
from eindecomp.lang.scalar import Arg, Expr, call, replace_args
from eindecomp.lang.scalar_types import type_of

_REPEATS = {"sum": "mul", "prod": "pow"}
"""What repeating elements comes to in these aggregations."""
_IDEMPOTENT = ("max", "min", "any", "all")


@dataclass(frozen=True, slots=True)
class Read:
    """An operand: an array, and a symbol for each of its dimensions."""

    array: View
    symbols: tuple[int, ...]

    @property
    def items(self) -> Iterator[tuple[int, Dim]]:
        """Each symbol with its dimension."""
        return zip(self.symbols, self.array.dims, strict=True)


def joined(
    record: Record,
    reads: Sequence[Read],
    output: Sequence[int],
    join: Expr,
    agg: str | Monoid | None,
) -> View:
    """Add an EinSum: equal symbols are aligned, those that are not in `output` are aggregated.

    Dimensions of size 1 are repeated where others of their symbol are longer.
    """
    sizes = _sizes(reads, output)
    reads, join = _without_numbers(reads, join)
    reads = [_without_ones(record, read, sizes) for read in reads]
    factors = _factors(record, reads, sizes)
    reads = [_refined(record, read, factors) for read in reads]
    dims = {symbol: _dim(symbol, size, reads, factors[symbol]) for symbol, size in sizes.items()}
    if agg is not None:
        repeats = [f.size for s, dim in dims.items() if s not in output for f in dim if not f.label]
        join = _repeated(join, prod(repeats), agg)
    labels = tuple(f.label for symbol in output for f in dims[symbol] if f.label)
    if not any(f.label for s, dim in dims.items() if s not in output for f in dim):
        agg = _needless(agg, reads, join)
    if agg is None:
        labels = _as_they_lie(reads, labels)
    made = _as_formula(record, reads, labels, join) if agg is None else None
    if made is None:
        operands = [(read.array.vertex, _labels(read)) for read in reads]
        made = record.einsum(labels, operands, join, agg) if reads else formula(record, (), join)
    parts = dict(zip(labels, made.dims, strict=True))
    shown = [
        [parts[part.label] if part.label else (Factor(part.size),) for part in dims[symbol]]
        for symbol in output
    ]
    return replace(made, dims=tuple(tuple(f for dim in own for f in dim) for own in shown))


def _as_they_lie(reads: Sequence[Read], labels: tuple[str, ...]) -> tuple[str, ...]:
    """The labels in the order in which an operand with all of them has them in memory."""
    for read in reads:
        if {*(own := _labels(read))} == {*labels}:
            return tuple(dict.fromkeys(own))
    return labels


def _needless(agg: str | Monoid | None, reads: Sequence[Read], join: Expr) -> str | Monoid | None:
    """No aggregation where there is nothing to aggregate, unless it turns truth into numbers."""
    name = agg if isinstance(agg, str) or agg is None else agg.name
    if name in ("max", "min"):
        return None
    if name not in ("sum", "prod"):
        return agg
    return agg if kind(joined_type(reads, join)) is Kind.BOOL else None


def joined_type(reads: Sequence[Read], join: Expr) -> Type:
    """The type of a join of these operands."""
    reads, join = _without_numbers(reads, join)
    return type_of(join, [read.array.dtype for read in reads], {})


def _without_numbers(reads: Sequence[Read], join: Expr) -> tuple[list[Read], Expr]:
    """The operands that are no numbers, and the join that has those in it."""
    real: list[Read] = []
    by: list[Expr] = []
    for read in reads:
        if read.array.number is None:
            by.append(Arg(len(real)))
            real.append(read)
        else:
            by.append(typed_number(read.array.number, read.array.dtype))
    return real, replace_args(join, by)


def _sizes(reads: Sequence[Read], output: Sequence[int]) -> dict[int, int]:
    """The size of every symbol."""
    found = dict.fromkeys(output, 1)
    for read in reads:
        for symbol, dim in read.items:
            size = size_of(dim)
            before = found.get(symbol, 1)
            if before != size and before != 1 and size != 1:
                shapes = ", ".join(str(each.array.shape) for each in reads)
                raise GraphError(f"arrays of shapes {shapes} do not align")
            found[symbol] = size if before == 1 else before
    return found


def _without_ones(record: Record, read: Read, sizes: Mapping[int, int]) -> Read:
    """Drop axes of size 1 where others of their symbol are longer."""
    array = read.array
    for place, (symbol, dim) in enumerate(read.items):
        if size_of(dim) == 1 and sizes[symbol] != 1:
            array = without_axis(record, array, place)
    return replace(read, array=array)


def _factors(
    record: Record, reads: Sequence[Read], sizes: Mapping[int, int]
) -> dict[int, tuple[int, ...]]:
    """Into which factors each symbol is cut, for all operands alike; none if all repeat."""
    found: dict[int, tuple[int, ...]] = {}
    for symbol, size in sizes.items():
        dims = [dim for read in reads for own, dim in read.items if own == symbol]
        if not any(map(has_axis, dims)):
            found[symbol] = ()
        elif size == 1:
            found[symbol] = (1,)
        elif any(_is_given(record, read, symbol) for read in reads):
            found[symbol] = (size,)
        else:
            found[symbol] = common_factors([dim for dim in dims if dim]) or (size,)
    return found


def _is_given(record: Record, read: Read, symbol: int) -> bool:
    """Whether an operand is an input with a symbol as one axis, which is better not split.

    Inputs may be wanted whole by every device: what is made of them would have to be moved there.
    """
    dims = [dim for own, dim in read.items if own == symbol]
    is_axis = any(len(dim) == 1 and dim[0].axis is not None for dim in dims)
    return is_axis and isinstance(record.graph[read.array.vertex].op, Input)


def _refined(record: Record, read: Read, factors: Mapping[int, tuple[int, ...]]) -> Read:
    """The operand with every dimension cut into the factors of its symbol, or only repeated."""
    array = read.array
    for place, symbol in enumerate(read.symbols):
        dim, wanted = array.dims[place], factors[symbol]
        if not has_axis(dim):
            array = with_dim(array, place, ())
        elif wanted == (size_of(dim),):
            array = merged(record, array, [place])
        else:
            array = split(record, array, place, wanted)
    return replace(read, array=array)


@dataclass(frozen=True, slots=True)
class _Part:
    """A factor of a symbol, with a label unless all operands only repeat it."""

    size: int
    label: str


def _dim(
    symbol: int, size: int, reads: Sequence[Read], factors: tuple[int, ...]
) -> tuple[_Part, ...]:
    """The factors of a symbol in the result."""
    if not factors:
        return (_Part(size, ""),) if size != 1 else ()
    held: set[int] = set()
    for read in reads:
        for own, dim in read.items:
            if own == symbol:
                held |= {k for k, factor in enumerate(dim) if factor.axis is not None}
    return tuple(_Part(n, f"s{symbol}f{k}" if k in held else "") for k, n in enumerate(factors))


def _repeated(join: Expr, times: int, agg: str | Monoid) -> Expr:
    """The join that accounts for aggregated elements that all operands only repeat."""
    name = agg if isinstance(agg, str) else agg.name
    if times == 1 or name in _IDEMPOTENT:
        return join
    if name not in _REPEATS:
        raise GraphError(f"aggregation {name!r} of elements that only repeat is not imported")
    return call(_REPEATS[name], join, times)


def _labels(read: Read) -> tuple[str, ...]:
    """The label of every axis of an operand's vertex."""
    of = {
        factor.axis: f"s{symbol}f{k}"
        for symbol, dim in read.items
        for k, factor in enumerate(dim)
        if factor.axis is not None
    }
    return tuple(of[axis] for axis in range(len(of)))


def _as_formula(
    record: Record, reads: Sequence[Read], labels: tuple[str, ...], join: Expr
) -> View | None:
    """The result as a formula, where all operands are: positions and masks stay formulas."""
    by: list[Expr] = []
    shape = dict.fromkeys(labels, 1)
    classes: dict[str, list[int]] = {label: [] for label in labels}
    for read in reads:
        vertex = record.graph[read.array.vertex]
        if not isinstance(vertex.op, Fill):
            return None
        own = _labels(read)
        value = replace_args(vertex.op.value, [Arg(labels.index(label)) for label in own])
        by.append(call(vertex.dtype.name, value))
        for label, size, dim in zip(own, vertex.shape, record.dims(vertex.name), strict=True):
            shape[label] = size
            classes[label].append(dim)
    known = [reduce(record.names.same, dims) if dims else None for dims in classes.values()]
    try:
        return formula(record, [*shape.values()], replace_args(join, by), known)
    except ExpressionError:
        return None  # too long for one formula
