"""The contraction orders of a plan file, and the limit on work within which they were chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.errors import PlanError, quote
from eindecomp.planner.options import Orders, check_work

if TYPE_CHECKING:
    from eindecomp.graph.graph import Graph
    from eindecomp.store.field import Field


def read_orders(graph: Graph, root: Field) -> tuple[float | None, Orders | None]:
    """The limit and the orders: a plan has both or neither."""
    work, orders = _work(root["work"]), _orders(graph, root["orders"])
    if orders is None:
        if work is not None:
            raise root["work"].wrong("must be null where orders is: no order was chosen")
    elif work is None:
        raise root["work"].wrong("must be the limit within which the orders were chosen, not null")
    elif root["strategy"].value is not None or root["objective"].value == "bound":
        raise root["orders"].wrong("must be null: a strategy and 'bound' keep the usual order")
    return work, orders


def _work(field: Field) -> float | None:
    if field.value is None:
        return None
    work = field.number_or_inf()
    try:
        check_work(work)
    except PlanError as error:
        raise field.wrong(str(error)) from None
    return work


def _orders(graph: Graph, field: Field) -> Orders | None:
    if field.value is None:
        return None
    field.check_names(("considered", "complete", "most"))
    complete = field["complete"]
    if not isinstance(complete.value, bool):
        raise complete.wrong("must be true or false")
    most = field["most"]
    for name, limit in most.members():
        if name not in graph:
            raise limit.wrong(f"the graph has no vertex {quote(name)}")
    limits = {name: float(limit.number()) for name, limit in most.members()}
    return Orders(field["considered"].whole(1), complete.value, limits)
