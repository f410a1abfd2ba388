"""Readable labels: what the dimensions of an imported graph are called, from how they are used.

Dimensions that operations align are one *class*. Operations vote for names: an embedding knows
which dimension is the vocabulary, an attention which are the heads. A class takes the name with
the strongest vote; where two dimensions of one vertex would be called alike, as queries and keys
of one sequence, the second takes the next name.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_SECOND = {"s": "t", "t": "u", "i": "j", "j": "k", "k": "l"}
_UNKNOWN = "n"


class LabelNames:
    """Classes of dimensions, joined as operations align them, and votes for their names."""

    def __init__(self) -> None:
        self._parent: list[int] = []
        self._sizes: list[int] = []
        self._votes: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        self._splits: dict[int, tuple[int, ...]] = {}
        self._count = 0

    def new(self, size: int) -> int:
        """A dimension that nothing is known of yet."""
        self._parent.append(len(self._parent))
        self._sizes.append(size)
        return len(self._parent) - 1

    def same(self, first: int, second: int) -> int:
        """Note that two dimensions are aligned."""
        first, second = self._root(first), self._root(second)
        if first != second:
            first, second = min(first, second), max(first, second)
            self._parent[second] = first
            self._votes[first] += self._votes.pop(second, [])
        return first

    def vote(self, dim: int, name: str, strength: int) -> None:
        """Suggest a name for a dimension; the strongest wins, of equal ones the first."""
        self._count += 1
        self._votes[self._root(dim)].append((-strength, self._count, name))

    def split(self, dim: int, parts: Sequence[int]) -> None:
        """Note that a dimension is the product of others, after which it is called if need be."""
        self._splits.setdefault(dim, tuple(parts))

    def _root(self, dim: int) -> int:
        while self._parent[dim] != dim:
            self._parent[dim] = self._parent[self._parent[dim]]
            dim = self._parent[dim]
        return dim

    def chosen(self) -> list[str]:
        """The name of every dimension; equal names have equal sizes."""
        names: dict[int, str] = {}
        products: dict[int, tuple[int, ...]] = {}
        for dim, parts in self._splits.items():
            products.setdefault(self._root(dim), parts)
        taken: dict[str, dict[int, str]] = defaultdict(dict)
        for root in self._in_order(products):
            stem = self._stem(root)
            if root in products and self._strength(root) < 2:
                parts = [names.get(self._root(part), "") for part in products[root]]
                stem = "_".join(parts) if all(parts) else stem
            by_size = taken[stem]
            size = self._sizes[root]
            if size not in by_size:
                by_size[size] = stem if not by_size else f"{stem}{len(by_size) + 1}"
            names[root] = by_size[size]
        return [names[self._root(dim)] for dim in range(len(self._parent))]

    def _in_order(self, products: Mapping[int, Sequence[int]]) -> Iterator[int]:
        """All classes, products that are named after their factors after those."""
        roots = sorted({self._root(dim) for dim in range(len(self._parent))})
        waiting = {r for r in roots if r in products and self._strength(r) < 2}
        yield from (root for root in roots if root not in waiting)
        while waiting:
            ready = [r for r in waiting if waiting.isdisjoint(map(self._root, products[r]))]
            yield from sorted(ready or waiting)
            waiting -= {*(ready or waiting)}

    def _strength(self, root: int) -> int:
        return -min(self._votes[root])[0] if self._votes.get(root) else 0

    def _stem(self, root: int) -> str:
        return min(self._votes[root])[2] if self._votes.get(root) else _UNKNOWN


def distinct(names: Iterable[str]) -> list[str]:
    """The names, each other than those before it.

    >>> distinct(["b", "s", "s", "s"])
    ['b', 's', 't', 'u']
    """
    found: list[str] = []
    for name in names:
        stem, count = name, 1
        while name in found:
            count += 1
            name = _SECOND.get(name) or f"{stem}_{count}"
        found.append(name)
    return found
