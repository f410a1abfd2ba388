"""The paper's own algorithms for its objective: optimal on a tree, a heuristic elsewhere."""

from __future__ import annotations

from itertools import pairwise
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


def choose_linearly(model: BoundModel) -> Ints:
    """The paper's linearisation: the longest path first, then the longest of what is left.

    Along a path the dynamic program is exact; costs between paths are ignored.
    """
    before: dict[str, dict[str, list[int]]] = {name: {} for name in model.views}
    for maker, reader, k in model.edges:
        before[reader].setdefault(maker, []).append(k)
    chosen: dict[str, int] = {}
    while len(chosen) < len(model.views):
        path = _longest_path(before, chosen)
        chosen.update(_along(model, before, path))
    return np.array([chosen[name] for name in model.views], dtype=np.int64)


def _longest_path(before: dict[str, dict[str, list[int]]], chosen: dict[str, int]) -> list[str]:
    """The path with the most vertices that have not been chosen yet."""
    length: dict[str, int] = {}
    came: dict[str, str | None] = {}
    for name, makers in before.items():
        if name in chosen:
            continue
        best = max((m for m in makers if m not in chosen), key=lambda m: length[m], default=None)
        came[name] = best
        length[name] = 1 + (length[best] if best is not None else 0)
    last: str | None = max(length, key=lambda n: length[n])
    path: list[str] = []
    while last is not None:
        path.append(last)
        last = came[last]
    return path[::-1]


def _along(
    model: BoundModel, before: dict[str, dict[str, list[int]]], path: list[str]
) -> dict[str, int]:
    """The best choices along a path, by dynamic programming."""
    least = model.unary(path[0])
    came: list[Ints] = []
    for maker, reader in pairwise(path):
        total = least[:, None] + sum(
            model.handover(maker, reader, k) for k in before[reader][maker]
        )
        came.append(total.argmin(axis=0))
        least = total.min(axis=0) + model.unary(reader)
    chosen = {path[-1]: int(least.argmin())}
    for name, after, best in zip(path[-2::-1], path[:0:-1], reversed(came), strict=True):
        chosen[name] = int(best[chosen[after]])
    return chosen
