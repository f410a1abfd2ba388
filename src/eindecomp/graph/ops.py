"""The kinds of vertex besides EinSum: inputs, fills, and moves of data that no join expresses.

Every kind knows its output labels; what its inputs must look like and what comes out is in `infer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, cast

from eindecomp.errors import GraphError
from eindecomp.lang.einsum import MAX_LABELS, EinSum, Labels
from eindecomp.lang.index import Index
from eindecomp.lang.names import CONSTANTS, check_label
from eindecomp.lang.scalar import Expr, Tuple, used_args


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor the user gives. Text: `input X[i: 10, j: 20]`."""

    output: Labels

    def __post_init__(self) -> None:
        _check_distinct(self.output)


@dataclass(frozen=True, slots=True)
class Fill:
    """A tensor made from its own indices: constants, iotas, masks.

    Text: `M[s: 8, t: 8] <- fill s >= t`. `value` reads the index along output label k as input k.
    Devices make the piece they need themselves; it never moves.
    """

    output: Labels
    value: Expr

    def __post_init__(self) -> None:
        _check_distinct(self.output)
        if not CONSTANTS.keys().isdisjoint(self.output):
            raise GraphError(f"a label of a fill has the name of a constant in {self.output}")
        if isinstance(self.value, Tuple):
            raise GraphError(f"a fill has one value, not {self.value}")
        if max(used_args(self.value), default=-1) >= len(self.output):
            raise GraphError(f"fill {self.value} reads more indices than it has labels")


@dataclass(frozen=True, slots=True)
class Gather:
    """Rows of a table at given indices. Text: `Z[b,s,a] <- E[ids[b,s], a]`.

    Inputs: the table, then the integer indices. `axis` is the table's dimension that is looked up.
    """

    table: Labels
    """The table's labels without the one that is looked up."""
    axis: int
    index: Labels
    output: Labels

    def __post_init__(self) -> None:
        _check_distinct(self.output, self.table, self.index)
        if not 0 <= self.axis <= len(self.table):
            raise GraphError(f"axis {self.axis} is not an axis of the table")
        if set(self.output) != {*self.table, *self.index}:
            raise GraphError(
                f"a gather of table labels {self.table} at {self.index} cannot yield {self.output}"
            )


@dataclass(frozen=True, slots=True)
class ScatterAdd:
    """Sums rows into a table at given indices. Text: `G[v: 100 = ids[b,s], a] <- sum D[b,s,a]`.

    Inputs: the rows, then the integer indices. Output: the labels `table` with the looked-up
    dimension, here called `row_label`, put in at `axis`. Rows at one index are summed; others are
    0.
    """

    source: Labels
    index: Labels
    table: Labels
    axis: int
    row_label: str

    def __post_init__(self) -> None:
        _check_distinct(self.source, self.index, self.output)
        if not 0 <= self.axis <= len(self.table):
            raise GraphError(f"axis {self.axis} is not an axis of the table")
        if not set(self.table) <= {*self.source, *self.index}:
            raise GraphError(f"a scatter of {self.source} cannot yield labels {self.table}")

    @property
    def output(self) -> Labels:
        """The table's labels."""
        return (*self.table[: self.axis], self.row_label, *self.table[self.axis :])


@dataclass(frozen=True, slots=True)
class Concat:
    """Tensors one after another along a label. Text: `Z[i,j] <- concat[j](X[i,j], Y[i,j])`."""

    output: Labels
    along: str

    def __post_init__(self) -> None:
        _check_distinct(self.output)
        if self.along not in self.output:
            raise GraphError(f"cannot concatenate along {self.along!r}: not in {self.output}")

    @property
    def axis(self) -> int:
        """The dimension that grows."""
        return self.output.index(self.along)


