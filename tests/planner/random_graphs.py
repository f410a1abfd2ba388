"""Small random graphs of EinSums, trees and others, from a seed.

Kinds of vertex: matrix products, batched or not, maps of one or two tensors (the second may have
fewer labels), reductions to less or to a scalar, a tensor read twice under different labels, and
broadcasts; if asked for, windows, concatenations, look-ups, and dimensions that are split, merged
or summed into rows. In a tree no computed tensor is read twice; elsewhere readers pick freely.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import eindecomp as ed

SIZES = (1, 2, 3, 4, 4, 5, 6, 6, 7, 8, 8, 9, 10, 12, 12)
LARGER = (2, 3, 4, 5, 6, 7, 8, 8, 10, 12, 12, 15, 16, 18, 24, 24, 30, 36, 48, 48)
DTYPES = ("float16", "float32", "float32", "float64")
MOST_LABELS = 4
LETTERS = "abcdefghlnopqrstuvwxyzABCDEFGHIJKLMOPQSTUVWXYZ"
"""For kinds of dimension that come along the way; the first ones are i, j, k and m."""

Dims = tuple[str, ...]
"""The kind of each dimension: dimensions of one kind have one size."""


@dataclass
class Growth:
    """A graph that grows by one random vertex at a time."""

    rng: random.Random
    tree: bool
    kinds: dict[str, int]
    graph: ed.Graph = field(default_factory=ed.Graph)
    dims: dict[str, Dims] = field(default_factory=dict[str, Dims])
    reads: dict[str, int] = field(default_factory=dict[str, int])
    """How often each computed tensor is read."""

    def given(self, dims: Sequence[str]) -> str:
        """A new input."""
        name = f"X{len(self.graph.inputs)}"
        sizes = {label: self.kinds[label[0]] for label in named(dims)}
        self.graph.input(name, sizes, self.rng.choice(DTYPES))
        self.dims[name] = tuple(dims)
        return name

    def pick(self, test: Callable[[Dims], bool]) -> str | None:
        """A tensor to read: mostly a computed one that nobody has read yet."""
        fits = [name for name in self.reads if test(self.dims[name])]
        unread = [name for name in fits if not self.reads[name]]
        if unread and self.rng.random() < 0.85:
            return self.rng.choice(unread)
        if fits and not self.tree and self.rng.random() < 0.75:
            return self.rng.choice(fits)
        given = [v.name for v in self.graph.inputs if v.name in self.dims]
        old = [name for name in given if test(self.dims[name])]
        return self.rng.choice(old) if old and self.rng.random() < 0.4 else None

    def some(self, least: int = 1) -> str:
        """A tensor with at least one dimension; a new one has at least `least`."""
        count = min(len(self.kinds), self.rng.randint(least, 3))
        return self.pick(bool) or self.given(self.rng.sample(sorted(self.kinds), count))

    def add(
        self,
        operands: Sequence[tuple[str, Sequence[str]]],
        output: Sequence[str],
        join: str,
        agg: str = "sum",
        wide: str | None = None,
    ) -> None:
        """A new vertex; `wide` is a label of the output that no operand has."""
        name = f"Z{len(self.reads)}"
        spec = ", ".join(f" {' '.join(labels)} " for _, labels in operands)
        sizes = None if wide is None else {wide: self.kinds[wide[0]]}
        tensors = [operand for operand, _ in operands]
        self.graph.einsum(f"{spec} -> {' '.join(output)} ", *tensors, join=join, agg=agg,
                          name=name, sizes=sizes)  # fmt: skip
        self.note(name, output)

    def note(self, name: str, labels: Sequence[str]) -> None:
        """Remember a vertex whose dimensions are of the kinds of these labels."""
        for operand in self.graph[name].inputs:
            if operand in self.reads:
                self.reads[operand] += 1
        self.reads[name] = 0
        self.dims[name] = tuple(label[0] for label in labels)

    def product(self) -> None:
        """Over one or two shared labels, of which at least one is aggregated."""
        rng = self.rng
        x = self.some(2)
        left = named(self.dims[x])
        shared = rng.sample(left, rng.randint(1, min(2, len(left))))
        right = shared + named(rng.sample(sorted(self.kinds), rng.randint(0, 1)), left)
        rng.shuffle(right)
        wanted = [label[0] for label in right]
        found = self.pick(lambda dims: sorted(dims) == sorted(wanted))
        if found is not None:
            right = _arranged(right, self.dims[found])
        labels = list(dict.fromkeys(left + right))
        gone = rng.sample(shared, rng.randint(1, len(shared)))
        output = [label for label in labels if label not in gone]
        if len(labels) > MOST_LABELS or (self.tree and found == x):
            return
        rng.shuffle(output)
        operands = [(x, left), (found or self.given(wanted), right)]
        self.add(operands, output, rng.choice(["x * y", "(x - y)**2"]), rng.choice(["sum", "max"]))

    def map_one(self) -> None:
        """With its labels in any order."""
        x = self.some()
        labels = named(self.dims[x])
        self.add([(x, labels)], self.rng.sample(labels, len(labels)), "exp(x)")

    def map_two(self) -> None:
        """The second has some of the labels of the first, now and then none."""
        rng = self.rng
        x = self.some()
        left = named(self.dims[x])
        least = 0 if rng.random() < 0.2 else 1
        kept = rng.sample(range(len(left)), rng.randint(least, len(left)))
        right = [left[k] for k in sorted(kept)]
        dims = tuple(label[0] for label in right)
        y = self.pick(lambda own: own == dims) or self.given(dims)
        if x != y:
            self.add([(x, left), (y, right)], left, rng.choice(["x + y", "x * y"]))

    def reduce(self) -> None:
        """To fewer labels, now and then to none."""
        x = self.some(2)
        labels = named(self.dims[x])
        least = 0 if self.rng.random() < 0.12 else min(1, len(labels) - 1)
        output = self.rng.sample(labels, self.rng.randint(least, len(labels) - 1))
        self.add([(x, labels)], output, "x", self.rng.choice(["sum", "max"]))

    def gram(self) -> None:
        """A matrix with itself: one tensor under two names of a label."""
        x = self.pick(lambda dims: len(set(dims)) == 2 == len(dims))
        if x is None or (self.tree and x in self.reads):
            return
        i, k = self.dims[x]
        output = self.rng.choice([[i, f"{i}2"], [f"{i}2", i], [i, f"{i}2", k]])
        self.add([(x, [i, k]), (x, [f"{i}2", k])], output, "x * y")

    def broadcast(self) -> None:
        """Along one label more."""
        x = self.pick(lambda dims: 1 <= len(dims) <= 2)
        if x is None:
            return
        labels = named(self.dims[x])
        [wide] = named([self.rng.choice(sorted(self.kinds))], labels)
        output = self.rng.choice([[wide, *labels], [*labels, wide]])
        self.add([(x, labels)], output, "x * 2", wide=wide)

    def sized(self, size: int) -> str:
        """A kind of dimension that has this size, maybe a new one."""
        known = [kind for kind, own in self.kinds.items() if own == size]
        if not known:
            known = [next(letter for letter in LETTERS if letter not in self.kinds)]
            self.kinds[known[0]] = size
        return self.rng.choice(known)

    def window(self) -> None:
        """A part of a tensor along some of its dimensions."""
        x, rng = self.read_again(), self.rng
        labels = named(self.dims[x])
        ranges: dict[str, tuple[int, int]] = {}
        for label in rng.sample(labels, rng.randint(1, len(labels))):
            size = self.kinds[label[0]]
            start = rng.randrange(size)
            ranges[label] = (start, rng.randint(start + 1, size))
        name = f"Z{len(self.reads)}"
        self.graph.slice(f" {' '.join(labels)} ", x, ranges, name)
        made = self.graph[name].shape
        self.note(name, [self.sized(size) for size in made])

    def grow_along(self) -> None:
        """A tensor after another along one dimension, or after itself."""
        x, rng = self.read_again(), self.rng
        labels = named(self.dims[x])
        along = rng.choice(labels)
        same = self.pick(lambda dims: dims == self.dims[x]) or x
        if self.graph[same].dtype != self.graph[x].dtype or self.tree:
            same = self.given(self.dims[x]) if self.tree else x
        if self.graph[same].dtype != self.graph[x].dtype:
            return
        name = f"Z{len(self.reads)}"
        self.graph.concat(f" {' '.join(labels)} ", x, same, along=along, name=name)
        self.note(name, [self.sized(size) for size in self.graph[name].shape])

    def look_up(self) -> None:
        """Rows of a tensor along one dimension, or sums into rows."""
        x, rng = self.read_again(), self.rng
        labels = named(self.dims[x])
        at = rng.choice(labels)
        others = [label for label in labels if label != at]
        name, index = f"Z{len(self.reads)}", f"at{len(self.reads)}"
        if rng.random() < 0.5:
            [long] = named([rng.choice(sorted(self.kinds))], labels)
            self.graph.input(index, {"N": self.kinds[long[0]]}, "int64")
            output = rng.sample([*others, "N"], len(labels))
            spec = f" {' '.join(labels)} , N -> {' '.join(output)} "
            self.graph.gather(spec, x, index, name)
        else:
            self.graph.input(index, {"N": self.kinds[at[0]]}, "int64")
            output = rng.sample([*others, "R"], len(labels))
            spec = f" {' '.join(labels)} , {at} -> {' '.join(output)} "
            self.graph.scatter_add(spec, x, index, rng.randint(1, 8), name)
        self.note(name, [self.sized(size) for size in self.graph[name].shape])

    def regroup(self) -> None:
        """Dimensions are merged, or one is split."""
        x, rng = self.read_again(), self.rng
        labels = named(self.dims[x])
        name = f"Z{len(self.reads)}"
        split = rng.choice(labels)
        size = self.kinds[split[0]]
        factors = [n for n in range(2, size) if size % n == 0]
        if factors and rng.random() < 0.6:
            inside = [f"({split} x9)" if label == split else label for label in labels]
            order = rng.sample([*labels, "x9"], len(labels) + 1)
            spec, sizes = f"{' '.join(inside)} -> {' '.join(order)}", {split: rng.choice(factors)}
        else:
            order = rng.sample(labels, len(labels))
            at = rng.randrange(len(order))
            spec = f" {' '.join(labels)} -> {' '.join(order[:at])} ({' '.join(order[at:])}) "
            sizes = None
        self.graph.reshape(spec, x, sizes, name)
        self.note(name, [self.sized(size) for size in self.graph[name].shape])

    def read_again(self) -> str:
        """A tensor to read, where trees are not asked for mostly one that is read already."""
        fits = [name for name, n in self.reads.items() if n and self.dims[name]]
        if fits and not self.tree and self.rng.random() < 0.5:
            return self.rng.choice(fits)
        return self.some()


def named(dims: Sequence[str], taken: Sequence[str] = ()) -> list[str]:
    """Distinct labels whose first letter is the dimension's kind: i, then i2, i3."""
    found: list[str] = []
    for kind in dims:
        names = [kind, *(f"{kind}{n}" for n in range(2, 9))]
        found.append(next(name for name in names if name not in (*taken, *found)))
    return found


