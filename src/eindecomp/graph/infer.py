"""Shapes and types of vertices: what each kind of vertex makes of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from eindecomp.errors import GraphError, OperandError
from eindecomp.graph.ops import Concat, Fill, Gather, Input, Op, Reshape, ScatterAdd, Window
from eindecomp.graph.vertex import Shape, Vertex, show
from eindecomp.lang.dtypes import (
    INT64,
    DType,
    Kind,
    ScalarItems,
    ScalarTypes,
    Types,
    concrete,
    kind,
    promote,
    to_number,
)
from eindecomp.lang.einsum import EinSum, Labels, Sizes
from eindecomp.lang.index import CLAMP, Index
from eindecomp.lang.monoid import Monoid
from eindecomp.lang.scalar import Expr, used_scalars, values
from eindecomp.lang.scalar_types import result_type, type_of


@dataclass(frozen=True, slots=True)
class BareOperand:
    """An operand that is not a vertex, such as one without the dimension that is looked up."""

    name: str
    shape: Shape
    dtype: DType


Operand = Vertex | BareOperand


def infer(
    op: Op,
    operands: Sequence[Operand],
    sizes: Sizes,
    scalars: ScalarTypes,
    windows: Sequence[Window | None] = (),
) -> tuple[Shape, DType]:
    """The shape and type of a vertex; `sizes` are those of labels no input has.

    An EinSum reads operands through `windows`, if there are any.

    >>> from eindecomp.lang.dtypes import dtype
    >>> infer(Concat(("i",), "i"), [BareOperand("X", (2,), dtype("float32"))] * 2, {}, {})
    ((4,), dtype('float32'))
    """
    counts: dict[type, int] = {Gather: 2, ScatterAdd: 2, Window: 1, Reshape: 1}
    count = len(op.inputs) if isinstance(op, EinSum) else counts.get(type(op), len(operands))
    if len(operands) != count:
        raise GraphError(f"this {type(op).__name__} has {count} inputs, got {len(operands)}")
    match op:
        case EinSum():
            if windows:
                operands = [seen(*pair) for pair in zip(operands, windows, strict=True)]
            return _einsum(op, operands, sizes, scalars)
        case Fill():
            return _fill(op, sizes, scalars)
        case Gather():
            return _gather(op, operands)
        case ScatterAdd():
            return _scatter_add(op, operands, sizes)
        case Concat():
            return _concat(op, operands)
        case Window():
            made = seen(operands[0], op)
            return made.shape, made.dtype
        case Reshape():
            return _reshape(op, operands)
        case Input():
            raise GraphError("an input has the shape it is declared with")


def label_sizes(inputs: Sequence[Labels], operands: Sequence[Operand]) -> dict[str, int]:
    """The size of each label, from the shapes at its places; all must agree."""
    sizes: dict[str, int] = {}
    for k, (labels, operand) in enumerate(zip(inputs, operands, strict=True)):
        if len(labels) != len(operand.shape):
            raise OperandError(
                f"{show(operand.name, labels)} has {len(labels)} labels, but {operand.name} has "
                f"shape {operand.shape}",
                k,
            )
        for label, size in zip(labels, operand.shape, strict=True):
            if sizes.setdefault(label, size) != size:
                places = zip(inputs, operands, strict=True)
                before = next(show(o.name, own) for own, o in places if label in own)
                raise OperandError(
                    f"label {label!r} has size {sizes[label]} in {before} but {size} in "
                    f"{show(operand.name, labels)}",
                    k,
                )
    return sizes


def _pick(output: Labels, sizes: Sizes) -> Shape:
    for label in output:
        if label not in sizes:
            raise GraphError(f"label {label!r} is in no input and has no size: give it one")
    return tuple(sizes[label] for label in output)


def _einsum(
    op: EinSum, operands: Sequence[Operand], sizes: Sizes, scalars: ScalarTypes
) -> tuple[Shape, DType]:
    shape = _pick(op.output, {**sizes, **label_sizes(op.inputs, operands)})
    for name in used_scalars(op.join):
        if name not in scalars:
            raise GraphError(f"unknown scalar {name!r} in join {op.join}: declare it first")
    known = tuple((name, scalars[name]) for name in used_scalars(op.join))
    types = tuple(operand.dtype for operand in operands)
    return shape, _einsum_type(op.join, op.agg, types, known)


# Layers repeat, and every rewrite checks every vertex again.
@lru_cache(maxsize=2**14)
def _einsum_type(join: Expr, agg: Monoid | None, types: Types, scalars: ScalarItems) -> DType:
    known = dict(scalars)
    if agg is None:
        return result_type(join, types, known)
    joined = [type_of(value, types, known) for value in values(join)]
    for value in values(join):
        result_type(value, types, known)  # refuses literals that no integers hold
    return concrete(agg.result_type(joined, known))


def _fill(op: Fill, sizes: Sizes, scalars: ScalarTypes) -> tuple[Shape, DType]:
    for name in used_scalars(op.value):
        if name not in scalars:
            raise GraphError(
                f"unknown name {name!r} in fill: neither one of its labels nor a scalar"
            )
    return _pick(op.output, sizes), result_type(op.value, [INT64] * len(op.output), scalars)


def _check_index(index: Operand) -> None:
    if kind(index.dtype) is not Kind.INT:
        raise GraphError(f"indices are integers, but {index.name} has dtype {index.dtype}")


def _gather(op: Gather, operands: Sequence[Operand]) -> tuple[Shape, DType]:
    table, index = operands
    _check_index(index)
    if len(table.shape) != len(op.table) + 1:
        raise GraphError(
            f"{table.name} of shape {table.shape} does not have {len(op.table) + 1} dimensions"
        )
    rest = BareOperand(table.name, table.shape[: op.axis] + table.shape[op.axis + 1 :], table.dtype)
    return _pick(op.output, label_sizes([op.table, op.index], [rest, index])), table.dtype


def _scatter_add(op: ScatterAdd, operands: Sequence[Operand], sizes: Sizes) -> tuple[Shape, DType]:
    source, index = operands
    _check_index(index)
    known = label_sizes([op.source, op.index], operands)
    if op.row_label not in sizes:
        raise GraphError(f"the scattered dimension {op.row_label!r} needs a size")
    shape = _pick(op.output, known | {op.row_label: sizes[op.row_label]})
    return shape, concrete(to_number(source.dtype))


def _concat(op: Concat, operands: Sequence[Operand]) -> tuple[Shape, DType]:
    if not operands:
        raise GraphError("a concat needs at least one input")
    rest = tuple(label for label in op.output if label != op.along)
    dtype = operands[0].dtype
    others: list[BareOperand] = []
    for operand in operands:
        if len(operand.shape) != len(op.output):
            raise GraphError(
                f"{show(operand.name, op.output)} has {len(op.output)} labels, but {operand.name} "
                f"has shape {operand.shape}"
            )
        shape = operand.shape[: op.axis] + operand.shape[op.axis + 1 :]
        others.append(BareOperand(operand.name, shape, operand.dtype))
        dtype = concrete(promote(dtype, operand.dtype))
    sizes = label_sizes([rest] * len(operands), others)
    total = sum(operand.shape[op.axis] for operand in operands)
    return _pick(op.output, sizes | {op.along: total}), dtype


def seen(source: Operand, window: Window | None) -> Operand:
    """What is read of a tensor through a window: all of it without one."""
    if window is None:
        return source
    if len(window.index) != len(source.shape):
        named = ", ".join(map(str, window.index))
        raise GraphError(
            f"{source.name}[{named}] has {len(window.index)} indices, but {source.name} has shape "
            f"{source.shape}"
        )
    if 0 not in window.sizes:
        for index, size in zip(window.index, source.shape, strict=True):
            check_reach(index, size, window.by_label, source.name)
    return BareOperand(source.name, window.sizes, source.dtype)


def check_reach(index: Index, size: int, sizes: Sizes, name: str) -> None:
    """Refuse an index that may leave a dimension where nothing says what lies outside."""
    low, high = index.reach(sizes)
    if index.outside is None and not 0 <= low <= high < size:
        within = "" if not index.terms else f" for {_ranges(index, sizes)}"
        raise GraphError(
            f"index {index} of {name} goes from {low} to {high}{within}, outside 0 to {size - 1}: "
            f"say what lies there, as in '{index} else 0', or make the range smaller"
        )
    if index.outside == CLAMP and not size:
        raise GraphError(f"index {index} of {name}: a dimension of size 0 has no nearest element")


def _ranges(index: Index, sizes: Sizes) -> str:
    return ", ".join(f"{label} in 0:{sizes[label]}" for label in index.labels)


def _reshape(op: Reshape, operands: Sequence[Operand]) -> tuple[Shape, DType]:
    [source] = operands
    sizes = dict(op.sizes)
    before = tuple(prod(sizes[label] for label in group) for group in op.input)
    if before != source.shape:
        raise GraphError(f"{sizes} in {op.input} is not {source.name}'s shape {source.shape}")
    return tuple(prod(sizes[label] for label in group) for group in op.groups), source.dtype


def group_sizes(
    groups: Sequence[Labels], shape: Shape, given: Mapping[str, int], name: str
) -> tuple[tuple[str, int], ...]:
    """The size of every label of grouped dimensions; one label of a group may be left out.

    >>> group_sizes([("b",), ("h", "d")], (2, 12), {"h": 3}, "X")
    (('b', 2), ('h', 3), ('d', 4))
    """
    if len(groups) != len(shape):
        raise GraphError(f"{name} has shape {shape}, not {len(groups)} dimensions")
    for label in given:
        if not any(label in group for group in groups):
            raise GraphError(f"splitting {name}: no dimension has the label {label!r}")
    sizes: list[tuple[str, int]] = []
    for group, size in zip(groups, shape, strict=True):
        unknown = [label for label in group if label not in given]
        known = prod(given[label] for label in group if label in given)
        if len(unknown) > 1:
            raise GraphError(f"splitting {name}: give sizes to all but one of {', '.join(group)}")
        fits = known == size if not unknown else known > 0 and size % known == 0
        if not fits:
            parts = ", ".join(f"{label}: {given[label]}" for label in group if label in given)
            raise GraphError(
                f"splitting {name}: {parts} does not divide a dimension of size {size}"
            )
        sizes += [(label, given[label] if label in given else size // known) for label in group]
    return tuple(sizes)
