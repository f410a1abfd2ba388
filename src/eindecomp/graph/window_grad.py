"""Gradients through windows: what an element gets is a window of the adjoint, summed.

Element x of X is read at the places where (Σ times · label + offset) / divisor = x. Solved for one
of the labels, that says where the adjoint is read for x and the other labels, over which it is
summed. Where none can be solved for, as of one index alone or where places beyond the end read the
last element, they are compared with x.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill, Window, relabel
from eindecomp.graph.vertex import Vertex, unused_label
from eindecomp.lang.einsum import Labels, Operand
from eindecomp.lang.index import CLAMP, Index, index_of
from eindecomp.lang.scalar import Arg, Call, Expr, call, replace_args, used_args


@dataclass
class SeenThrough:
    """A tensor that is read through a window, with its dimensions' labels and what these solve."""

    graph: Graph
    operand: Operand
    """The window, and the labels of what it shows."""
    sizes: dict[str, int]
    output: list[str] = field(default_factory=list[str])
    """The labels of the tensor's dimensions."""
    places: dict[str, Index] = field(default_factory=dict[str, Index])
    """Where the labels that are solved for are read."""
    inside: dict[str, list[Expr]] = field(default_factory=dict[str, list[Expr]])
    """What holds where those places are some of their label's."""
    equal: list[Expr] = field(default_factory=list[Expr])
    """What holds where nothing is solved for and an element is read."""
    numbers: list[str] = field(default_factory=list[str])
    """The labels whose numbers those conditions read, in the order of their arguments."""

    @staticmethod
    def of(graph: Graph, operand: Operand, sizes: dict[str, int]) -> SeenThrough:
        """With a label, and what it solves or is compared with, for every dimension."""
        own = SeenThrough(graph, operand, {**sizes})
        name, labels = operand
        window = relabel(graph[name].op, dict(zip(graph[name].labels, labels, strict=True)).get)  # pyright: ignore[reportArgumentType]
        assert isinstance(window, Window)  # noqa: S101
        for index, size in zip(window.index, own.source.shape, strict=True):
            own._add(index, size)
        return own

    @property
    def source(self) -> Vertex:
        """The tensor."""
        return self.graph[self.graph[self.operand[0]].inputs[0]]

    def _add(self, index: Index, size: int) -> None:
        label = index.alone
        taken = {*self.output, *self.places}
        if label is not None and self.sizes[label] == size and label not in taken:
            self.output.append(label)
            return
        place = unused_label(f"at{len(self.output)}", {*self.sizes, *self.output})
        self.sizes[place] = size
        free = [term for term in index.terms if term[0] not in {*self.output, *self.numbers}]
        if index.outside != CLAMP and free and self.places.keys().isdisjoint(index.labels):
            # The others are summed over: the fewer, the better.
            most = max(free, key=lambda term: (self.sizes[term[0]], -abs(term[1])))
            self._solve(index, place, *most)
        else:
            at = self._number(index)
            if index.outside == CLAMP:
                at = call("min", call("max", at, 0), size - 1)
            self.equal.append(call("eq", at, call("mul", self._label(place), index.divisor)))
        self.output.append(place)

    def _solve(self, index: Index, place: str, label: str, times: int) -> None:
        sign = 1 if times > 0 else -1
        terms = {x: -sign * n for x, n in index.terms if x != label}
        terms[place] = sign * index.divisor
        own = index_of(terms, -sign * index.offset, abs(times), 0)
        self.places[label] = own
        at = self._number(own)
        inside: list[Expr] = [call("ge", at, 0), call("lt", at, self.sizes[label] * own.divisor)]
        inside += [call("eq", call("mod", at, own.divisor), 0)] if own.divisor > 1 else []
        self.inside[label] = inside

    def _label(self, label: str) -> Expr:
        if (own := self.places.get(label)) is not None:
            return call("floordiv", self._number(own), own.divisor)
        if label not in self.numbers:
            self.numbers.append(label)
        return Arg(self.numbers.index(label))

    def _number(self, index: Index) -> Expr:
        terms = [call("mul", self._label(label), times) for label, times in index.terms]
        return reduce(lambda a, b: call("add", a, b), terms, call("int64", index.offset))

    def read(self, operands: Sequence[Operand], value: Expr) -> tuple[list[Operand], Expr]:
        """The operands that a value reads at these places, and the value where that counts.

        A product is 0 where one of its operands is: beyond the numbers of labels that it has.
        """
        used = used_args(value)
        others = [operands[k] for k in used if operands[k] != self.operand]
        has = {la for _, own in others for la in own} if _is_product(value) else set[str]()
        for label in self.places:  # they are summed over no more
            del self.sizes[label]
        read = [self._operand(operands[k]) for k in used]
        value = replace_args(value, {k: Arg(place) for place, k in enumerate(used)})
        inside = [own for label, every in self.inside.items() if label not in has for own in every]
        holds = [*inside, *self.equal]
        if holds:
            shape = {label: self.sizes[label] for label in self.numbers}
            fill = Fill(tuple(shape), reduce(lambda a, b: call("and", a, b), holds))
            mask = self.graph.add(fill, [], self.graph.fresh(f"grad_{self.source.name}_at"), shape)
            value = call("where", Arg(len(read)), value, 0)
            read.append((mask.name, mask.labels))
        return read, value

    def _operand(self, operand: Operand) -> Operand:
        name, labels = operand
        if operand == self.operand:
            return self.source.name, tuple(self.output)
        if self.places.keys().isdisjoint(labels):
            return operand
        index = tuple(self.places.get(label) or Index(((label, 1),)) for label in labels)
        shown: Labels = tuple(dict.fromkeys(label for each in index for label in each.labels))
        window = Window(shown, tuple(self.sizes[label] for label in shown), index)
        return self.graph.add(window, [name], self.graph.fresh(f"{name}_1")).name, shown


def _is_product(value: Expr) -> bool:
    match value:
        case Call("mul" | "neg" | "conj", args):
            return all(map(_is_product, args))
        case Call():
            return False
        case _:
            return True