def _arranged(labels: Sequence[str], dims: Dims) -> list[str]:
    """The labels in the order in which a tensor has dimensions of their kinds."""
    left, found = list(labels), []
    for kind in dims:
        found.append(next(label for label in left if label[0] == kind))
        left.remove(found[-1])
    return found


def random_graph(
    seed: int,
    *,
    tree: bool,
    least: int = 1,
    most: int = 4,
    moves: bool = False,
    sizes: Sequence[int] = SIZES,
) -> ed.Graph:
    """A few vertices over two to four kinds of dimension; with `moves` not only EinSums."""
    rng = random.Random(seed)
    kinds = {kind: rng.choice(sizes) for kind in "ijkm"[: rng.randint(2, 4)]}
    growth = Growth(rng, tree, kinds)
    steps = [growth.product] * 3 + [growth.map_one, growth.map_two, growth.reduce]
    steps += [growth.gram, growth.broadcast]
    if moves:
        steps += [growth.window] * 4 + [growth.grow_along, growth.look_up, growth.regroup]
    wanted = rng.randint(least, most)
    while len(growth.reads) < wanted:
        rng.choice(steps)()
    outputs = [name for name, n in growth.reads.items() if n == 0 or rng.random() < 0.15]
    used = {name for v in growth.graph.vertices.values() for name in v.inputs} | set(growth.reads)
    vertices = [v for name, v in growth.graph.vertices.items() if name in used]
    return ed.Graph.of(vertices, outputs, {})


