"""Strategies: restrictions on how vertices are cut, under which plans are made like any other.

A strategy says along which labels vertices are cut, how many devices cut each, and where state
lies: the results that are the inputs of the next run. What it leaves open is chosen optimally.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from math import prod
from typing import Any, cast

from eindecomp.errors import PlanError, suggest
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Reshape
from eindecomp.layout.mesh import Mesh, is_whole
from eindecomp.layout.view import is_planned, planned_views, view_of
from eindecomp.planner.space.label_cuts import (
    OTHERS,
    SERVER,
    STATES,
    SquareRoot,
    Strategy,
    by_labels,
)
from eindecomp.planner.space.layout_rules import LayoutRules
from eindecomp.planner.space.pin import pinned_cuts
from eindecomp.planner.space.viable import SmallTiles

GivenStrategy = str | Sequence[str] | Mapping[str, Any]
"""A name, labels, `{"labels": …, "degrees": …, "state": …}`, or `{"tiles": bytes}`."""
StrategyForm = str | tuple[str, ...] | dict[str, Any]
"""The same in one form, which can be compared and saved."""
_FIELDS = ("labels", "degrees", "state")

NAMED: dict[str, Strategy] = {
    "data": by_labels("b", state="replicated"),
    "zero": by_labels("b", state="gathered"),
    "hsdp": by_labels("b", state="servers"),
    "context": by_labels("s"),
    "ring": by_labels("s", "t"),
    "ulysses": Strategy((("t", ("h", "g")), (OTHERS, ("s",)))),
    "usp": Strategy((("t", ("h", "g", "s")), (OTHERS, ("s",)))),
    "attention": by_labels("h"),
    "megatron": by_labels("h", "f", "v", state="replicated"),
    "megatron+zero": by_labels("h", "f", "v", state="gathered"),
}
"""The usual ways to parallelize a transformer, by the labels that `models.llama` has.

| label | stands for |
| --- | --- |
| b | sequences |
| s, t | positions of queries, and of the keys that they attend to |
| h | heads of keys and values |
| g | heads of queries that share one of keys: grouped-query attention |
| f | the width of the feed-forward net |
| v | the vocabulary |

