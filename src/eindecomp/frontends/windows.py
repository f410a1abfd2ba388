"""Dimensions read at computed places: parts, strides, padding and windows, as one vertex."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from eindecomp.frontends.draft import Dim, DimFactor, Draft, View
from eindecomp.frontends.formulas import as_formula, reindexed, rewired, typed_number
from eindecomp.graph.ops import Window
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.index import CLAMP, Index, Outside
from eindecomp.lang.scalar import Arg, Call, Const, Expr, call


@dataclass(frozen=True, slots=True)
class Along:
    """The places `(Σ times · number + offset) / divisor` along a dimension.

    Dimensions of these sizes take its place, each with the factor of its numbers.
    """

    sizes: tuple[int, ...]
    times: tuple[int, ...]
    offset: int = 0
    divisor: int = 1
    outside: Outside = None

    def index(self, labels: Sequence[str]) -> Index:
        """The same of labels; those of size 1, or whose numbers do not matter, are left out."""
        kept = zip(labels, self.sizes, self.times, strict=True)
        terms = tuple((label, times) for label, size, times in kept if size != 1 and times)
        return Index(terms, self.offset, self.divisor, self.outside)

    def within(self, size: int) -> Along:
        """The same without what lies outside a dimension of this size, if nothing there is read."""
        return replace(self, outside=None) if self.stays(size) else self

    def stays(self, size: int) -> bool:
        """Whether all places are whole numbers inside a dimension of this size."""
        ends = [times * (n - 1) for n, times in zip(self.sizes, self.times, strict=True)]
        low = self.offset + sum(end for end in ends if end < 0)
        return self.divisor == 1 and low >= 0 and low + sum(map(abs, ends)) < size

    def is_all(self, size: int) -> bool:
        """Whether it reads a dimension of this size as it is, but for others of size 1."""
        pairs = [pair for pair in zip(self.sizes, self.times, strict=True) if pair[0] != 1]
        is_same = pairs == [(size, 1)] or (size == 1 and self.sizes == (1,))
        return is_same and (self.offset, self.divisor) == (0, 1)


def around(size: int, low: int, high: int, between: int = 0, outside: Outside = 0) -> Along:
    """A dimension with so much before, after and between its elements; negative cuts off."""
    long = (size - 1) * (between + 1) + 1 if size else 0
    return Along((max(long + low + high, 0),), (1,), -low, between + 1, outside)


def frames(wide: Along, window: int, step: int, spread: int = 1) -> Along:
    """Windows along a dimension with what is around it: which of all that fit, and where in it."""
    count = (wide.sizes[0] - spread * (window - 1) - 1) // step + 1
    return replace(wide, sizes=(max(count, 0), window), times=(step, spread))


def looked(draft: Draft, array: View, by: Mapping[int, Along]) -> View:
    """The view with some axes of its vertex read at other places, which are factors in its stead.

    What the vertex itself reads through a window is read through both at once.
    """
    vertex = draft.graph[array.vertex]
    labels = {axis: [f"l{axis}p{k}" for k in range(len(along.sizes))] for axis, along in by.items()}
    sizes: dict[str, int] = {}
    index: list[Index] = []
    for axis, size in enumerate(vertex.shape):
        along, own = by.get(axis, Along((size,), (1,))), labels.get(axis, [f"l{axis}"])
        # An axis that is only read as it is stays one, of whatever size.
        read = along.within(size).index(own) if axis in by else Index(((f"l{axis}", 1),))
        sizes |= {x: n for x, n in zip(own, along.sizes, strict=True) if x in read.labels}
        index.append(read)
    # Shifted, a dimension is still the same; a part of it is one of its own.
    kept = [
        next((x for x, times in read.terms if (times, sizes[x]) == (1, size)), None)
        for read, size in zip(index, vertex.shape, strict=True)
    ]
    source, index, more = _through(draft, vertex, index, sizes)
    op = Window(tuple(sizes), tuple(sizes.values()), tuple(index))
    added = draft.graph.add(op, [source], draft.graph.fresh(draft.stem))
    made = draft.noted(added, [(vertex.name, kept), *more], {})
    factors: dict[str, Dim] = dict(zip(sizes, made.dims, strict=True))
    place = {axis: factors[f"l{axis}"] for axis in range(len(vertex.shape)) if axis not in by}
    for axis, own in labels.items():
        shown = zip(own, by[axis].sizes, strict=True)
        repeated = ((factors.get(x, (DimFactor(n),))) for x, n in shown if n != 1)
        place[axis] = tuple(factor for dim in repeated for factor in dim)
    return rewired(array, made, place)


def _through(
    draft: Draft, vertex: Vertex, index: list[Index], sizes: Mapping[str, int]
) -> tuple[str, list[Index], list[tuple[str, list[str | None]]]]:
    """What a vertex reads through a window itself, with the indices of both as one."""
    inner = vertex.op
    if not isinstance(inner, Window):
        return vertex.name, index, []
    source = draft.graph[vertex.inputs[0]]
    by = dict(zip(inner.output, zip(index, vertex.shape, strict=True), strict=True))
    one = [_one(each, by, sizes, n) for each, n in zip(inner.index, source.shape, strict=True)]
    known = [each for each in one if each is not None]
    outside = {each.outside for each in known} - {None, CLAMP}
    if len(known) < len(one) or len(outside) > 1:
        return vertex.name, index, []
    shape = zip(known, source.shape, strict=True)
    own = [each.alone if sizes.get(each.alone or "") == n else None for each, n in shape]
    return source.name, known, [(source.name, own)]


def _one(
    inner: Index, by: Mapping[str, tuple[Index, int]], sizes: Mapping[str, int], size: int
) -> Index | None:
    """An index of labels that are themselves read at places, if it is one again."""
    terms: dict[str, int] = {}
    offset, divisor, outside = inner.offset, inner.divisor, inner.outside
    for label, times in inner.terms:
        read, length = by[label]
        low, high = read.reach(sizes)
        if read.divisor > 1 or not 0 <= low <= high < length:
            # What lies beyond the first window must lie beyond the tensor, and look the same.
            is_all = inner.offset <= 0 and inner.offset + length >= size
            if (inner.terms, inner.divisor) != (((label, 1),), 1) or not is_all:
                return None
            if read.outside == CLAMP or inner.outside not in (None, read.outside):
                return None
            offset, divisor, outside = offset * read.divisor, read.divisor, read.outside
        offset += times * read.offset
        for own, factor in read.terms:
            if own in terms:
                return None
            terms[own] = times * factor
    return Index(tuple(terms.items()), offset, divisor, outside)


def looked_formula(draft: Draft, array: View, by: Mapping[int, Along]) -> View | None:
    """A formula with some dimensions read at other places, as a formula."""
    if as_formula(draft, array) is None:
        return None
    shape: list[int] = []
    indices: dict[int, Expr] = {}
    inside: list[tuple[Expr, Expr]] = []
    for place, size in enumerate(array.shape):
        along = by.get(place, Along((size,), (1,))).within(size)
        numbers = [Arg(k) for k in range(len(shape), len(shape) + len(along.sizes))]
        shape += along.sizes
        at = _sum(numbers, along)
        index = at if along.divisor == 1 else call("floordiv", at, along.divisor)
        if along.outside == CLAMP:
            index = call("min", call("max", index, 0), size - 1)
        elif along.outside is not None:
            holds = [call("ge", index, 0), call("lt", index, size)]
            if along.divisor > 1:
                holds.append(call("eq", call("mod", at, along.divisor), 0))
            assert not isinstance(along.outside, str)  # noqa: S101
            beside = typed_number(along.outside, array.dtype)
            inside.append((reduce(lambda a, b: call("and", a, b), holds), beside))
        indices[place] = index
    return reindexed(draft, array, shape, indices, inside)


def _sum(numbers: Sequence[Expr], along: Along) -> Expr:
    terms = [
        number if times == 1 else call("mul", number, times)
        for number, times in zip(numbers, along.times, strict=True)
        if times
    ]
    terms += [Const(along.offset)] if along.offset or not terms else []
    return reduce(lambda a, b: call("add", a, b), terms)


def affine(at: Expr) -> tuple[dict[int, int], int] | None:
    """The factor of each argument and what is added to them, if an expression is such a sum.

    >>> affine(call("sub", call("mul", Arg(0), 3), call("add", Arg(1), -2)))
    ({0: 3, 1: -1}, 2)
    """
    match at:
        case Call("int32" | "int64", (inner,)):
            return affine(inner)
        case Arg(k):
            return {k: 1}, 0
        case Const(int() as number):
            return {}, number
        case Call("neg", (inner,)):
            return _scaled(affine(inner), -1)
        case Call("mul", (inner, Const(int() as times)) | (Const(int() as times), inner)):
            return _scaled(affine(inner), times)
        case Call("add" | "sub" as op, (left, right)):
            first, second = affine(left), _scaled(affine(right), 1 if op == "add" else -1)
            if first is None or second is None:
                return None
            every = {*first[0], *second[0]}
            terms = {k: first[0].get(k, 0) + second[0].get(k, 0) for k in sorted(every)}
            return terms, first[1] + second[1]
        case _:
            return None


def _scaled(sum_: tuple[dict[int, int], int] | None, by: int) -> tuple[dict[int, int], int] | None:
    return None if sum_ is None else ({k: n * by for k, n in sum_[0].items()}, sum_[1] * by)
