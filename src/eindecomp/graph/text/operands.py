"""References whose indices are more than labels: windows, lookups and groups become vertices."""

from __future__ import annotations

from collections.abc import Sequence

from eindecomp.graph.infer import group_sizes
from eindecomp.graph.ops import Gather, Reshape
from eindecomp.graph.text.scope import Scope
from eindecomp.graph.text.windows import add_window
from eindecomp.lang.einsum import Labels, Operand
from eindecomp.lang.scalar import Arg
from eindecomp.lang.text import syntax as s


def to_plain(scope: Scope, ref: s.Ref, stem: str) -> Operand:
    """The name and labels of a reference's value, after working off its special indices.

    Vertices that are added for them are named after `stem`.
    """
    scope.tensor(ref)
    while not s.is_plain(ref):
        name = scope.graph.fresh(f"{stem}_1")
        with scope.at(ref.at):
            if s.has(ref, s.Window, s.Fixed, s.Affine):
                ref = add_window(scope, ref, name)
            elif s.has(ref, s.Group):
                ref = _add_split(scope, ref, name)
            else:
                return name, add_gather(scope, ref, None, name)
    return ref.name, tuple(s.label_of(item) for item in ref.items)


def to_distinct(scope: Scope, name: str, labels: Labels, stem: str) -> Operand:
    """The same tensor with each label once: of a label that appears twice, the diagonal."""
    once = tuple(dict.fromkeys(labels))
    if once == labels:
        return name, labels
    diagonal = scope.graph.fresh(f"{stem}_1")
    return scope.graph.add_einsum(once, [(name, labels)], Arg(0), name=diagonal).name, once


def _add_split(scope: Scope, ref: s.Ref, name: str) -> s.Ref:
    # A lookup beside the split is dealt with afterwards: any label does for now.
    items = [
        s.Label(f"_{k}", item.ref.at) if isinstance(item, s.Lookup) else item
        for k, item in enumerate(ref.items)
    ]
    target = s.Ref(name, tuple(_labels_in(items)), ref.at)
    add_reshape(scope, target, ref.name, [s.group_of(item) for item in items], ref)
    return s.Ref(name, tuple(_labels_in(ref.items)), ref.at)


def _labels_in(items: Sequence[s.Item]) -> list[s.Item]:
    return [label for i in items for label in (i.labels if isinstance(i, s.Group) else (i,))]


def add_gather(scope: Scope, ref: s.Ref, output: Labels | None, name: str) -> Labels:
    """Add the gather of a reference with one lookup, and return its labels."""
    lookups = [(k, item) for k, item in enumerate(ref.items) if isinstance(item, s.Lookup)]
    if len(lookups) > 1:
        raise scope.error("a tensor is looked up along one dimension at a time", ref.at)
    [(axis, lookup)] = lookups
    index, at = to_distinct(scope, *to_plain(scope, lookup.ref, name), name)
    rest = [s.label_of(item) for k, item in enumerate(ref.items) if k != axis]
    if output is None:
        output = tuple(dict.fromkeys([*rest[:axis], *at, *rest[axis:]]))
    op = Gather(tuple(rest), axis, at, output)
    scope.graph.add(op, [scope.tensor(ref).name, index], name)
    return output


def add_reshape(
    scope: Scope, target: s.Ref, source: str, groups: Sequence[Labels], written: s.Ref
) -> None:
    """Add a split or merge; sizes are those written in `written` or the target, else declared."""
    given: dict[str, int] = {}
    for item in (*written.items, *target.items):
        for label in item.labels if isinstance(item, s.Group) else (item,):
            if isinstance(label, s.Label) and label.size is not None:
                given[label.name] = label.size
    for group in groups:
        unknown = [label for label in group if label not in given]
        if len(unknown) > 1:
            declared = (n for n in unknown if len(scope.sizes.get(n, ())) == 1)
            given |= {n: scope.size(n, written.at) for n in declared}
    sizes = group_sizes(groups, scope.graph[source].shape, given, source)
    after = tuple(s.group_of(item) for item in target.items)
    scope.graph.add(Reshape(tuple(groups), after, sizes), [source], target.name)
