"""What Python callers give to a graph's methods, read and checked.

So a mistake gets a message instead of a stack trace.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import currentframe
from itertools import combinations
from operator import index
from typing import TypeVar

import numpy as np

from eindecomp.errors import GraphError, LabelWarning, OperandError, quote, suggest
from eindecomp.graph.infer import group_sizes
from eindecomp.graph.ops import Fill, Gather, Input, Op, Reshape, ScatterAdd, Window, sliced
from eindecomp.graph.vertex import Shape, Vertex
from eindecomp.lang.einsum import EinSum, Sizes, parse_groups, parse_spec, product
from eindecomp.lang.monoid import BUILTIN, SUM, Monoid, find_monoid
from eindecomp.lang.scalar import Arg, Call, Const, Expr, used_args
from eindecomp.lang.text.resolve import parse_expr, parse_join

T = TypeVar("T")


def expect(value: object, kinds: type[T] | tuple[type[T], ...], what: str) -> T:
    """Return `value` if it is of the right kind.

    >>> expect(5, str, "a name")
    Traceback (most recent call last):
    eindecomp.errors.GraphError: expected a name, got 5
    """
    if not isinstance(value, kinds):
        raise GraphError(f"expected {what}, got {value!r}")
    return value


def whole_number(value: object, what: str) -> int:
    """Return `value` as an int if it is one, NumPy's included."""
    if isinstance(value, bool):
        raise GraphError(f"{what} must be a whole number, got {value!r}")
    try:
        return index(value)  # pyright: ignore[reportArgumentType]
    except TypeError:
        raise GraphError(f"{what} must be a whole number, got {value!r}") from None


def label_map(given: object) -> dict[str, int]:
    """Return sizes as a dict from labels to whole numbers."""
    if not isinstance(given, Mapping):
        raise GraphError(f"sizes must map labels to whole numbers, got {given!r}")
    sizes: dict[str, int] = {}
    for label, size in given.items():  # pyright: ignore[reportUnknownVariableType]
        name = expect(label, str, "a label")  # pyright: ignore[reportUnknownArgumentType]
        sizes[name] = whole_number(size, f"the size of {name!r}")  # pyright: ignore[reportUnknownArgumentType]
    return sizes


def join_of(given: object, arity: int, labels: Sequence[str], scalars: Container[str]) -> Expr:
    """Return a join from a string, an expression, or None for the product of all inputs.

    A label in a string stands for its own number, which comes as an input after the others.
    """
    if given is None:
        return product(arity)
    if isinstance(given, str):
        return parse_join(given, arity, scalars, labels)
    if isinstance(given, Expr):
        return given
    raise GraphError(f"expected a join, got {given!r}")


def fill_value(given: object, labels: Iterable[str], scalars: Container[str]) -> Expr:
    """Return the value of a fill from a string over its labels, an expression or a number."""
    if isinstance(given, str):
        return parse_expr(given, labels, scalars, "fill")
    if isinstance(given, bool | int | float | complex):
        return Const(given)
    if isinstance(given, Expr):
        return given
    raise GraphError(f"expected the value of a fill, got {given!r}")


def window(given: object, label: str) -> tuple[int, int] | int:
    """Return a range as a start and a stop, or one index."""
    match given:
        case int() | np.integer():  # pyright: ignore[reportUnknownVariableType]
            return whole_number(given, f"the index of {label!r}")
        case (start, stop):  # pyright: ignore[reportUnknownVariableType]
            what = f"an end of the range of {label!r}"
            return whole_number(start, what), whole_number(stop, what)  # pyright: ignore[reportUnknownArgumentType]
        case _:
            raise GraphError(
                f"a range must be a start and a stop, or one index, but {label!r} has {given!r}"
            )


# Aggregations


