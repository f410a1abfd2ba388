"""Random plans that leave results pending wherever that is possible, from a seed."""

from __future__ import annotations

import random
from dataclasses import replace

import eindecomp as ed
from eindecomp.graph.ops import Concat, Gather, ScatterAdd
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.homomorphism import carried, parts_of_join
from eindecomp.lang.monoid import BUILTIN, SUM
from eindecomp.layout.cut import combined, pending_in, pending_span, span_of
from eindecomp.layout.overlaps import moved
from eindecomp.layout.view import view_of
from eindecomp.planner.space.choices import Decision, Wait, cut_of

MESHES = ({"a": 2, "b": 2}, {"a": 2, "b": 3}, {"a": 3}, {"a": 2, "b": 2, "c": 2})


def random_waits(graph: ed.Graph, seed: int, meshes=MESHES) -> ed.Plan:
    """A plan of a graph with decisions by chance, parts being read wherever they can be."""
    rng = random.Random(seed)
    inputs = rng.choice(["free", "sharded"])
    plan = ed.plan(graph, mesh=rng.choice(meshes), rewrite=False, inputs=inputs)
    maker = _Maker(plan, rng)
    for name in plan.decisions:
        maker.decide(plan.graph[name])
    return replace(plan, decisions=maker.decisions)


class _Maker:
    def __init__(self, plan: ed.Plan, rng: random.Random) -> None:
        self.plan, self.rng, self.mesh = plan, rng, plan.mesh
        self.decisions: dict[str, Decision] = {}

    def decide(self, vertex: ed.Vertex) -> None:
        """Decide on a vertex; what it reads whole of operands in parts gets a second layout."""
        rng, view = self.rng, view_of(self.plan.graph, vertex)
        axes = range(len(self.mesh.sizes))
        waits, agg = (), None
        for _ in range(8):
            free = [axis for axis in axes if rng.random() < 0.5]
            cut = self.spread([a for a in axes if a not in free], view)
            waits, agg = self.waits(vertex, view, cut, free)
            if waits:
                break
        read = {k for wait in waits for k in wait.operands}
        for k, source in enumerate(vertex.inputs):
            if k not in read:
                self.keep_whole(source)
        op = vertex.op
        own = getattr(op, "agg", None) or (SUM if isinstance(op, ScatterAdd) else None)
        agg = agg or own
        partial = [a for i in view.aggregated for a in cut[i]]
        partial += [axis for wait in waits for axis in wait.axes]
        is_output = vertex in self.plan.graph.outputs
        kept = [] if is_output or agg is None else [a for a in partial if rng.random() < 0.7]
        home = self.further(cut_of(view, view.output, cut), view, set(partial) - set(kept))
        if kept:
            home = (*home, pending_span(self.mesh, kept, agg.name))
        self.decisions[vertex.name] = Decision(cut, ((),) * len(view.output), home, None, waits)

    def spread(self, axes, view):
        """Axes by label, as many as it can be cut by; mostly labels that are aggregated."""
        cut = [()] * len(view.sizes)
        for axis in self.rng.sample(axes, len(axes)):
            fits = [i for i, n in enumerate(view.sizes) if self.pieces((*cut[i], axis)) <= n]
            if self.rng.random() < 0.7:
                fits = [i for i in fits if i in view.aggregated] or fits
            if fits:
                cut[self.rng.choice(fits)] += (axis,)
        return tuple(cut)

    def pieces(self, axes):
        count = 1
        for axis in axes:
            count *= self.mesh.sizes[axis]
        return count

    def further(self, home, view, axes):
        """A layout whose dimensions some of these axes cut further."""
        spans = list(home)
        for axis in sorted(axes):
            fits = [d for d, own in enumerate(spans) if self.pieces((*own.axes, axis)) <= own.units]
            if fits and self.rng.random() < 0.7:
                d = self.rng.choice(fits)
                spans[d] = span_of(view.output[d], (*spans[d].axes, axis))
        return tuple(spans)

    def keep_whole(self, name):
        """Keep a tensor that is pending in a second layout, too."""
        own = self.decisions.get(name)
        if own is None or own.second is not None or (span := pending_in(own.home)) is None:
            return
        view = view_of(self.plan.graph, self.plan.graph[name])
        second = self.further(combined(own.home), view, span.axes)
        self.decisions[name] = replace(own, second=second)

    def waits(self, vertex, view, cut, free):
        """What is read in parts along some axes, and the ⊕ of the result's parts."""
        waits, results, taken = [], [], set()
        for k in self.rng.sample(range(len(vertex.inputs)), len(vertex.inputs)):
            source = self.decisions.get(vertex.inputs[k])
            span = None if source is None else pending_in(source.home)
            if k in taken or span is None or not set(span.axes) <= set(free):
                continue
            agg = BUILTIN[span.pending]
            along = tuple(a for a in free if a in span.axes or self.rng.random() < 0.3)
            sets = [own for own in self.readable(vertex, agg) if k in own and not own & taken]
            sets = [own for own in sets if all(self.lies(vertex, view, cut, j, along) for j in own)]
            if not sets:
                continue
            own = self.rng.choice(sets)
            is_join = isinstance(vertex.op, EinSum)
            result = carried(vertex.op.join, own, agg, self.types(vertex)) if is_join else agg
            waits.append(Wait(along, tuple(sorted(own)), agg.name))
            results.append(result)
            taken |= own
            free = [axis for axis in free if axis not in along]
        op = vertex.op
        results += [op.agg] if isinstance(op, EinSum) and op.agg is not None else []
        results += [SUM] * isinstance(op, ScatterAdd)
        if len(set(results)) > 1:
            return (), None
        for wait in waits:  # all others are read whole there
            for k, name in enumerate(vertex.inputs):
                if k in wait.operands and self.decisions.get(name) is not None:
                    own = pending_in(self.decisions[name].home)
                    if own is None:
                        continue
                    if own.pending != wait.agg or not set(own.axes) <= set(wait.axes):
                        self.keep_whole(name)
        return tuple(waits), results[0] if waits else None

    def types(self, vertex):
        """The types of what a vertex reads."""
        return tuple(self.plan.graph[name].dtype for name in vertex.inputs)

    def readable(self, vertex, agg):
        """The sets of operands that can be read in parts of ⊕ together."""
        match vertex.op:
            case EinSum(join=join):
                return parts_of_join(join, agg, self.types(vertex))
            case Concat():
                return [frozenset(range(len(vertex.inputs)))]
            case ScatterAdd() if agg != SUM:
                return []
            case ScatterAdd() | Gather():
                return [frozenset({0})]
            case _:
                return [frozenset({0})]

    def lies(self, vertex, view, cut, k, along):
        """Whether devices have all of an operand that they read in parts, if it has any."""
        source = self.decisions.get(vertex.inputs[k])
        span = None if source is None else pending_in(source.home)
        if span is None or view.reads[k] is None or not set(span.axes) <= set(along):
            return True
        need = cut_of(view, view.reads[k], cut)
        return not moved(self.mesh, [combined(source.home)], [need])[0, 0]


