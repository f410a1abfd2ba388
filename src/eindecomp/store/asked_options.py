"""Reads what was asked for when a plan was made: pins, the strategy and contraction orders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from eindecomp.errors import PlanError, quote
from eindecomp.planner.options import Orders, check_work
from eindecomp.planner.space.strategy import StrategyForm, strategy_form, strategy_of
from eindecomp.store.decisions import axis_number

if TYPE_CHECKING:
    from eindecomp.graph.graph import Graph
    from eindecomp.layout.mesh import Mesh
    from eindecomp.planner.space.pin import Pins
    from eindecomp.planner.space.strategy import AnyStrategy
    from eindecomp.store.field import Field


def read_pin(graph: Graph, mesh: Mesh, field: Field) -> Pins:
    """Pieces or axes for labels of tensors."""
    pins: Pins = {}
    for name, wanted in field.members():
        if name not in graph:
            raise wanted.wrong("the graph has no such tensor")
        pins[name] = {}
        for label, own in wanted.members():
            if label not in graph[name].labels:
                raise own.wrong(f"{graph[name]} has no such label")
            pins[name][label] = _pieces_or_axes(mesh, own)
    return pins


def _pieces_or_axes(mesh: Mesh, field: Field) -> int | tuple[str, ...]:
    if not isinstance(field.value, list):
        return field.whole(1)
    axes = [axis_number(mesh, axis) for axis in field.items()]
    if len(set(axes)) < len(axes):
        raise field.wrong("an axis appears twice")
    return tuple(mesh.names[a] for a in axes)


def read_strategy(
    graph: Graph, devices: int, field: Field
) -> tuple[StrategyForm | None, AnyStrategy | None]:
    """A strategy as it is given, and as it restricts plans."""
    if field.value is None:
        return None, None
    if isinstance(field.value, list):
        given = tuple(label.text() for label in field.items())
    elif isinstance(field.value, dict):
        given = cast("dict[str, Any]", field.value)
    else:
        given = field.text()
    try:
        strategy = strategy_of(given, graph, devices)
    except PlanError as error:
        raise field.wrong(str(error)) from None
    return strategy_form(given), strategy


def read_orders(graph: Graph, root: Field) -> tuple[float | None, Orders | None]:
    """The limit on work and the orders chosen within it: a plan has both or neither."""
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
