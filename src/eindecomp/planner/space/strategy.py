"""Strategies: restrictions on how vertices are cut, under which plans are made like any other.

A strategy says along which labels vertices are cut, how many devices cut each, and where state
lies: the results that are the inputs of the next run. What it leaves open is chosen optimally.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from math import prod
from typing import Any, cast

import numpy as np

from eindecomp.errors import PlanError, suggest
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Input, Reshape
from eindecomp.graph.vertex import Vertex
from eindecomp.layout.mesh import Mesh, is_whole
from eindecomp.layout.view import View, is_planned, view_of
from eindecomp.planner.space.layout_rules import LayoutRules
from eindecomp.planner.space.pin import pinned_cuts
from eindecomp.planner.space.viable import SmallTiles, parts_along
from eindecomp.solve.problem.arrays import Ints, Mask

GivenStrategy = str | Sequence[str] | Mapping[str, Any]
"""A name, labels, `{"labels": …, "degrees": …, "state": …}`, or `{"tiles": bytes}`."""
StrategyForm = str | tuple[str, ...] | dict[str, Any]
"""The same in one form, which can be compared and saved."""
STATES = ("free", "replicated", "gathered")
OTHERS = "*"
"""The kind of the vertices that are of no other kind."""
SERVER = 8
"""The devices that named strategies leave to tensor parallelism: as many as a server has."""
_FIELDS = ("labels", "degrees", "state")


@dataclass(frozen=True, slots=True)
class Strategy:
    """Cuts every vertex along the first of its labels that are listed, as far as sizes allow."""

    labels: tuple[tuple[str, tuple[str, ...]], ...]
    """For each kind of vertex, what it is cut along; the first kind that a vertex is of counts.

    A kind is a label, for the vertices that have it, the name of a vertex, or all `OTHERS`.
    """
    degrees: tuple[tuple[str, int], ...] = ()
    """Labels that a number of devices cut first; all others are left to `labels`."""
    state: str = "free"
    """Where the results lie that become inputs of the next run.

    "free": anywhere. "replicated": on all devices that compute with them, cut only along the labels
    of the strategy. "gathered": cut over all devices, gathered for each use and let go again.
    """

    def __call__(self, vertex: Vertex, view: View, parts: Ints, mesh: Mesh) -> Mask:
        """Vertices that have none of the labels are cut optimally, inputs lie anywhere."""
        keep = np.ones(len(parts), dtype=bool)
        if isinstance(vertex.op, Input):
            return keep
        for column, pieces in self._pieces(vertex.name, view, mesh).items():
            keep &= parts[:, column] == pieces
        return keep

    def _pieces(self, name: str, view: View, mesh: Mesh) -> dict[int, int]:
        """Into how many pieces labels are cut, the first as far as possible, and so on."""
        of = {OTHERS, name, *view.labels}
        own = next((own for kind, own in self.labels if kind in of), ())
        # Those that a number of devices cut come first, each with that number.
        wanted: dict[str, int | None] = dict(self.degrees) | dict.fromkeys(own) | dict(self.degrees)
        columns = {view.labels.index(t): n for t, n in wanted.items() if t in view.labels}
        rows = parts_along(view.sizes, mesh.sizes, tuple(columns), even=mesh.cuts_evenly)
        pieces: dict[int, int] = {}
        for i, (column, degree) in enumerate(columns.items()):
            values: list[int] = rows[:, i].tolist()
            # A vertex that can be cut along nothing else is cut by more devices.
            within = [n for n in values if degree is None or degree % n == 0] or [min(values)]
            pieces[column] = max(within)
            rows = rows[rows[:, i] == pieces[column]]
        return pieces

    def pin(self, name: str, view: View, mesh: Mesh) -> dict[str, int | list[str]]:
        """State cut along the strategy's labels, by the innermost axes where these suffice."""
        pin: dict[str, int | list[str]] = {}
        end = len(mesh.sizes)
        for column, pieces in reversed(self._pieces(name, view, mesh).items()):
            start = end
            while prod(mesh.sizes[start:end]) < pieces:
                start -= 1
            fits = prod(mesh.sizes[start:end]) == pieces
            if column not in view.aggregated:
                pin[view.labels[column]] = list(mesh.names[start:end]) if fits else pieces
            end = start if fits else end
        return pin


