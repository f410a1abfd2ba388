"""The paper's dynamic program: the optimum of its objective on a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eindecomp.errors import PlanError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eindecomp.planner.model.piece_counts import Pieces

    Ints = NDArray[np.int64]


def choose_on_tree(pieces: Pieces) -> Ints:
    """The optimum of a graph in which every tensor is read at most once, bottom up."""
    readers: dict[str, str] = {}
    for maker, reader, _ in pieces.edges:
        if maker in readers:
            raise PlanError(
                f"the graph is no tree: {pieces.graph[maker]} is read by {readers[maker]} and "
                f"{reader}; solver='exact' plans any graph"
            )
        readers[maker] = reader
    least = {name: pieces.unary(name) for name in pieces.views}
    came: dict[str, tuple[str, Ints]] = {}
    for maker, reader, k in pieces.edges:
        total = least[maker][:, None] + pieces.handover(maker, reader, k)
        came[maker] = (reader, total.argmin(axis=0))
        least[reader] = least[reader] + total.min(axis=0)
    chosen: dict[str, int] = {}
    for name in reversed(pieces.views):
        if name in came:
            reader, best = came[name]
            chosen[name] = int(best[chosen[reader]])
        else:
            chosen[name] = int(least[name].argmin())
    return np.array([chosen[name] for name in pieces.views], dtype=np.int64)