def monoid_of(agg: str | Monoid | None, own: Mapping[str, Monoid]) -> Monoid:
    """The aggregation of a name, which is the sum by default; `own` are the user's."""
    if agg is None:
        return SUM
    if isinstance(agg, Monoid):
        return agg
    known = {**BUILTIN, **own}
    monoid = find_monoid(expect(agg, str, "an aggregation or its name"), known)
    if monoid is None:
        hint = suggest(agg, known)
        raise GraphError(f"{agg!r} is not a known commutative monoid{hint}")
    return monoid


def register(monoid: Monoid, own: dict[str, Monoid]) -> None:
    """Add an aggregation to the user's own, unless it is built in or there already."""
    name = monoid.base_name
    if BUILTIN.get(monoid.name) == monoid:
        return
    if name in BUILTIN:
        raise GraphError(f"aggregation {name!r} is built in and cannot be redefined")
    before = own.get(name)
    if before == monoid:
        return
    if before is None or (before.name != name and before.select(0) == monoid.select(0)):
        own[name] = monoid
    elif before.select(0) != monoid.select(0) or (monoid.name == name and before != monoid):
        raise GraphError(f"aggregation {name!r} is defined in two ways")


# Ties


def check_tie(
    vertices: Mapping[str, Vertex],
    outputs: Iterable[str],
    ties: Mapping[str, str],
    name: str,
    result: str,
) -> None:
    """Refuse to tie an input to a result that cannot become it, beside the ties that are there.

    A result that is tied is an output, computed, and of the input's shape and type.
    """
    given, made = vertices.get(name), vertices.get(result)
    if given is None or not isinstance(given.op, Input):
        inputs = [v.name for v in vertices.values() if isinstance(v.op, Input)]
        raise OperandError(f"the graph has no input {quote(name)}{suggest(name[:60], inputs)}", 0)
    if name in ties:
        raise OperandError(f"{name!r} is tied already, to {ties[name]!r}", 0)
    known = list(outputs)
    if made is None or result not in known:
        hint = suggest(result[:60], known)
        raise OperandError(f"the graph has no output {quote(result)}{hint}", 1)
    if isinstance(made.op, Input | Fill):
        raise OperandError(f"{made} is not computed, so that {name!r} cannot be what it leaves", 1)
    if result in ties.values():
        raise OperandError(f"{result!r} is tied to two inputs", 1)
    if given.shape != made.shape or given.dtype != made.dtype:
        raise OperandError(
            f"{given} is {given.dtype} {list(given.shape)}, "
            f"but {made} is {made.dtype} {list(made.shape)}",
            1,
        )


# Labels that are aggregated alone in two operands: probably one of them was misspelt


def lone_labels(op: Op, sizes: Sizes) -> tuple[str, str] | None:
    """Two labels of one size that are aggregated, each in one operand only.

    Of `sum X[i,jj] * Y[j,k]` these are jj and j: it is the product of two sums. Operands are the
    factors of such a product. Of other expressions they are the tensors, if these have no label
    in common but each another one: `sum abs(X[i,d] - Y[j,d])` and `max X[i] + Y[j]` are over pairs.
    """
    if not isinstance(op, EinSum) or op.agg is None:
        return None
    factors = [used_args(factor) for factor in _factors(op.join)]
    is_product = op.agg == SUM and len(factors) > 1
    if not is_product:
        factors = [(k,) for k in used_args(op.join)]
    lone: dict[str, int] = {}
    for label in op.aggregated:
        has = [k for k, args in enumerate(factors) if any(label in op.inputs[a] for a in args)]
        count = max((op.inputs[a].count(label) for k in has for a in factors[k]), default=0)
        if len(has) == count == 1:  # a diagonal is meant
            lone[label] = has[0]
    for first, second in combinations(lone, 2):
        if lone[first] == lone[second] or not sizes[first] == sizes[second] > 1:
            continue
        one, other = ({*op.inputs[factors[lone[k]][0]]} for k in (first, second))
        if is_product or (one.isdisjoint(other) and min(len(one), len(other)) > 1):
            return first, second
    return None