@dataclass(frozen=True, slots=True)
class Window:
    """Elements of a tensor at computed places. Text: `Z[b,w,r] <- X[b, 2*w + r - 1 else 0]`.

    There is one `index` for each dimension of the input, and a size for each label of the output.
    Slices are windows, `Z[i,j] <- X[i, j in 2:10, 0]`: of an index without labels, one element is
    read, and the dimension goes.
    """

    output: Labels
    sizes: tuple[int, ...]
    index: tuple[Index, ...]

    def __post_init__(self) -> None:
        _check_distinct(self.output)
        read = {label for index in self.index for label in index.labels}
        if read != set(self.output) or len(self.sizes) != len(self.output):
            raise GraphError(f"indices over {sorted(read)} cannot yield {self.output}")

    @property
    def by_label(self) -> dict[str, int]:
        """The size of each label."""
        return dict(zip(self.output, self.sizes, strict=True))

    def ranges(self, shape: Sequence[int]) -> tuple[Range, ...] | None:
        """The range along each dimension of an input of this shape; None if it is no slice."""
        ranges: list[Range] = []
        labels: list[str] = []
        for index, size in zip(self.index, shape, strict=True):
            match index:
                case Index((), at, 1, None):
                    ranges.append(at)
                case Index(((label, 1),), low, 1, None):
                    labels.append(label)
                    window = low, low + self.by_label[label]
                    ranges.append(None if window == (0, size) else window)
                case _:
                    return None
        return tuple(ranges) if tuple(labels) == self.output else None


Range = tuple[int, int] | int | None
"""A part of a dimension: a start and a stop; one index, whose dimension goes; or all of it."""


def sliced(output: Labels, ranges: Sequence[Range], shape: Sequence[int]) -> Window:
    """A range along each dimension of an input of this shape, or one index.

    >>> print(*sliced(("i",), (2, (3, 5)), (4, 6)).index)
    2 i + 3
    """
    if all(window is None for window in ranges):
        raise GraphError("a slice without a range is a map, which an EinSum does")
    kept = [window for window in ranges if not isinstance(window, int)]
    if len(kept) != len(output) or len(ranges) != len(shape):
        raise GraphError(f"a slice of {output} needs {len(output)} ranges")
    names, sizes, index = iter(output), list[int](), list[Index]()
    for window, size in zip(ranges, shape, strict=True):
        if isinstance(window, int):
            index.append(Index((), window))
            continue
        low, high = window or (0, size)
        sizes.append(high - low)
        index.append(Index(((next(names), 1),), low))
    return Window(output, tuple(sizes), tuple(index))


@dataclass(frozen=True, slots=True)
class Reshape:
    """Splits and merges labels. Text: `Z[b,h,d] <- X[b, (h: 8, d)]`, `Z[b, (h, d)] <- Y[b,h,d]`.

    Each dimension, of the input and of the output, is a group of labels, outermost first. `sizes`
    are those of all labels. A merged dimension's label in the output is its group's, joined by '_'.
    """

    input: tuple[Labels, ...]
    groups: tuple[Labels, ...]
    sizes: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        before = [label for group in self.input for label in group]
        after = [label for group in self.groups for label in group]
        _check_distinct(tuple(before), self.output)
        if sorted(before) != sorted(after):
            raise GraphError(f"a reshape keeps its labels: {before} is not {after}")
        if not all((*self.input, *self.groups)):
            raise GraphError("a reshape has at least one label in every dimension")
        if all(len(group) == 1 for group in (*self.input, *self.groups)):
            raise GraphError("a reshape without groups is a transpose, which an EinSum does")
        if [label for label, _ in self.sizes] != before:
            raise GraphError(f"a reshape needs the sizes of {before}, in that order")

    @property
    def output(self) -> Labels:
        """One label for each dimension of the output."""
        taken = {group[0] for group in self.groups if len(group) == 1}
        labels: list[str] = []
        for group in self.groups:
            label = "_".join(group)
            while len(group) > 1 and label in taken:
                label += "_"
            taken.add(label)
            labels.append(label)
        return tuple(labels)


Op = Input | EinSum | Fill | Gather | ScatterAdd | Concat | Window | Reshape


def _check_distinct(*tensors: Labels) -> None:
    for labels in tensors:
        for label in labels:
            check_label(label)
        if len(labels) > MAX_LABELS:
            raise GraphError(f"a tensor has at most {MAX_LABELS} dimensions, not {len(labels)}")
        if len(set(labels)) < len(labels):
            raise GraphError(f"a label appears twice in [{', '.join(labels)}]")


def relabel(op: Op, name: Callable[[str], str]) -> Op:
    """The same operation under other labels, which are all the strings that it holds."""

    def renamed(part: Any) -> Any:
        if isinstance(part, Index):
            return replace(part, terms=renamed(part.terms))
        if isinstance(part, tuple):
            return tuple(renamed(item) for item in cast("tuple[Any, ...]", part))
        return name(part) if isinstance(part, str) else part

    return replace(op, **{each.name: renamed(getattr(op, each.name)) for each in fields(op)})