def linear_graph(seed: int, dtype: str = "float64") -> ed.Graph:
    """Products and what is made of them by functions that mostly keep sums, or largest values."""
    rng = random.Random(seed)
    sizes = {label: rng.choice((3, 4, 6, 7, 8, 9)) for label in "ijk"}
    graph = ed.Graph()
    dims = {"i": sizes["i"], "j": sizes["j"]}
    agg = rng.choice(["sum", "sum", "sum", "max", "min"])
    for k in range(2):
        graph.input(f"A{k}", {"i": sizes["i"], "k": sizes["k"]}, dtype)
        graph.input(f"B{k}", {"k": sizes["k"], "j": sizes["j"]}, dtype)
    graph.input("X", dims, dtype)
    graph.input("v", {"j": sizes["j"]}, dtype)
    graph.input("M", {"j": sizes["j"], "l": sizes["j"]}, dtype)
    made = [
        graph.einsum("i k, k j -> i j", f"A{k}", f"B{k}", join="x * y", agg=agg, name=f"P{k}")
        for k in range(2)
    ]
    for n in range(rng.randint(3, 8)):
        x, y = (rng.choice(made[-4:]) for _ in range(2))
        one, two = [x, x], [x, y]
        ways = [
            ("i j, i j -> i j", two, rng.choice(["x + y", "x - y", "max(x, y)", "x * y"])),
            ("i j, j -> i j", [x, "v"], rng.choice(["x + y", "x * y", "y - x"])),
            ("i j, i j -> i j", [x, "X"], rng.choice(["x + y", "x - y", "x / (2 + y)"])),
            ("i j -> i j", one[:1], rng.choice(["-x", "2 * x", "relu(x)", "x / 3", "x + 1"])),
            ("i j, j l -> i l ", [x, "M"], "x * y"),
        ]
        kind = rng.randrange(len(ways) + 3)
        name = f"Z{n}"
        if kind < len(ways):
            spec, operands, join = ways[kind]
            made.append(graph.einsum(spec, *operands, join=join, name=name))
            continue
        if kind == len(ways):  # a window and the rest
            at = sizes["i"] // 2
            upper = graph.slice("i j", x, {"i": (0, at)}, f"{name}.upper")
            lower = graph.slice("i j", y, {"i": (at, sizes["i"])}, f"{name}.lower")
            made.append(graph.concat("i j", upper, lower, along="i", name=name))
        elif kind == len(ways) + 1:
            flat = graph.reshape("i j -> (i j)", x, None, f"{name}.flat")
            made.append(graph.reshape("(i j) -> i j", flat, {"i": sizes["i"]}, name))
        else:
            turned = graph.einsum("i j -> j i", x, join="x", name=f"{name}.turned")
            made.append(graph.einsum("j i, i j -> i j", turned, y, join="x + y", name=name))
    graph.output(made[-1])
    for each in made[:-1]:
        if not graph.users()[each.name]:
            graph.output(each)
    return graph
