"""Computed places in a text: `X[b, 2*w + r - 1 else 0]`, and results that land at such places.

What wraps around is read as several windows that are 0 elsewhere. A result's places are solved for
a label of what is summed: `G[x: 100 = 2*w + r] <- sum D[w] * K[r]` reads `D[(x - r) / 2]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import isfinite

from eindecomp.graph.infer import check_reach
from eindecomp.graph.ops import Window
from eindecomp.graph.text.scope import Scope
from eindecomp.graph.vertex import unused_label
from eindecomp.lang.dtypes import BOOL
from eindecomp.lang.index import Index, index_of
from eindecomp.lang.monoid import Monoid
from eindecomp.lang.text import syntax as s

MOST_TURNS = 64
"""How often an index may wrap around."""


def note_sizes(scope: Scope, statement: s.Assign, over: Sequence[s.Item] = ()) -> None:
    """Note the sizes of a statement's labels, as far as tensors and the statement tell them.

    A label that only computed places have is as long as it can be.
    """
    terms = statement.rhs.terms if isinstance(statement.rhs, s.Aggregate) else ()
    args = statement.rhs.args if isinstance(statement.rhs, s.MacroCall) else ()
    refs = [*s.refs_of((*terms, *args)), *statement.extra]
    scope.known = {}
    if not any(s.has(ref, s.Affine, s.Placed) for ref in (*refs, statement.target)):
        return
    scope.known = {
        item.name: item.size
        for item in (*statement.target.items, *over)
        if isinstance(item, s.Label) and item.size is not None
    }
    for ref in refs:
        scope.known = scope.sizes_in(ref) | scope.known
    longest: dict[str, int] = {}
    for ref in refs:
        for item, size in zip(ref.items, scope.tensor(ref).shape, strict=True):
            if isinstance(item, s.Affine):
                for label, most in _longest(scope, item, size).items():
                    longest[label] = min(most, longest.get(label, most))
    scope.known |= longest


def _longest(scope: Scope, item: s.Affine, size: int) -> dict[str, int]:
    """The size of a place's only label that has none yet, if the place tells it."""
    index = place_of(scope, item)
    new = [term for term in index.terms if scope.label_size(term[0]) is None]
    if len(new) != 1 or index.divisor > 1:
        return {}
    [(label, times)] = new
    if item.outside is not None:
        return {label: size} if len(index.terms) == 1 and abs(times) == 1 else {}
    rest = replace(index, terms=tuple(term for term in index.terms if term[0] != label))
    low, high = rest.reach({x: scope.label_size(x) or 0 for x in rest.labels})
    room = size - 1 - high if times > 0 else low
    return {label: room // abs(times) + 1} if room >= 0 else {}


def place_of(scope: Scope, item: s.Affine) -> Index:
    """The index that a place is; one that wraps around, or that ⊕ fills, has 0 outside."""
    terms: dict[str, int] = {}
    offset = 0
    for times, names in item.products:
        labels = [name for name in names if not name.startswith("size(")]
        for name in names:
            if name.startswith("size("):
                times *= scope.size_of(name[5:-1], item.at)
        if len(labels) > 1:
            told = "*".join(labels)
            raise scope.error(f"a place is a sum of labels: {told} multiplies two", item.at)
        if labels:
            terms[labels[0]] = terms.get(labels[0], 0) + times
        else:
            offset += times
    outside = 0 if item.outside in ("wrap", "identity") else item.outside
    with scope.at(item.at):
        return index_of(terms, offset, item.divisor, outside)


def add_window(scope: Scope, ref: s.Ref, name: str, output: Sequence[str] = ()) -> s.Ref:
    """Add the window of a reference, and return it with the indices that are left.

    A group or a lookup beside it is dealt with afterwards: any label does for now.
    """
    source = scope.tensor(ref)
    index: list[Index] = []
    sizes: dict[str, int] = {}
    left: dict[str, s.Item] = {}
    for k, (item, size) in enumerate(zip(ref.items, source.shape, strict=True)):
        match item:
            case s.Label(label):
                index.append(Index(((label, 1),)))
                sizes.setdefault(label, size)
            case s.Window(label, start, stop):
                if not 0 <= start <= stop <= size:
                    told = f"{label} in {start}:{stop} is not a range within {ref.name}'s size"
                    raise scope.error(f"{told} {size}", ref.at)
                index.append(Index(((label, 1),), start))
                sizes.setdefault(label, stop - start)
            case s.Fixed(number, at):
                if not -size <= number < size:
                    told = f"index {number} of {ref.name} is outside 0 to {size - 1}"
                    raise scope.error(told, at)
                index.append(Index((), number % size))
            case s.Affine():
                index.append(place_of(scope, item))
                for label in index[-1].labels:
                    sizes.setdefault(label, scope.size_of(label, item.at))
                with scope.at(item.at):
                    check_reach(index[-1], size, sizes, ref.name)
            case _:
                label = f"_{k}"
                index.append(Index(((label, 1),)))
                sizes[label], left[label] = size, item
        for label in index[-1].labels:
            left.setdefault(label, s.Label(label, item.at))
    labels = tuple(output or left)
    for label in labels:
        if label not in left:
            raise scope.error(f"label {label!r} moves no place of {ref.name}", ref.at)
    window = Window(labels, tuple(sizes[label] for label in labels), tuple(index))
    scope.graph.add(window, [source.name], name)
    return s.Ref(name, tuple(left[label] for label in labels), ref.at)


# What lies outside


def filled(scope: Scope, terms: Sequence[s.Term], agg: Monoid | None) -> tuple[s.Term, ...]:
    """Terms in which what wraps around is a sum of windows, and what ⊕ fills has its identity.

    A label that moves a place, and is shorter than a dimension that it is alone, begins at 0 there.
    """
    places = (i for ref in s.refs_of(terms) for i in ref.items if isinstance(i, s.Affine))
    moving = {label for item in places for label in item.names}

    def begun(item: s.Item, size: int) -> s.Item:
        if isinstance(item, s.Label) and item.name in moving:
            known = scope.label_size(item.name) or size
            return s.Window(item.name, 0, known, item.at) if known < size else item
        return item

    def ref_of(ref: s.Ref) -> s.Term:
        own = ref
        if moving:
            pairs = zip(ref.items, scope.tensor(ref).shape, strict=True)
            own = replace(ref, items=tuple(begun(*pair) for pair in pairs))
        if any(_says(item, "identity") for item in ref.items):
            own = _with_identity(scope, own, _is_whole(terms, ref, agg), agg)
        return _wrapped(scope, own) if any(_says(item, "wrap") for item in ref.items) else own

    def term_of(term: s.Term) -> s.Term:
        match term:
            case s.Ref():
                return ref_of(term)
            case s.Apply(op, args, at):
                return s.Apply(op, tuple(map(term_of, args)), at)
            case _:
                return term

    return tuple(map(term_of, terms))


def _says(item: s.Item, outside: str) -> bool:
    return isinstance(item, s.Affine) and item.outside == outside


def _wrapped(scope: Scope, ref: s.Ref) -> s.Term:
    """The sum of a reference's windows, one for each turn that its places take."""
    ways: list[list[s.Item]] = []
    for item, size in zip(ref.items, scope.tensor(ref).shape, strict=True):
        if not isinstance(item, s.Affine) or item.outside != "wrap":
            ways.append([item])
            continue
        index = place_of(scope, item)
        low, high = index.reach({x: scope.size_of(x, item.at) for x in index.labels})
        turns = range(low // max(size, 1), high // max(size, 1) + 1)
        if not size or item.divisor > 1 or len(turns) > MOST_TURNS:
            raise scope.error(f"this index cannot wrap around a size of {size}", item.at)
        whole = [(*item.products, (-turn * size, ())) for turn in turns]
        ways.append([replace(item, products=own, outside=0) for own in whole])
    op = "or" if scope.graph[ref.name].dtype == BOOL else "add"
    parts = [_counted_once(ref, items, ways) for items in product(*ways)]
    total: s.Term = parts[0]
    for part in parts[1:]:
        total = s.Apply(op, (total, part), ref.at)
    return total


def _counted_once(ref: s.Ref, items: Sequence[s.Item], ways: Sequence[list[s.Item]]) -> s.Ref:
    """One of those windows: of what lies outside of one dimension only the first turn has any.

    A later dimension that is outside decides nothing where an earlier one is.
    """
    own = list(items)
    for k, item in enumerate(own):
        is_first = all(
            way[0] is turn for turn, way in zip(items[k + 1 :], ways[k + 1 :], strict=True)
        )
        if isinstance(item, s.Affine) and item.outside is not None and not is_first:
            own[k] = item if item.outside == "clamp" else replace(item, outside=0)
    return replace(ref, items=tuple(own))


def _is_whole(terms: Sequence[s.Term], ref: s.Ref, agg: Monoid | None) -> bool:
    """Whether what is aggregated is ⊕'s identity where a reference is."""
    name = "sum" if agg is None else agg.name
    joins = {"sum": ("mul", "-"), "max": ("add",), "min": ("add",)}.get(name, ())
    return len(terms) == 1 and _is_operand(terms[0], ref, joins)


def _with_identity(scope: Scope, ref: s.Ref, is_whole: bool, agg: Monoid | None) -> s.Ref:
    """A reference that is ⊕'s identity outside, where that makes the joined value so, too."""
    if not is_whole:
        name = "sum" if agg is None else agg.name
        raise scope.error(
            f"{ref.name} is only a part of what {name} aggregates: say which number lies outside",
            ref.at,
        )
    dtype = scope.graph[ref.name].dtype
    value = 0 if agg is None else agg.identity_for((dtype,))[0].item()
    value = int(value) if isfinite(value) else value
    items = (replace(i, outside=value) if _says(i, "identity") else i for i in ref.items)  # pyright: ignore[reportCallIssue]
    return replace(ref, items=tuple(items))


def _is_operand(term: s.Term, ref: s.Ref, joins: Iterable[str]) -> bool:
    """Whether a term is a reference, or a chain of such functions over it."""
    if isinstance(term, s.Apply) and term.op in joins:
        return any(_is_operand(arg, ref, joins) for arg in term.args)
    if isinstance(term, s.Apply) and term.op == "div" and "mul" in joins:
        return _is_operand(term.args[0], ref, joins)
    return term == ref


# Results at computed places


def turned_round(
    scope: Scope, statement: s.Assign, terms: Sequence[s.Term]
) -> tuple[s.Assign, tuple[s.Term, ...]]:
    """A statement whose result has plain labels: places are solved for a label of what is read."""
    target, terms = statement.target, tuple(terms)
    for k, item in enumerate(target.items):
        if not isinstance(item, s.Affine | s.Placed):
            continue
        place = place_of(scope, item.place if isinstance(item, s.Placed) else item)
        taken = {*place.labels, *(x for ref in s.refs_of(terms) for x in s.labels_of(ref))}
        label = item.label.name if isinstance(item, s.Placed) else unused_label("at", taken)
        if label in taken:
            raise scope.error(f"{label!r} names the result's places, and is read as well", item.at)
        size = item.label.size if isinstance(item, s.Placed) else None
        if size is None:
            size = 1 + place.reach({x: scope.size_of(x, item.at) for x in place.labels})[1]
        plain = [x.name for ref in s.refs_of(terms) for x in ref.items if isinstance(x, s.Label)]
        free = [term for term in place.terms if term[0] in plain]
        if not free or place.divisor > 1:
            raise scope.error("no label of this place is a plain label of what is read", item.at)
        # The others are summed over: the fewer, the better.
        solved, times = max(free, key=lambda term: (scope.size_of(term[0], item.at), -abs(term[1])))
        sign = 1 if times > 0 else -1
        rest = [(-sign * n, (x,)) for x, n in place.terms if x != solved]
        products = ((sign, (label,)), *rest, (-sign * place.offset, ()))
        read = s.Affine(products, abs(times), "identity", item.at)
        terms = tuple(_with(term, {solved: read}) for term in terms)
        scope.known[label] = size
        items = (*target.items[:k], s.Label(label, item.at, size), *target.items[k + 1 :])
        target = replace(target, items=items)
    return replace(statement, target=target), terms


def _with(term: s.Term, places: Mapping[str, s.Affine]) -> s.Term:
    """A term that reads some labels at other places."""
    match term:
        case s.Ref(items=items):
            return replace(term, items=tuple(places.get(s.label_of(i), i) for i in items))
        case s.Apply(op, args, at):
            return s.Apply(op, tuple(_with(arg, places) for arg in args), at)
        case _:
            return term
