"""What the words of a text mean: sizes, macros, aggregations, scalars, indices, and their place."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from eindecomp.errors import EinDecompError, OperandError, Source, TextError, suggest
from eindecomp.graph.checks import warn_of_lone_labels
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Op
from eindecomp.graph.text.macros import prelude, prelude_monoids
from eindecomp.graph.vertex import Vertex, show
from eindecomp.lang.einsum import Labels, Operand, Sizes
from eindecomp.lang.monoid import BUILTIN, Monoid, find_monoid
from eindecomp.lang.names import CONSTANTS
from eindecomp.lang.scalar import Expr, Scalar
from eindecomp.lang.text import syntax as s


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
    numbered: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    """The tensors of numbers that were added for labels of a size."""
    expanded: int = 0
    """How many statements macros have expanded to."""
    known: dict[str, int] = field(default_factory=dict[str, int])
    """The sizes of labels in the statement that is being read."""

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
    def at(self, offset: int, refs: Sequence[s.Ref | s.Name] = ()) -> Generator[None]:
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

    def label_size(self, label: str) -> int | None:
        """The size that the statement, or else a declaration, tells; None if there is none."""
        declared = self.sizes.get(label, ())
        return self.known.get(label, next(iter(declared)) if len(declared) == 1 else None)

    def size_of(self, label: str, at: int) -> int:
        """The same; an error if there is none."""
        size = self.label_size(label)
        return self.size(label, at) if size is None else size

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
            if isinstance(item, s.Arithmetic):
                example = as_gather(ref, item, self.sizes, self.graph.fresh("at"))
                message = f"an index is a sum of labels, else gather it, such as\n{example}"
                raise self.error(message, item.at)
            if isinstance(item, s.Star | s.Scattered | s.Placed):
                raise self.error(f"{ref.name} cannot have this index here", item.at)
            if isinstance(item, s.Label) and item.size not in (None, size):
                message = f"label {item.name!r} of {ref.name} has size {size}, not {item.size}"
                raise self.error(message, item.at)
        return vertex

    def aggregates(self, name: str) -> bool:
        """Whether a name is that of an aggregation."""
        return name in self.monoids or name in prelude_monoids()

    def aggregation(self, name: str, at: int) -> Monoid:
        """The aggregation of a name, which may select a value: `attend.1`."""
        # What a macro of the prelude uses is its own, whatever the text defines under that name.
        known = {**self.monoids, **prelude_monoids()} if self.active else self.monoids
        monoid = find_monoid(name, known) or find_monoid(name, prelude_monoids())
        if monoid is not None:
            return monoid
        if name in self.macros:
            labels = ", ".join(self.macros[name].labels)
            raise self.error(f"{name!r} is a macro: write {name}[{labels}]", at)
        hint = suggest(name, self.monoids)
        raise self.error(f"{name!r} is not a known commutative monoid{hint}", at)

    def word(self, term: s.Name) -> Expr:
        """What a bare word in a join stands for: a run-time scalar."""
        if term.name in self.graph.scalars:
            return Scalar(term.name)
        if term.name in self.graph:
            raise self.error(f"{term.name!r} is a tensor: write {term.name}[…]", term.at)
        if term.name in self.monoids:
            raise self.error(f"an aggregation must come first: write '{term.name} (…)'", term.at)
        hint = suggest(term.name, self.graph.scalars) or f"; declare it with 'scalar {term.name}'"
        raise self.error(f"unknown scalar {term.name!r}{hint}", term.at)

    def with_sizes(self, term: s.Term, sizes: Sizes) -> s.Term:
        """Replace `size(label)` by numbers."""
        match term:
            case s.Apply("size", (s.Name(label, at),)):
                return s.Literal(sizes[label] if label in sizes else self.size(label, at), at)
            case s.Apply("size", _, at):
                raise self.error("size(label) takes one label", at)
            case s.Apply(op, args, at):
                return s.Apply(op, tuple(self.with_sizes(arg, sizes) for arg in args), at)
            case _:
                return term

    def with_numbers(self, terms: Sequence[s.Term], statement: s.Assign) -> tuple[s.Term, ...]:
        """Replace labels that are used as values by tensors of their indices."""
        target = statement.target
        labels = {item.name: item.size for item in target.items if isinstance(item, s.Label)}
        sizes = {label: size for label, size in labels.items() if size is not None}
        for ref in (*s.refs_of(terms), *statement.extra):
            sizes |= {label: self.known[label] for label in s.labels_of(ref) if label in self.known}
            sizes |= self.sizes_in(ref)
        labels |= sizes

        def numbers(label: str, at: int) -> s.Ref:
            size = sizes[label] if label in sizes else self.size(label, at)
            return self.numbers(label, size, statement.target.name, at)

        def replaced(term: s.Term) -> s.Term:
            match term:
                case s.Apply("index", (s.Name(label, at),)):
                    return numbers(label, at)
                case s.Apply("index", _, at):
                    raise self.error("index(label) takes one label", at)
                case s.Apply("size"):
                    return term
                case s.Name(name, at) if name in labels and name not in CONSTANTS:
                    is_taken = name in self.graph.scalars or name in self.graph
                    return term if is_taken else numbers(name, at)
                case s.Apply(op, args, at):
                    return s.Apply(op, tuple(replaced(arg) for arg in args), at)
                case _:
                    return term

        return tuple(replaced(term) for term in terms)

    def numbers(self, label: str, size: int, stem: str, at: int) -> s.Ref:
        """The tensor of a label's numbers, made when it is first asked for."""
        if (label, size) not in self.numbered:
            name = self.graph.fresh(f"{stem}_{label}")
            self.numbered[label, size] = self.graph.numbers(label, size, name).name
        return s.Ref(self.numbered[label, size], (s.Label(label, at),), at)

    def sizes_in(self, ref: s.Ref) -> dict[str, int]:
        """The sizes of the labels in a reference, as far as they are known without expanding it."""
        sizes: dict[str, int] = {}
        for item, size in zip(ref.items, self.tensor(ref).shape, strict=True):
            match item:
                case s.Label(name):
                    sizes[name] = size
                case s.Window(name, start, stop):
                    sizes[name] = stop - start
                case s.Group(labels):
                    sizes |= {label.name: label.size for label in labels if label.size is not None}
                case s.Lookup(inner):
                    sizes |= self.sizes_in(inner)
                case _:
                    pass
        return sizes

    def plain_labels(self, target: s.Ref) -> Labels:
        """The labels of a target that may have nothing but distinct labels."""
        labels: list[str] = []
        for item in target.items:
            if not isinstance(item, s.Label):
                raise self.error(f"{target.name} needs plain labels here", item.at)
            if item.name in labels:
                raise self.error(f"label {item.name!r} appears twice in {target.name}", item.at)
            labels.append(item.name)
        return tuple(labels)

    def own_sizes(self, target: s.Ref) -> dict[str, int]:
        """The sizes of a target's labels, as written there or declared before."""
        self.plain_labels(target)
        labels = (item for item in target.items if isinstance(item, s.Label))
        return {i.name: self.size(i.name, i.at) if i.size is None else i.size for i in labels}


