"""Infinite costs: what a plan must not do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.solve import INFINITE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Costs = NDArray[Any]


def infinite_where(mask: NDArray[np.bool_], costs: Costs) -> Costs:
    """The costs with ∞ where the mask holds."""
    infinite = INFINITE if costs.dtype.kind == "i" else np.inf
    return np.where(mask, costs.dtype.type(infinite), costs)


def is_infinite(costs: Costs) -> NDArray[np.bool_]:
    """Where costs are ∞."""
    return costs >= (INFINITE if costs.dtype.kind == "i" else np.inf)


def multiplied(costs: Any, times: int) -> Any:
    """Several times the costs; what is infinite stays so."""
    return costs if times == 1 else infinite_where(is_infinite(costs), costs * times)


def added(one: Any, other: Any) -> Any:
    """The sum of costs; what is infinite stays so."""
    return infinite_where(is_infinite(one) | is_infinite(other), one + other)
