"""The paper's dynamic program: the optimum of its objective on a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eindecomp.errors import PlanError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eindecomp.planner.model.bound import BoundModel

    Ints = NDArray[np.int64]


def choose_on_tree(model: BoundModel) -> Ints:
    """Choose bottom up; optimal for a graph in which every tensor is read at most once."""
    readers: dict[str, str] = {}
    for maker, reader, _ in model.edges:
        if maker in readers:
            raise PlanError(
                f"the graph is not a tree: {model.graph[maker]} is read by {readers[maker]} and "
                f"{reader}; solver='exact' plans any graph"
            )
        readers[maker] = reader
    least = {name: model.unary(name) for name in model.views}
    came: dict[str, tuple[str, Ints]] = {}
    for maker, reader, k in model.edges:
        total = least[maker][:, None] + model.handover(maker, reader, k)
        came[maker] = (reader, total.argmin(axis=0))
        least[reader] = least[reader] + total.min(axis=0)
    chosen: dict[str, int] = {}
    for name in reversed(model.views):
        if name in came:
            reader, best = came[name]
            chosen[name] = int(best[chosen[reader]])
        else:
            chosen[name] = int(least[name].argmin())
    return np.array([chosen[name] for name in model.views], dtype=np.int64)