# Labels that were probably misspelt


def refuse_mistyped(
    scope: Scope, target: s.Ref, refs: Mapping[Operand, s.Ref], aggregated: Collection[str]
) -> None:
    """Refuse `Z[i,k] <- sum X[i,j] * Y[j,q]` of `Y[j,k]`, where q is not declared.

    It would sum over q and give every k the same; who wants that writes `Z[i, k: 50]`.
    """
    read = {label for _, own in refs for label in own}
    unsized = {item.name for item in target.items if isinstance(item, s.Label) and not item.size}
    missing = set[str]() if scope.active else unsized - read
    for (name, own), ref in refs.items():
        made = scope.graph[name].labels
        for label, was in zip(own, made, strict=True):
            if was in missing and label in aggregated and label not in scope.sizes:
                wanted = tuple(was if each == label else each for each in own)
                raise scope.error(
                    f"label {label!r} is not declared, and no input here has {was!r}: write "
                    f"{show(name, wanted)}, or '{was}: SIZE' in {target.name} to repeat the result "
                    f"for every {was}",
                    ref.at,
                )


def warn_of_misspelt(scope: Scope, op: Op, sizes: Sizes, refs: Mapping[Operand, s.Ref]) -> None:
    """Warn of `Z[i,k] <- sum X[i,jj] * Y[j,k]`, unless a macro says so."""
    if not scope.active:
        places = {label: ref.at for (_, own), ref in refs.items() for label in own}
        warn_of_lone_labels(op, sizes, lambda told, at: str(scope.error(told, places[at])))


# Indices that are computed


def as_gather(ref: s.Ref, item: s.Arithmetic, declared: Mapping[str, set[int]], name: str) -> str:
    """Two lines of text: the indices as a fill, and the reference that looks them up.

    >>> window = s.Arithmetic("w + r", ("w", "r"), 0)
    >>> ref = s.Ref("X", (s.Label("b", 0), window), 0)
    >>> print(as_gather(ref, window, {"r": {3}}, "at"))
      at[w: SIZE, r: 3] <- fill w + r
      … X[b, at[w,r]] …
    """
    sizes = (f"{label}: {min(declared.get(label, {'SIZE'}))}" for label in item.labels)
    inner = f"{name}[{','.join(item.labels)}]"
    items = ", ".join(inner if other is item else s.label_of(other) or "…" for other in ref.items)
    return f"  {name}[{', '.join(sizes)}] <- fill {item.text}\n  … {ref.name}[{items}] …"