Data parallelism cuts b: "data" with all state on every device, "zero" with state over all devices,
"hsdp" (hierarchical, hybrid sharding) with state over the devices of each server. "ring" cuts
positions, of queries where there are any: keys and values of all heads h, not of h · g, come to
every device; "context" is the same where what makes keys has the label s, too. "ulysses" goes over
to heads for attention; "usp" does so inside a server and is a ring between servers. "megatron" cuts
heads and widths.
"""
ALIASES = {"sequence": "context"}
_NEEDS = {
    "data": "b", "zero": "b", "hsdp": "b", "context": "s", "ring": "sth", "ulysses": "sth",
    "usp": "sth", "attention": "th", "megatron": "hf", "megatron+zero": "bhf",
}  # fmt: skip
"""The labels without which a named strategy does not apply."""
_FOR_STATE = ("zero", "hsdp", "megatron+zero")
"""Those that differ from others only where there is state."""


AnyStrategy = Strategy | SquareRoot | SmallTiles


def strategy_of(given: GivenStrategy, graph: Graph, devices: int) -> AnyStrategy:
    """The strategy of a name, of a list of labels or of a mapping, for a number of devices."""
    if isinstance(given, str) and given == "sqrt":
        return SquareRoot()
    if isinstance(given, Mapping) and "tiles" in given:
        if len(given) > 1 or not is_whole(given["tiles"]) or given["tiles"] < 0:
            raise PlanError(f"a strategy of tiles is {{'tiles': bytes}}, not {dict(given)}")
        return SmallTiles.of(graph, devices, int(given["tiles"]))
    if isinstance(given, str):
        strategy = _named(ALIASES.get(given, given), graph, devices)
    elif isinstance(given, Mapping):
        strategy = _of_fields(given, devices)
        _check_names(strategy, graph)
    else:
        strategy = by_labels(*_labels_of(given))
    if not _labels(graph) & _cut_by(strategy):
        shown = list(given) if not isinstance(given, str | Mapping) else given
        hint = ""
        if isinstance(shown, list) and (near := get_close_matches(str(shown[0]), NAMED, 1)):
            hint = f"; did you mean the strategy {near[0]!r}?"
        raise PlanError(f"no tensor has any label of the strategy {shown}{hint}")
    kinds = tuple((kind, with_merged(graph, labels)) for kind, labels in strategy.labels)
    return replace(strategy, labels=kinds)


def rules_under(strategy: AnyStrategy, graph: Graph, mesh: Mesh, rules: LayoutRules) -> LayoutRules:
    """The rules on layouts, with those of a strategy on state added."""
    if not isinstance(strategy, Strategy) or strategy.state == "free":
        return rules
    if strategy.state != "replicated":
        rules = replace(rules, gathered=frozenset(rules.tie))
    if strategy.state == "gathered":
        return rules
    pins = {
        name: strategy.pin(name, view_of(graph, graph[name]), mesh)
        for name in rules.tie.values()
        if name not in rules.pinned
    }
    return replace(rules, pinned={**pinned_cuts(graph, mesh, pins), **rules.pinned})


def strategy_form(given: GivenStrategy | None) -> StrategyForm | None:
    """A strategy that has been checked in its normal form.

    >>> strategy_form(["h", "f"]), strategy_form({"labels": ["s"], "degrees": {"b": 2}})
    (('h', 'f'), {'labels': {'*': ('s',)}, 'degrees': {'b': 2}, 'state': 'free'})
    """
    if given is None or isinstance(given, str):
        return given
    if not isinstance(given, Mapping):
        return tuple(given)
    if "tiles" in given:
        return {"tiles": int(given["tiles"])}
    return {
        "labels": dict(_kinds(given.get("labels", {}))),
        "degrees": dict(given.get("degrees", {})),
        "state": given.get("state", "free"),
    }


def spelled(form: StrategyForm | None) -> StrategyForm | None:
    """A strategy with its labels in place of its name."""
    named = NAMED.get(ALIASES.get(form, form)) if isinstance(form, str) else None
    if named is None:
        return form
    fields = {"labels": dict(named.labels), "degrees": {}, "state": named.state}
    return strategy_form(fields)


def strategy_words(form: StrategyForm | None) -> str:
    """A strategy in a few words.

    >>> strategy_words({"labels": {"t": ("h",), "*": ("s",)}, "degrees": {"b": 2}})
    'b over 2, then h where t is, s'
    """
    if form is None or isinstance(form, str):
        return form or "free"
    if isinstance(form, tuple):
        return ", ".join(form)
    if "tiles" in form:
        return f"tiles of at most {form['tiles']:,} bytes"
    words = [f"{label} over {n}, then" for label, n in form.get("degrees", {}).items()]
    kinds = form.get("labels", {}).items()
    cuts = [", ".join(own) + ("" if kind == OTHERS else f" where {kind} is") for kind, own in kinds]
    state = form.get("state", "free")
    cuts += [] if state == "free" else [f"state {state}"]
    return " ".join([*words, ", ".join(cuts)])


def applicable(
    graph: Graph,
    devices: int,
    without: Collection[str] = (),
    *,
    stateful: bool = False,
    repeated: bool = False,
) -> dict[str, str]:
    """The named strategies that apply to a graph's labels and would cut something.

    Some differ from others only if the graph is `stateful`: if inputs are tied to results. Those
    under which servers repeat what others compute are left out unless `repeated`.
    """
    labels = _labels(graph)
    vertices = graph.vertices.values()
    long = {t for v in vertices for t, size in zip(v.labels, v.shape, strict=True) if size > 1}
    names = [] if "sqrt" in without else ["sqrt"]
    for name, needs in _NEEDS.items():
        fits = set(needs) <= labels and long & _cut_by(NAMED[name])
        if not fits or name in without or (name in _FOR_STATE and not stateful):
            continue
        if (name != "hsdp" or repeated) and _differs(name, graph, devices):
            names.append(name)
    return {name: name for name in names}


def common_labels(graph: Graph) -> list[str]:
    """The two labels along which the most vertices can be cut."""
    sizes = (zip(view.cut_labels, view.cut_sizes, strict=True) for _, view in planned_views(graph))
    counts = Counter(label for own in sizes for label, size in own if size > 1)
    return [label for label, _ in counts.most_common(2)]


def _differs(name: str, graph: Graph, devices: int) -> bool:
    """Whether a named strategy is not another one on this graph and so many devices."""
    match name:
        case "ring":  # nothing but keys has a position of keys alone
            views = (view for _, view in planned_views(graph))
            return any("t" in view.labels and "s" not in view.labels for view in views)
        case "usp":  # heads take all devices
            return prod(n for _, n in _named(name, graph, devices).degrees) < devices
        case "hsdp":
            return devices > SERVER
        case "megatron+zero":  # tensor parallelism takes all devices
            return bool(_named(name, graph, devices).degrees)
        case _:
            return True


def _named(name: str, graph: Graph, devices: int) -> Strategy:
    if name not in NAMED:
        known = ", ".join(["sqrt", *NAMED])
        raise PlanError(
            f"strategy {name!r} is not one of {known}, nor a list of labels{suggest(name, NAMED)}"
        )
    strategy = NAMED[name]
    if name == "megatron+zero":
        return inside_servers(strategy, graph, devices) or strategy
    if name == "usp":
        heads = _most(devices, min(_longest(graph, "h"), SERVER))
        groups = _most(devices // heads, min(_longest(graph, "g"), SERVER // heads))
        return replace(strategy, degrees=(("h", heads), ("g", groups)))
    return strategy


def inside_servers(strategy: Strategy, graph: Graph, devices: int) -> Strategy | None:
    """The strategy among the devices of a server, with sequences divided among servers.

    None if there is one server or one sequence, or if the strategy divides sequences itself.
    """
    degree = _most(devices, min(_longest(graph, "b"), devices // SERVER))
    if degree == 1 or "b" in _cut_by(strategy):
        return None
    return replace(strategy, degrees=(("b", degree), *strategy.degrees))


def _longest(graph: Graph, label: str) -> int:
    """The largest size that a label has; 1 where no tensor has it."""
    sizes = (v.shape[v.labels.index(label)] for v in graph.vertices.values() if label in v.labels)
    return max(sizes, default=1)


def _most(devices: int, limit: int) -> int:
    """The most equal groups of devices within a limit."""
    return max((n for n in range(1, limit + 1) if devices % n == 0), default=1)


def _of_fields(given: Mapping[str, Any], devices: int) -> Strategy:
    """A strategy that is given field by field."""
    for name in given:
        if name not in _FIELDS:
            raise PlanError(f"a strategy has no {name!r}{suggest(str(name), _FIELDS)}")
    counts: Mapping[str, int] = given.get("degrees", {})
    if not isinstance(counts, Mapping) or not all(map(is_whole, counts.values())):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"a strategy's degrees are {{label: devices}}, not {counts!r}")
    if any(n < 1 for n in counts.values()) or devices % prod(counts.values()):
        raise PlanError(f"a strategy's degrees {dict(counts)} do not divide {devices} devices")
    state = given.get("state", "free")
    if state not in STATES:
        raise PlanError(f"a strategy's state is one of {', '.join(STATES)}, not {state!r}")
    kinds = _kinds(given.get("labels", {}))
    return Strategy(kinds, tuple((label, int(n)) for label, n in counts.items()), state)


def _check_names(strategy: Strategy, graph: Graph) -> None:
    """Refuse names that the graph lacks: who writes a strategy field by field means them all."""
    labels = _labels(graph)
    for label in sorted(_cut_by(strategy)):
        if label not in labels:
            raise PlanError(f"no tensor has the strategy's label {label!r}{suggest(label, labels)}")
    kinds = {*labels, *graph.vertices}
    for kind, _ in strategy.labels:
        if kind != OTHERS and kind not in kinds:
            raise PlanError(
                f"strategy: {kind!r} is neither a label nor a vertex{suggest(kind, kinds)}"
            )


def _kinds(given: object) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The labels of each kind of vertex, those of all others last."""
    if isinstance(given, Mapping):
        kinds = cast("Mapping[str, Sequence[str]]", given)
        ordered = sorted(kinds.items(), key=lambda each: each[0] == OTHERS)
        return tuple((kind, _labels_of(own)) for kind, own in ordered)
    return ((OTHERS, _labels_of(given)),)


