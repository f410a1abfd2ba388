"""What the words of a text mean: sizes, macros, aggregations, scalars, and where they stand."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eindecomp.errors import EinDecompError, OperandError, Source, TextError, suggest
from eindecomp.graph.text.macros import prelude
from eindecomp.lang.monoid import BUILTIN, Monoid, find_monoid
from eindecomp.lang.scalar import Expr, Scalar
from eindecomp.lang.text import syntax as s
from eindecomp.lang.text.terms import label_of

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.lang.einsum import Labels


@dataclass(slots=True)
class Scope:
    """The graph that a text adds to, and what its statements so far have declared."""

    graph: Graph
    source: Source
    sizes: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    macros: dict[str, s.MacroDecl] = field(default_factory=lambda: dict(prelude()))
    monoids: dict[str, Monoid] = field(default_factory=lambda: dict(BUILTIN))
    active: list[str] = field(default_factory=list[str])
    """The macros being expanded, outermost first."""
    expanded: int = 0
    """How many statements macros have expanded to."""

    def __post_init__(self) -> None:
        self.monoids |= self.graph.monoids
        for vertex in self.graph.inputs:
            for label, size in vertex.sizes.items():
                self.declare(label, size)

    def error(self, message: str, at: int) -> TextError:
        """An error at an offset of the text."""
        inside = f"in macro {self.active[-1]}: " if self.active else ""
        return TextError(f"{inside}{message}", self.source, at)

    @contextmanager
    def at(self, offset: int, refs: Sequence[s.Ref] = ()) -> Generator[None]:
        """Locate errors at `offset`, or at the reference that an error names."""
        try:
            yield
        except TextError:
            raise
        except OperandError as error:
            offset = refs[error.operand].at if error.operand < len(refs) else offset
            raise self.error(str(error), offset) from None
        except EinDecompError as error:
            raise self.error(str(error), offset) from None

    def declare(self, label: str, size: int) -> None:
        """Note the size that a declaration gives a label."""
        self.sizes.setdefault(label, set()).add(size)

    def size(self, label: str, at: int) -> int:
        """The size a label was declared with."""
        match sorted(self.sizes.get(label, ())):
            case [size]:
                return size
            case []:
                raise self.error(
                    f"label {label!r} has no size: it is in no input here and no declaration; "
                    f"write '{label}: SIZE'",
                    at,
                )
            case several:
                shown = " and ".join(map(str, several))
                raise self.error(f"label {label!r} was declared with sizes {shown}: say which", at)

    def tensor(self, ref: s.Ref) -> Vertex:
        """The vertex that a reference names; it must have as many dimensions as indices."""
        if ref.name not in self.graph:
            if ref.name in self.macros:
                raise self.error(f"{ref.name!r} is a macro: write {ref.name}[…](…), alone", ref.at)
            hint = suggest(ref.name, self.graph.vertices)
            raise self.error(f"unknown tensor {ref.name!r}{hint}", ref.at)
        vertex = self.graph[ref.name]
        if len(ref.items) != len(vertex.shape):
            raise self.error(
                f"{ref.name} has {len(vertex.shape)} dimensions (shape {vertex.shape}), not "
                f"{len(ref.items)}",
                ref.at,
            )
        for item, size in zip(ref.items, vertex.shape, strict=True):
            if isinstance(item, s.Star | s.Scattered):
                raise self.error(f"{ref.name} cannot have this index here", item.at)
            if isinstance(item, s.Label) and item.size not in (None, size):
                message = f"label {item.name!r} of {ref.name} has size {size}, not {item.size}"
                raise self.error(message, item.at)
        return vertex

    def aggregation(self, name: str, at: int) -> Monoid:
        """The aggregation of a name, which may select a value: `attend.1`."""
        found = find_monoid(name, self.monoids)
        if found is not None:
            return found
        if name in self.macros:
            labels = ", ".join(self.macros[name].labels)
            raise self.error(f"{name!r} is a macro: write {name}[{labels}]", at)
        hint = suggest(name, self.monoids)
        raise self.error(f"{name!r} is not a commutative monoid that is known here{hint}", at)

    def word(self, term: s.Name) -> Expr:
        """What a bare word in a join stands for: a run-time scalar."""
        if term.name in self.graph.scalars:
            return Scalar(term.name)
        if term.name in self.graph:
            raise self.error(f"{term.name!r} is a tensor: write {term.name}[…]", term.at)
        if term.name in self.monoids:
            raise self.error(f"an aggregation stands first: write '{term.name} (…)'", term.at)
        hint = suggest(term.name, self.graph.scalars) or f"; declare it with 'scalar {term.name}'"
        raise self.error(f"unknown scalar {term.name!r}{hint}", term.at)

    def with_sizes(self, term: s.Term, sizes: Mapping[str, int]) -> s.Term:
        """Put numbers in the place of `size(label)`."""
        match term:
            case s.Apply("size", (s.Name(label, at),)):
                return s.Literal(sizes[label] if label in sizes else self.size(label, at), at)
            case s.Apply("size", _, at):
                raise self.error("size(label) takes one label", at)
            case s.Apply(op, args, at):
                return s.Apply(op, tuple(self.with_sizes(arg, sizes) for arg in args), at)
            case _:
                return term

    def plain_labels(self, target: s.Ref) -> Labels:
        """The labels of a target that may have nothing but distinct labels."""
        labels: list[str] = []
        for item in target.items:
            if not isinstance(item, s.Label):
                raise self.error(f"{target.name} needs plain labels here", item.at)
            if item.name in labels:
                raise self.error(f"label {item.name!r} stands twice in {target.name}", item.at)
            labels.append(item.name)
        return tuple(labels)

    def own_sizes(self, target: s.Ref) -> dict[str, int]:
        """The sizes of a target's labels, as written there or declared before."""
        self.plain_labels(target)
        return {
            item.name: self.size(item.name, item.at) if item.size is None else item.size
            for item in target.items
            if isinstance(item, s.Label)
        }

    def new_sizes(self, target: s.Ref, known: Mapping[str, int]) -> dict[str, int]:
        """The sizes of a target's labels that no input has."""
        new = tuple(item for item in target.items if label_of(item) not in known)
        return self.own_sizes(s.Ref(target.name, new, target.at))