def random_chain(seed: int, *, least: int = 2, most: int = 5) -> ed.Graph:
    """Reductions of a tensor one after another, most of them with a new input.

    What one of them leaves cut inside its tile the next can compute just so, if axes nest in
    whatever order.
    """
    rng = random.Random(seed)
    kinds = {kind: rng.choice(LARGER) for kind in "ijkm"}
    growth = Growth(rng, tree=True, kinds=kinds)
    name = growth.given(rng.sample("ijkm", rng.randint(2, 3)))
    for _ in range(rng.randint(least, most)):
        left, agg = named(growth.dims[name]), rng.choice(["sum", "max"])
        if len(left) > 1 and rng.random() < 0.4:
            output = rng.sample(left, rng.randint(1, len(left) - 1))
            growth.add([(name, left)], output, "x", agg)
        else:
            gone = rng.sample(left, rng.randint(1, min(2, len(left))))
            kept = [label for label in left if label not in gone]
            new = named(rng.sample("ijkm", rng.randint(1, 3 - len(gone))), left)
            right = [*gone, *new]
            rng.shuffle(right)
            output = rng.sample([*kept, *new], min(3, len(kept) + len(new)))
            other = growth.given([label[0] for label in right])
            growth.add([(name, left), (other, right)], output, "x * y", agg)
        name = list(growth.reads)[-1]
    return ed.Graph.of(growth.graph.vertices.values(), [name], {})