def _labels_of(given: object) -> tuple[str, ...]:
    labels = tuple(cast("Sequence[str]", given)) if isinstance(given, Sequence) else ()
    if isinstance(given, str) or not labels or not all(isinstance(each, str) for each in labels):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"a strategy is 'sqrt', a name or a list of labels, not {given!r}")
    return labels


def _cut_by(strategy: Strategy) -> set[str]:
    """The labels that a strategy cuts along."""
    return {label for _, own in strategy.labels for label in own}.union(dict(strategy.degrees))


def _labels(graph: Graph) -> set[str]:
    """Every label of a tensor, and every label that some vertex can be cut along."""
    vertices = graph.vertices.values()
    labels = {label for vertex in vertices for label in vertex.labels}
    for vertex in vertices:
        if is_planned(vertex):
            labels.update(view_of(graph, vertex).labels)
    return labels


def with_merged(graph: Graph, labels: Sequence[str]) -> tuple[str, ...]:
    """Labels, and after each those of the dimensions that it is the outermost factor of.

    >>> import eindecomp as ed
    >>> text = "input X[s: 4, hd: 6]\\nZ[s,h,d] <- X[s, (h: 2, d)]\\noutput Z"
    >>> with_merged(ed.parse(text), ["h", "s"])
    ('h', 'hd', 's')
    """
    merged: dict[str, list[str]] = {}
    for vertex in graph.vertices.values():
        if isinstance(op := vertex.op, Reshape):
            source = graph[vertex.inputs[0]]
            pairs = [
                *zip(source.labels, op.input, strict=True),
                *zip(vertex.labels, op.groups, strict=True),
            ]
            for label, group in pairs:
                if len(group) > 1 and label != group[0]:
                    merged.setdefault(group[0], []).append(label)
    every: dict[str, None] = {}
    waiting = [*reversed(labels)]
    while waiting:
        label = waiting.pop()
        if label not in every:
            every[label] = None
            waiting += reversed([own for own in merged.get(label, ()) if own not in labels])
    return tuple(every)