@dataclass(frozen=True, slots=True)
class SquareRoot:
    """Cuts every result √p ways along each of its two largest dimensions."""

    def __call__(self, vertex: Vertex, view: View, parts: Ints, mesh: Mesh) -> Mask:
        """As evenly as the factors of p allow, the larger dimension into more pieces."""
        kept = {dim.label for dim in view.output}
        columns = [i for i, label in enumerate(view.labels) if label in kept]
        columns = sorted(columns, key=lambda i: -view.sizes[i])[:2]
        if not columns or isinstance(vertex.op, Input):
            return np.ones(len(parts), dtype=bool)
        rows = parts_along(view.sizes, mesh.sizes, tuple(columns), even=mesh.cuts_evenly)
        rows = rows[rows.prod(axis=1) == rows.prod(axis=1).max()]
        spread = rows[:, 0] / rows[:, -1]
        uneven = np.maximum(spread, 1 / spread) + (spread < 1) * 1e-6
        return (parts[:, columns] == rows[uneven.argmin()]).all(axis=1)


def by_labels(*labels: str, state: str = "free") -> Strategy:
    """The strategy that treats all vertices alike."""
    return Strategy(((OTHERS, labels),), (), state)


NAMED: dict[str, Strategy] = {
    "data": by_labels("b", state="replicated"),
    "zero": by_labels("b", state="gathered"),
    "context": by_labels("s"),
    "ulysses": Strategy((("t", ("h", "g")), (OTHERS, ("s",)))),
    "attention": by_labels("h"),
    "megatron": by_labels("h", "f", "v", state="replicated"),
    "megatron+zero": by_labels("h", "f", "v", state="gathered"),
}
"""The usual ways to parallelize a transformer, by the labels that `models.llama` has.

b are sequences, s and t positions of queries and keys, h heads of keys, g heads of queries that
share one, f the width of the feed-forward net and v the vocabulary.
"""
ALIASES = {"sequence": "context"}
_NEEDS = {
    "data": "b", "zero": "b", "context": "s", "ulysses": "sth", "attention": "th",
    "megatron": "hf", "megatron+zero": "bhf",
}  # fmt: skip
"""The labels without which a named strategy does not apply."""
_FOR_STATE = ("zero", "megatron+zero")
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
    if strategy.state == "gathered":
        return replace(rules, gathered=frozenset(rules.tie))
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
    graph: Graph, devices: int, without: Collection[str] = (), *, stateful: bool = False
) -> dict[str, str]:
    """The named strategies that apply to a graph's labels and would cut something.

    Some differ from others only if the graph is `stateful`: if inputs are tied to results.
    """
    labels = _labels(graph)
    vertices = graph.vertices.values()
    long = {t for v in vertices for t, size in zip(v.labels, v.shape, strict=True) if size > 1}
    names = [] if "sqrt" in without else ["sqrt"]
    for name, needs in _NEEDS.items():
        fits = set(needs) <= labels and long & _cut_by(NAMED[name])
        if not fits or name in without or (name in _FOR_STATE and not stateful):
            continue
        if name == "megatron+zero" and not _named(name, graph, devices).degrees:
            continue  # tensor parallelism takes all devices
        names.append(name)
    return {name: name for name in names}


def _named(name: str, graph: Graph, devices: int) -> Strategy:
    if name not in NAMED:
        known = ", ".join(["sqrt", *NAMED])
        raise PlanError(
            f"strategy {name!r} is not one of {known}, nor a list of labels{suggest(name, NAMED)}"
        )
    strategy = NAMED[name]
    if name == "megatron+zero":
        return inside_servers(strategy, graph, devices) or strategy
    return strategy


def inside_servers(strategy: Strategy, graph: Graph, devices: int) -> Strategy | None:
    """The strategy among the devices of a server, with sequences divided among servers.

    None if there is one server or one sequence, or if the strategy divides sequences itself.
    """
    sizes = [dict(zip(v.labels, v.shape, strict=True)) for v in graph.vertices.values()]
    batch = max([own["b"] for own in sizes if "b" in own], default=1)
    most = min(batch, devices // SERVER)
    degree = max((n for n in range(1, most + 1) if devices % n == 0), default=1)
    if degree == 1 or "b" in _cut_by(strategy):
        return None
    return replace(strategy, degrees=(("b", degree),))


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