def random_step(seed: int, *, least: int = 1, most: int = 3) -> tuple[ed.Graph, dict[str, str]]:
    """A graph that makes a new value of some of its inputs, and which result is whose.

    An update reads the old value and, where its type allows that, a result of which it sums over
    what the input does not have.
    """
    rng = random.Random(seed)
    graph = random_graph(seed, tree=False, least=least, most=most)
    results = [v for v in graph.vertices.values() if v.inputs]
    given = [v for v in graph.inputs if v.shape]
    tie: dict[str, str] = {}
    for vertex in rng.sample(given, min(len(given), rng.randint(1, 2))):
        labels = [f"a{k}" for k in range(len(vertex.shape))]
        left = dict(zip(labels, vertex.shape, strict=True))
        operands, spec, join = [vertex.name], " ".join(labels), "x * 2"
        other = rng.choice(results)
        if other.dtype.itemsize <= vertex.dtype.itemsize and rng.random() < 0.8:
            read: list[str] = []
            for k, size in enumerate(other.shape):
                same = [label for label, own in left.items() if own == size]
                read.append(rng.choice(same) if same else f"b{k}")
                left.pop(read[-1], None)
            operands, spec, join = [*operands, other.name], f"{spec}, {' '.join(read)} ", "x - y"
        name = f"new_{vertex.name}"
        graph.einsum(f"{spec} -> {' '.join(labels)}", *operands, join=join, agg="sum", name=name)
        graph.output(name)
        tie[vertex.name] = name
    return graph, tie
