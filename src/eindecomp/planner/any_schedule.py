"""How far a plan is from any schedule: what it moves beside the least that its products must move.

`plan.bound` holds for the plans of our space. These bounds hold for every schedule that divides the
multiply-adds as evenly as the plan does, computes each once, and stores inputs and result once, in
whatever pieces. Inputs that are free, or stored several times, make that meaningless: then there is
no such bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, prod

import numpy as np

from eindecomp.graph.graph import Graph
from eindecomp.graph.patterns.attention import find_attention
from eindecomp.graph.vertex import Vertex
from eindecomp.graph.work import partial_bytes
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import SUM
from eindecomp.lang.scalar import Call, Expr, used_args
from eindecomp.layout.cut import Span, interval
from eindecomp.layout.overlaps import totals
from eindecomp.layout.view import view_of
from eindecomp.planner.costs.cost import Cost
from eindecomp.planner.costs.least_of_any import Contraction, least_moved
from eindecomp.planner.plan import Plan

_ATTENTION = 16  # the most vertices that one attention has


@dataclass(frozen=True, slots=True)
class AgainstAny:
    """The bytes that products move in a plan, and the fewest in any schedule of them."""

    moved: int
    least: int
    products: tuple[str, ...]
    """The vertices that it is about."""

    @property
    def ratio(self) -> float:
        """How many times the least it moves."""
        if self.least:
            return self.moved / self.least
        return inf if self.moved else 1.0


def whole_plan(plan: Plan) -> AgainstAny | None:
    """Everything that a plan moves beside the least that its products must.

    That is known of one product or contraction, and of attention, whose two products move different
    words: queries, keys and sums of scores; scores, values and sums of results.
    """
    products = _products(plan)
    operands = {own for name in products for own in plan.graph[name].inputs}
    if not products or not all(_is_stored_once(plan, own) for own in operands - {*plan.parts}):
        return None
    least = [_least(plan, name) for name in products]
    known = [each for each in least if each is not None]
    if len(known) < len(least):
        return None
    return AgainstAny(int(_traffic(plan).total), sum(known), products)


def product_alone(plan: Plan, name: str) -> AgainstAny | None:
    """What one product of a larger graph moves beside the least that any schedule of it moves.

    That is known where its operands arrive stored once, and its result is left so.
    """
    vertex = plan.graph[name]
    kept = [*vertex.inputs, name]
    if not _is_known(plan) or not all(_is_stored_once(plan, own, alone=True) for own in kept):
        return None
    least, traffic = _least(plan, name), _traffic(plan)
    if least is None:
        return None
    fetched = (traffic.edges.get((own, name, k), 0) for k, own in enumerate(vertex.inputs))
    return AgainstAny(int(sum(fetched) + traffic.aggregate[name]), least, (name,))


def _traffic(plan: Plan) -> Cost:
    return plan.costs if plan.objective == "bytes" else plan.traffic


def _is_known(plan: Plan) -> bool:
    """Whether a plan says where everything lies; the paper's objective does not."""
    return plan.devices > 1 and plan.objective != "bound"


def _products(plan: Plan) -> tuple[str, ...]:
    """The products of a graph that is one contraction, or one attention of three tensors."""
    computed = tuple(plan.parts)
    if not _is_known(plan) or len(computed) > _ATTENTION:
        return ()
    if len(computed) == 1:
        return computed
    matched = find_attention(plan.graph)
    if len(matched) != 1 or {*matched[0].replaces} != {*computed}:
        return ()
    products = [
        name
        for name in computed
        if view_of(plan.graph, plan.graph[name]).aggregated
        and contraction_of(plan.graph, plan.graph[name])
    ]
    operands = [own for name in products for own in plan.graph[name].inputs]
    made = [own for own in operands if own in computed]
    return tuple(products) if len({*operands}) == len(operands) and len(made) == 1 else ()


def _is_stored_once(plan: Plan, name: str, *, alone: bool = False) -> bool:
    """Whether every element of a tensor lies on one device; alone: in no second layout either."""
    if name in plan.decisions:
        home, second = plan.decisions[name].home, plan.decisions[name].second
    elif name in plan.given:
        home, second = plan.given[name].home, plan.given[name].second
    else:
        return False
    once = int(totals(plan.mesh, [home])[0]) == plan.graph[name].elements
    return once and not (alone and second is not None)


def _least(plan: Plan, name: str) -> int | None:
    """The fewest bytes in which any schedule computes a vertex; None where that is not known.

    None, too, where several devices compute the same: they could leave each other's sums alone.
    """
    contraction = contraction_of(plan.graph, plan.graph[name])
    if contraction is None or prod(plan.parts[name].values()) < plan.devices:
        return None
    return least_moved(contraction, points_of(plan, name), plan.memory)


def points_of(plan: Plan, name: str) -> dict[int, int]:
    """By how many points of a vertex a device computes, how many such devices there are."""
    view = view_of(plan.graph, plan.graph[name])
    points = np.ones(plan.devices, dtype=np.int64)
    for size, axes in zip(view.sizes, plan.decisions[name].assignment, strict=True):
        low, high = interval(plan.mesh, Span(axes, size, 1, 0, size))
        points *= high - low
    return dict(Counter(points.tolist()))


def contraction_of(graph: Graph, vertex: Vertex) -> Contraction | None:
    """What a vertex multiplies and sums; None for anything else.

    A label that one tensor alone has could be summed, or repeated, without multiplying.
    """
    op = vertex.op
    if not isinstance(op, EinSum) or op.agg not in (None, SUM) or 0 in vertex.shape:
        return None
    factors = [{*used_args(each)} for each in _factors(op.join)]
    if len(op.inputs) < 2 or any(len(each) > 1 for each in factors):
        return None
    if len(used_args(op.join)) < len(op.inputs):
        return None
    view = view_of(graph, vertex)
    number = {label: k for k, label in enumerate(op.labels)}
    if view.labels != op.labels:
        return None
    tensors = tuple(frozenset(number[label] for label in own) for own in (*op.inputs, op.output))
    if any(sum(label in own for own in tensors) < 2 for label in number.values()):
        return None
    repeated = len({*vertex.inputs}) < len(vertex.inputs)
    if repeated and any(len({*own}) < len(own) for own in op.inputs):
        return None
    items = [graph[name].dtype.itemsize for name in vertex.inputs]
    first = (*(vertex.inputs.index(name) for name in vertex.inputs), len(items))
    return Contraction(view.sizes, tensors, (*items, partial_bytes(graph, vertex)), first)


def _factors(join: Expr) -> Iterator[Expr]:
    """The factors of a product; a quotient's divisor is one."""
    if isinstance(join, Call) and join.op in ("mul", "div", "neg"):
        for own in join.args:
            yield from _factors(own)
    else:
        yield join