def warn_of_lone_labels(op: Op, sizes: Sizes, told: Callable[[str, str], str]) -> None:
    """Warn of such labels; `told` adds to a message where the label stands."""
    pair = lone_labels(op, sizes)
    if pair is None:
        return
    first, second = pair
    message = (
        f"labels {first!r} and {second!r}, both of size {sizes[first]}, are aggregated alone, each "
        f"in one operand: is one misspelt? If not, aggregate each first, or ignore LabelWarning"
    )
    # The line that is to blame is the first one outside of this package.
    frame, depth = currentframe(), 1
    while frame is not None and frame.f_globals["__name__"].startswith("eindecomp."):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(told(message, first), LabelWarning, stacklevel=depth)


@contextmanager
def as_written() -> Generator[None]:
    """Within it no label is taken for misspelt: the text was written by a program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelWarning)
        yield


def _factors(join: Expr) -> Iterator[Expr]:
    match join:
        case Call("mul" | "div" | "neg", args):
            for arg in args:
                yield from _factors(arg)
        case _:
            yield join


# Spec strings: to the operation, or to the parts of an EinSum


def gather_op(spec: str, ranks: tuple[int, ...]) -> Gather:
    """Read a lookup such as `"v a, b s -> b s a"`: the label that goes missing is looked up.

    >>> gather_op("v a, b s -> b s a", (2, 2))
    Gather(table=('a',), axis=0, index=('b', 's'), output=('b', 's', 'a'))
    """
    (rows, at), output = parse_spec(spec, ranks)
    looked_up = [label for label in rows if label not in output]
    if len(looked_up) != 1:
        raise GraphError(f"gather {spec!r}: one label of the table must be missing from the output")
    axis = rows.index(looked_up[0])
    return Gather(rows[:axis] + rows[axis + 1 :], axis, at, output)


def scatter_op(spec: str, ranks: tuple[int, ...]) -> ScatterAdd:
    """Read a scatter such as `"b s a, b s -> v a"`: the new label is scattered into."""
    (rows, at), output = parse_spec(spec, ranks)
    new = [label for label in output if label not in (*rows, *at)]
    if len(new) != 1:
        raise GraphError(f"scatter {spec!r}: one label of the output must be new")
    axis = output.index(new[0])
    return ScatterAdd(rows, at, output[:axis] + output[axis + 1 :], axis, new[0])


def slice_op(labels: str, shape: Shape, ranges: Mapping[str, object], name: str) -> Window | EinSum:
    """Read a slice: ranges by label; without any it is a map that does nothing."""
    _, output = parse_spec(f"{labels}->{labels}", (len(shape),))
    cuts = {label: window(cut, label) for label, cut in ranges.items()}
    for label in cuts:
        if label not in output:
            raise GraphError(f"slice: {name} has no label {label!r}{suggest(label, output)}")
    if not cuts:
        return EinSum((output,), output, Arg(0))
    kept = tuple(label for label in output if not isinstance(cuts.get(label), int))
    for label, size in zip(output, shape, strict=True):
        cut = cuts.get(label, (0, size))
        low, high = (cut, cut + 1) if isinstance(cut, int) else cut
        if isinstance(cut, int) and not 0 <= cut < size:
            raise GraphError(f"index {cut} of {name} is outside 0 to {size - 1}")
        if not 0 <= low <= high <= size:
            raise GraphError(f"{label} in {low}:{high} is not a range within {name}'s size {size}")
    return sliced(kept, [cuts.get(label) for label in output], shape)


def reshape_op(spec: str, shape: Shape, sizes: Sizes, name: str) -> Reshape | EinSum:
    """Read a reshape such as `"b (h d) -> b h d"`; without groups it is a transpose."""
    before, after = parse_groups(spec)
    every_size = group_sizes(before, shape, sizes, name)
    if any(len(group) > 1 for group in (*before, *after)):
        return Reshape(before, after, every_size)
    labels, output = (tuple(label for (label,) in groups) for groups in (before, after))
    if set(labels) != set(output):
        raise GraphError(f"a reshape keeps its labels: {labels} is not {output}")
    return EinSum((labels,), output, Arg(0))
