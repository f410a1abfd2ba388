"""Spec strings of operations that move data: from what a Python caller writes to the operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.errors import GraphError, suggest
from eindecomp.graph.checks import window
from eindecomp.graph.infer import group_sizes
from eindecomp.graph.ops import Gather, Reshape, ScatterAdd, Slice
from eindecomp.lang.einsum import EinSum, Labels
from eindecomp.lang.scalar import Arg
from eindecomp.lang.spec import parse_groups, parse_spec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.graph.infer import Shape


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


def slice_op(labels: str, rank: int, ranges: Mapping[str, object], name: str) -> Slice | EinSum:
    """Read a slice: ranges by label; without any it is a map that does nothing."""
    _, found = parse_spec(f"{labels}->{labels}", (rank,))
    cuts = {label: window(cut, label) for label, cut in ranges.items()}
    for label in cuts:
        if label not in found:
            raise GraphError(f"slice: {name} has no label {label!r}{suggest(label, found)}")
    if not cuts:
        return EinSum((found,), found, Arg(0))
    kept = tuple(label for label in found if not isinstance(cuts.get(label), int))
    return Slice(kept, tuple(cuts.get(label) for label in found))


def reshape_op(spec: str, shape: Shape, sizes: Mapping[str, int], name: str) -> Reshape | EinSum:
    """Read a reshape such as `"b (h d) -> b h d"`; without groups it is a transpose."""
    before, after = parse_groups(spec)
    found = group_sizes(before, shape, sizes, name)
    if any(len(group) > 1 for group in (*before, *after)):
        return Reshape(before, after, found)
    labels, output = _flat(before), _flat(after)
    if set(labels) != set(output):
        raise GraphError(f"a reshape keeps its labels: {labels} is not {output}")
    return EinSum((labels,), output, Arg(0))


def _flat(groups: tuple[Labels, ...]) -> Labels:
    return tuple(label for group in groups for label in group)
