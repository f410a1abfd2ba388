"""Small random graphs, from a seed, with chains of vertices that partial results pass through.

Contractions, sums of two or three results, differences, negations, products with whole tensors,
slices and reductions; chains of max-plus products, maxima and minima; and vertices that need all
of what they read. Readers pick freely.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from random_graphs import Growth, named

import eindecomp as ed

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZES = (2, 2, 3, 3, 4, 4, 4, 5)
ADDED, SCALED = ("x + y", "x - y", "y - x"), ("x * y", "x / y", "x + y", "x - y", "max(x, y)")
TAKEN = ("max(x, y)", "min(x, y)", "x + y", "x - y")
ALONE = ("-x", "-x", "x * 2", "x * -3", "x + 1", "x")
NOT_CARRIED = ("exp(x)", "relu(x)", "x * x", "abs(x)")


class Chains(Growth):
    """A graph that grows by vertices most of which are linear in what they read."""

    def some_made(self) -> str:
        """A result, mostly one that nobody has read yet, or else an input."""
        fits = [name for name in self.reads if self.dims[name]]
        unread = [name for name in fits if not self.reads[name]]
        if unread and self.rng.random() < 0.6:
            return self.rng.choice(unread)
        return self.rng.choice(fits) if fits and self.rng.random() < 0.95 else self.some()

    def agg(self) -> str:
        """Sums and maxima do not mix well: most graphs have but one kind."""
        first = "max" if len(self.kinds) % 2 else "sum"
        return self.rng.choice([first] * 6 + ["sum", "max", "min", "prod"])

    def contraction(self, dims: Sequence[str] | None = None) -> str:
        """A product of inputs, or of a result with one, that has these dimensions."""
        rng, agg = self.rng, self.agg()
        shared = rng.choice(sorted(self.kinds))
        dims = dims or tuple(rng.sample(sorted(self.kinds), rng.randint(1, 2)))
        output = named(dims)
        [gone] = named([shared], output)
        keep = rng.randint(0, len(output))
        sides = [[*output[:keep], gone], [gone, *output[keep:]]]
        operands: list[tuple[str, Sequence[str]]] = []
        for labels in sides:
            own = tuple(label[0] for label in labels)
            made = [name for name in self.reads if self.dims[name] == own]
            reuse = made and rng.random() < 0.3
            operands.append((rng.choice(made) if reuse else self.given(own), labels))
        if operands[0][0] == operands[1][0]:
            return self.contraction(dims)
        self.add(operands, output, "x * y" if agg in ("sum", "prod") else "x + y", agg)
        return list(self.reads)[-1]

    def combined(self) -> None:
        """Of two or three results, one of them maybe turned."""
        rng = self.rng
        x = self.some_made()
        dims = self.dims[x]
        more: list[str] = []
        for _ in range(rng.choice([1, 1, 1, 2])):
            fits = [n for n in self.reads if self.dims[n] == dims and n not in (x, *more)]
            more.append(rng.choice(fits) if fits and rng.random() < 0.6 else self.contraction(dims))
        labels = named(dims)
        join = rng.choice([*ADDED, *TAKEN] if self.agg() == "max" else ADDED)
        if len(more) == 2:
            join = rng.choice(["x + y + z", "x - y + z", "max(max(x, y), z)"])
        output = rng.sample(labels, len(labels))
        self.add([(name, labels) for name in dict.fromkeys((x, *more))], output, join)

    def scaled(self) -> None:
        """By a whole tensor with some of the labels, mostly an input."""
        rng = self.rng
        x = self.some_made()
        left = named(self.dims[x])
        kept = rng.sample(range(len(left)), rng.randint(0 if rng.random() < 0.2 else 1, len(left)))
        right = [left[k] for k in sorted(kept)]
        dims = tuple(label[0] for label in right)
        fits = [name for name in self.reads if self.dims[name] == dims and name != x]
        y = rng.choice(fits) if fits and rng.random() < 0.3 else self.given(dims)
        self.add([(x, left), (y, right)], left, rng.choice(SCALED))

    def alone(self) -> None:
        """Of one result."""
        labels = named(self.dims[x := self.some_made()])
        self.add([(x, labels)], self.rng.sample(labels, len(labels)), self.rng.choice(ALONE))

    def not_carried(self) -> None:
        """Of all of a result, unless of a maximum."""
        labels = named(self.dims[x := self.some_made()])
        self.add([(x, labels)], labels, self.rng.choice(NOT_CARRIED))

    def reduced(self) -> None:
        """To fewer labels."""
        labels = named(self.dims[x := self.some_made()])
        output = self.rng.sample(labels, self.rng.randint(0, len(labels) - 1))
        self.add([(x, labels)], output, "x", self.agg())

    def part(self) -> None:
        """Of a result along one dimension."""
        labels = named(self.dims[x := self.some_made()])
        label = self.rng.choice(labels)
        size = self.kinds[label[0]]
        if size > 1:
            count = self.rng.randint(1, size - 1)
            start = self.rng.randint(0, size - count)
            name = f"Z{len(self.reads)}"
            self.graph.slice(f" {' '.join(labels)} ", x, {label: (start, start + count)}, name)
            self.note(name, [self.sized(size) for size in self.graph[name].shape])


def random_linear(seed: int, *, least: int = 3, most: int = 6) -> ed.Graph:
    """A few vertices over two to four kinds of dimension."""
    rng = random.Random(seed)
    kinds = {kind: rng.choice(SIZES) for kind in "ijkm"[: rng.randint(2, 4)]}
    growth = Chains(rng, tree=False, kinds=kinds)
    steps = [growth.combined] * 3 + [growth.scaled] * 2 + [growth.alone, growth.reduced]
    steps += [growth.not_carried, growth.part, growth.contraction]
    wanted = rng.randint(least, most)
    while len(growth.reads) < wanted:
        rng.choice(steps)() if growth.reads else growth.contraction()
    outputs = [name for name, n in growth.reads.items() if n == 0 or rng.random() < 0.1]
    return ed.Graph.of(growth.graph.vertices.values(), outputs, {})
