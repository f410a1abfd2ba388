"""The contractions of a graph, the orders they can be computed in, and the graphs these make."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import inf, prod
from typing import TYPE_CHECKING

from eindecomp.graph.ops import Input
from eindecomp.graph.orders import Contraction, one_of_each
from eindecomp.graph.rewrites.merge_products import merge_products, merged_products
from eindecomp.graph.rewrites.order_contractions import order_as
from eindecomp.graph.rewrites.rewrite import AFTER_ORDER, BEFORE_ORDER
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import SUM
from eindecomp.lang.scalar import Arg
from eindecomp.planner import budgets

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Mapping

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.orders import Order
    from eindecomp.graph.rewrites.merge_products import Merged

_COUNTABLE = 2**53


@dataclass(frozen=True)
class Ordering:
    """One contraction of a graph: how it is written, and the orders that it may take."""

    name: str
    contraction: Contraction
    written: Order
    """The usual order: as the user wrote it, or of the fewest operations."""
    limit: float
    """The most operations that an order may take."""
    orders: tuple[Order, ...]
    """Of those that differ by equal operands alone one each: first the usual one, if it is within
    the limit, then those that store the least between operands and result."""
    count: int
    """How many orders there are, those among them that differ by equal operands alone."""
    complete: bool
    """Whether these are all orders within the limit."""

    @property
    def first(self) -> Order:
        """The order to begin with."""
        return self.orders[0]

    @property
    def key(self) -> Hashable:
        """What contractions that are alike have in common."""
        numbers: dict[str, int] = {}
        own = self.contraction
        labels = [[numbers.setdefault(x, len(numbers)) for x in each] for each in own.inputs]
        sizes = tuple(own.sizes[label] for label in numbers)
        output = tuple(numbers.get(label, label) for label in own.output)
        return tuple(map(tuple, labels)), output, sizes, own.paired, self.written

    def limits(self, order: Order) -> dict[int, float]:
        """The most operations of each vertex that may repeat some: all stay within the limit.

        What others leave is divided among them in proportion to what they take at least.
        """
        if self.limit == inf:
            return {}
        operations = self.contraction.operations(order)
        fused = {m: n for m, n in operations.items() if self.contraction.repeats(order, m)}
        if not fused or not (least := sum(fused.values())):
            return {}
        left = self.limit - (sum(operations.values()) - least)
        return {mask: own * left / least for mask, own in fused.items()}


@dataclass(frozen=True)
class Contractions:
    """All contractions of a graph whose order can be chosen."""

    written: Graph
    """The graph that the usual orders make."""
    prepared: Graph
    products: Mapping[str, Merged]
    orderings: tuple[Ordering, ...]

    @classmethod
    def of(cls, graph: Graph, written: Graph, keep: Collection[str], work: float) -> Contractions:
        """Those of a graph within a limit on work; `keep` are tensors with a home of their own."""
        small = len(graph.vertices) - len(graph.inputs) <= budgets.MERGED_VERTICES
        if not small and not _has_products(graph):
            return cls(written, graph, {}, ())
        prepared = graph
        for run in BEFORE_ORDER:
            prepared = run(prepared)
        products = merged_products(prepared, keep if small else prepared.vertices)
        orderings = (_ordering(name, own, prepared, keep, work) for name, own in products.items())
        return cls(written, prepared, products, tuple(orderings))

    @property
    def count(self) -> int:
        """In how many ways all orders can be chosen, as far as files can count."""
        return min(prod(ordering.count for ordering in self.orderings), _COUNTABLE)

    @property
    def different(self) -> int:
        """The same, counting those once that differ by equal operands alone."""
        return prod(len(ordering.orders) for ordering in self.orderings)

    @property
    def merged(self) -> bool:
        """Whether some contraction was written as several vertices."""
        return any(product.absorbed for product in self.products.values())

    @property
    def complete(self) -> bool:
        """Whether the orders of every contraction are all listed."""
        return all(ordering.complete for ordering in self.orderings)

    def states(self) -> list[tuple[Order, ...]]:
        """All combinations of orders, those that store the least first."""
        every = product(*(ordering.orders for ordering in self.orderings))
        return sorted(every, key=self._stored)

    def _stored(self, state: tuple[Order, ...]) -> int:
        named = zip(self.orderings, state, strict=True)
        return sum(ordering.contraction.stored(order) for ordering, order in named)

    def ordered(self, orders: Mapping[str, Order]) -> tuple[Graph, dict[str, float]]:
        """The graph that orders make, and the most operations of its fused vertices."""
        changed = {o.name: o for o in self.orderings if orders[o.name] != o.written}
        if not changed:
            return self.written, {}
        merged = merge_products(self.prepared, {name: self.products[name] for name in changed})
        graph, made = order_as(merged, {name: orders[name] for name in changed})
        for run in AFTER_ORDER:
            graph = run(graph)
        most: dict[str, float] = {}
        for name, ordering in changed.items():
            limits = ordering.limits(orders[name])
            masks = sorted(orders[name], key=lambda mask: (mask.bit_count(), mask))
            named = zip(masks, made[name], strict=True)
            most |= {vertex: limits[mask] for mask, vertex in named if mask in limits}
        return graph, {name: limit for name, limit in most.items() if name in graph}


def _has_products(graph: Graph) -> bool:
    """Whether some sum, as it is written, is of three tensors or more."""
    return any(
        isinstance(v.op, EinSum) and v.op.agg is not None and len(v.inputs) > 2
        for v in graph.vertices.values()
    )


def _ordering(
    name: str, merged: Merged, graph: Graph, keep: Collection[str], work: float
) -> Ordering:
    chain = merged.chain
    sizes = graph[name].sizes
    for factor in chain.factors:
        sizes |= graph[factor.name].sizes_by(factor.labels)
    is_plain = all(factor.map == Arg(0) for factor in chain.factors)
    contraction = Contraction(
        tuple(factor.labels for factor in chain.factors),
        chain.output,
        sizes,
        paired=is_plain and chain.join == "mul" and chain.agg == SUM,
    )
    limit = inf if work == inf else work * contraction.least  # which may be 0
    listed = contraction.within(limit, budgets.ORDERS)
    complete = listed is not None
    if listed is None:
        listed = [order for order in contraction.found if contraction.work(order) <= limit]
        listed += [near for order in listed for near in contraction.near(order, limit)]
    ranked = sorted(
        dict.fromkeys(listed),
        key=lambda order: (
            order != merged.written,
            contraction.stored(order),
            contraction.work(order),
            sorted(order),
        ),
    )
    reads = graph.reads()
    kinds = [_kind(k, factor.name, graph, reads, keep) for k, factor in enumerate(chain.factors)]
    fixed = reads[name] > 0 or name in keep
    alike = contraction.symmetries(kinds, fixed) if is_plain and complete else []
    return Ordering(
        name, contraction, merged.written, limit,
        tuple(one_of_each(ranked, alike)), len(ranked), complete,
    )  # fmt: skip


def _kind(
    k: int, name: str, graph: Graph, reads: Mapping[str, int], keep: Collection[str]
) -> Hashable:
    """Equal for operands that may change places: inputs of one type that nothing else reads."""
    vertex = graph[name]
    alone = isinstance(vertex.op, Input) and reads[name] == 1 and name not in keep
    return vertex.dtype if alone else k
