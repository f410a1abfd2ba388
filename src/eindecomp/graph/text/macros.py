"""Macros: expanding `P[h,s,t] <- softmax[t] U[h,s,t]` into plain statements.

A macro names some labels in brackets; in its parameters `*b` collects all other labels of the
tensor that is passed. A list such as `[*q, *k, t]` holds each label once. Expansion works on
syntax: it renames, and leaves the meaning to `elaborate`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from eindecomp.errors import ExpressionError, MacroError, Source, suggest
from eindecomp.graph.vertex import unused_label
from eindecomp.lang.monoid import Monoid
from eindecomp.lang.names import check_label, check_name
from eindecomp.lang.scalar import FUNCTIONS, Const, values
from eindecomp.lang.text import syntax as s
from eindecomp.lang.text.resolve import named_leaf, read_statements, resolve, resolve_values

MAX_NESTING = 32
MAX_STATEMENTS = 100_000
"""How many statements a text's macros may expand to: those that call others grow fast."""


@cache
def prelude() -> Mapping[str, s.MacroDecl]:
    """The macros that every text can use."""
    return {d.name: d for d in _prelude()[1] if isinstance(d, s.MacroDecl)}


@cache
def prelude_monoids() -> Mapping[str, Monoid]:
    """The aggregations that its macros use."""
    source, declarations = _prelude()
    return {d.name: to_monoid(d, source) for d in declarations if isinstance(d, s.MonoidDecl)}


@cache
def _prelude() -> tuple[Source, tuple[s.Statement, ...]]:
    source = Source(Path(__file__).with_name("prelude.ein").read_text("utf-8"), "prelude.ein")
    return source, read_statements(source)


def to_monoid(decl: s.MonoidDecl, source: Source) -> Monoid:
    """The aggregation that a declaration defines."""
    names = [*decl.left, *decl.right]
    leaf = named_leaf(names, (), source)
    with_result = named_leaf([*names, "result"], (), source)
    identity = values(resolve_values(decl.identity, source, leaf))
    literals = tuple(item for item in identity if isinstance(item, Const))
    if len(literals) != len(decl.left):
        message = f"the identity of {decl.name!r} is {len(decl.left)} literal numbers"
        raise ExpressionError(message)
    combine = resolve_values(decl.combine, source, leaf)
    finish = None if decl.finish is None else resolve(decl.finish, source, leaf)
    rule = None if decl.rule is None else resolve_values(decl.rule, source, with_result)
    return Monoid(decl.name, combine, literals, finish, rule)


def check_macro(macro: s.MacroDecl) -> None:
    """Refuse a macro that could never be expanded."""
    check_name(macro.name, "macro")
    if macro.name in FUNCTIONS:
        raise MacroError(f"{macro.name!r} cannot name a macro: it is a function")
    for label in macro.labels:
        check_label(label)
    names = [*(param.name for param in macro.params), *(name for name, _ in macro.options)]
    for part in (macro.labels, names):
        twice = [name for name in part if part.count(name) > 1]
        if twice:
            raise MacroError(f"macro {macro.name}: {twice[0]!r} appears twice in its head")
    for param in macro.params:
        stars = [item for item in param.items if isinstance(item, s.Star)]
        if len(stars) > 1:
            raise MacroError(f"macro {macro.name}: {param.name} has more than one *")
        for item in param.items:
            if not isinstance(item, s.Star | s.Label):
                raise MacroError(f"macro {macro.name}: {param.name} may only have labels and a *")
            if isinstance(item, s.Label) and item.name not in macro.labels:
                raise MacroError(
                    f"macro {macro.name}: label {item.name!r} of {param.name} is not among its "
                    f"labels [{', '.join(macro.labels)}]"
                )
    if not macro.body or macro.body[-1].target.name != macro.result.name:
        raise MacroError(f"macro {macro.name}: its last statement must assign {macro.result.name}")


@dataclass(frozen=True, slots=True)
class Passed:
    """A tensor passed to a macro: its name, its labels in the caller, and their sizes."""

    name: str
    labels: tuple[str, ...]
    sizes: tuple[int, ...]


def expand(
    macro: s.MacroDecl,
    call: s.MacroCall,
    target: s.Ref,
    passed: Sequence[Passed],
    fresh: Callable[[str], str],
) -> list[s.Assign]:
    """The statements a call stands for; the last one assigns `target`."""
    labels = _bind_labels(macro, call)
    stars = _bind_stars(macro, labels, passed)
    options = _bind_options(macro, call)
    pairs = (zip(tensor.labels, tensor.sizes, strict=True) for tensor in passed)
    sizes = dict(label_and_size for pair in pairs for label_and_size in pair)
    # A label that no tensor has, such as the ranks of a top_k, is sized by the caller.
    new = (item for item in target.items if isinstance(item, s.Label) and item.name not in sizes)
    sizes |= {item.name: item.size for item in new if item.size is not None}
    names = [statement.target.name for statement in macro.body[:-1]]
    locals_ = {name: fresh(f"{target.name}_{name}") for name in names}
    tensors = {p.name: (p, t) for p, t in zip(macro.params, passed, strict=True)}
    expansion = _Expansion(macro, labels, stars, options, sizes, locals_, tensors, call.at)
    *body, last = [expansion.assign(statement) for statement in macro.body]
    return [*body, replace(last, target=_retarget(macro, last.target, target))]


def _bind_labels(macro: s.MacroDecl, call: s.MacroCall) -> dict[str, str]:
    given: list[str] = []
    for item in call.labels:
        if not isinstance(item, s.Label) or item.size is not None:
            raise MacroError(f"macro {macro.name} takes plain labels in its brackets")
        given.append(item.name)
    if len(given) != len(macro.labels):
        wanted = ", ".join(macro.labels)
        raise MacroError(
            f"macro {macro.name}[{wanted}] takes {len(macro.labels)} labels, got {given}"
        )
    if len(call.args) != len(macro.params):
        names = ", ".join(param.name for param in macro.params)
        raise MacroError(
            f"macro {macro.name} takes {len(macro.params)} tensors ({names}), got {len(call.args)}"
        )
    return dict(zip(macro.labels, given, strict=True))


def _bind_stars(
    macro: s.MacroDecl, labels: Mapping[str, str], passed: Sequence[Passed]
) -> dict[str, tuple[str, ...]]:
    stars: dict[str, tuple[str, ...]] = {}
    for param, tensor in zip(macro.params, passed, strict=True):
        named = [labels[item.name] for item in param.items if isinstance(item, s.Label)]
        shown = f"{tensor.name}[{','.join(tensor.labels)}]"
        for label in named:
            if label not in tensor.labels:
                raise MacroError(f"macro {macro.name}: {shown} has no label {label!r}")
        rest = tuple(label for label in tensor.labels if label not in named)
        star = next((item.name for item in param.items if isinstance(item, s.Star)), None)
        if star is None and rest:
            raise MacroError(f"macro {macro.name}: {shown} has an extra label {rest[0]!r}")
        if star is not None and stars.setdefault(star, rest) != rest:
            raise MacroError(f"macro {macro.name}: *{star} is both {stars[star]} and {rest}")
    return stars


def _bind_options(macro: s.MacroDecl, call: s.MacroCall) -> dict[str, s.Literal]:
    options = dict(macro.options)
    given = [name for name, _ in call.options]
    for name, value in call.options:
        if given.count(name) > 1:
            raise MacroError(f"macro {macro.name}: option {name!r} is given twice")
        if name not in options:
            raise MacroError(f"macro {macro.name} has no option {name!r}{suggest(name, options)}")
        options[name] = value
    return {name: s.Literal(value, call.at) for name, value in options.items()}


def _retarget(macro: s.MacroDecl, made: s.Ref, wanted: s.Ref) -> s.Ref:
    """The result under the caller's name and in the caller's order of labels."""
    have = {item.name: item for item in made.items if isinstance(item, s.Label)}
    want = [item.name for item in wanted.items if isinstance(item, s.Label)]
    if len(want) != len(wanted.items) or sorted(want) != sorted(have):
        raise MacroError(
            f"macro {macro.name} yields labels [{', '.join(have)}], but {wanted.name} has "
            f"[{', '.join(getattr(item, 'name', '…') for item in wanted.items)}]"
        )
    return s.Ref(wanted.name, tuple(have[name] for name in want), wanted.at)


def _terms(rhs: s.Rhs) -> tuple[s.Term, ...]:
    match rhs:
        case s.Aggregate(terms=terms) | s.MacroCall(args=terms):
            return terms
        case s.FillTerm():
            return ()


@dataclass(frozen=True, slots=True)
class _Expansion:
    """What the words of a macro's body stand for in one call."""

    macro: s.MacroDecl
    labels: Mapping[str, str]
    stars: Mapping[str, tuple[str, ...]]
    options: Mapping[str, s.Literal]
    sizes: Mapping[str, int]
    locals: Mapping[str, str]
    tensors: Mapping[str, tuple[s.Ref, Passed]]
    at: int

    def assign(self, statement: s.Assign) -> s.Assign:
        target = self.ref(statement.target, is_target=True)
        extra = tuple(self.ref(ref) for ref in statement.extra)
        indices = {i.name for i in statement.target.items if isinstance(i, s.Label)}
        for ref in (*s.refs_of(_terms(statement.rhs)), *statement.extra):
            indices |= set(s.labels_of(ref))
        match statement.rhs:
            case s.Aggregate(agg, terms):
                within = tuple(self.term(term, indices) for term in terms)
                rhs: s.Rhs = s.Aggregate(agg, within, self.at)
            case s.FillTerm(term):
                rhs = s.FillTerm(self.term(term, indices), self.at)
            case s.MacroCall(labels=labels, args=args) as call:
                indices |= {item.name for item in labels if isinstance(item, s.Label)}
                args = tuple(self.term(arg, indices) for arg in args)
                rhs = replace(call, labels=self.items(labels), args=args, at=self.at)
        return s.Assign(target, rhs, extra, self.at)

    def term(self, term: s.Term, indices: Container[str] = ()) -> s.Term:
        """A term of the body; `indices` are the labels that words may stand for."""
        match term:
            case s.Ref():
                return self.ref(term)
            case s.Name(name):
                if name in self.options:
                    return self.options[name]
                if name in indices:
                    return s.Apply("index", (s.Name(self.label(name), self.at),), self.at)
                return s.Name(name, self.at)
            case s.Literal(value):
                return s.Literal(value, self.at)
            case s.Apply("size", (s.Name(name),)) if self.label(name) in self.sizes:
                return s.Literal(self.sizes[self.label(name)], self.at)
            case s.Apply("index", (s.Name(name),)):
                return s.Apply("index", (s.Name(self.label(name), self.at),), self.at)
            case s.Apply(op, args):
                return s.Apply(op, tuple(self.term(arg, indices) for arg in args), self.at)

    def label(self, name: str) -> str:
        """A label of the body in the caller: bound, or kept apart from the caller's own."""
        if name in self.labels:
            return self.labels[name]
        return unused_label(name, {*self.sizes, *self.labels.values()})

    def items(self, items: Sequence[s.Item]) -> tuple[s.Item, ...]:
        """Indices with labels replaced and stars spelled out, each label once in a starred list."""
        spelled: list[s.Item] = []
        for item in items:
            match item:
                case s.Star(name):
                    if name not in self.stars:
                        raise MacroError(f"macro {self.macro.name}: nothing is bound to *{name}")
                    spelled += [s.Label(label, self.at) for label in self.stars[name]]
                case s.Label(name) | s.Window(name):
                    spelled.append(replace(item, name=self.label(name), at=self.at))
                case s.Fixed():
                    spelled.append(replace(item, at=self.at))
                case s.Arithmetic(text):
                    raise MacroError(
                        f"macro {self.macro.name}: an index is a sum of labels: fill a tensor with "
                        f"{text} and look it up"
                    )
                case s.Affine() | s.Placed():
                    spelled.append(self.place(item))
                case s.Group(labels):
                    group = tuple(replace(n, name=self.label(n.name), at=self.at) for n in labels)
                    spelled.append(s.Group(group, self.at))
                case s.Lookup(ref):
                    spelled.append(s.Lookup(self.ref(ref), self.at))
                case s.Scattered(label, ref):
                    row = replace(label, name=self.label(label.name), at=self.at)
                    spelled.append(s.Scattered(row, self.ref(ref), self.at))
        if any(isinstance(item, s.Star) for item in items):
            return tuple(dict.fromkeys(spelled))
        return tuple(spelled)

    def place(self, item: s.Affine | s.Placed) -> s.Item:
        """A computed place with labels replaced, and options by their numbers."""
        if isinstance(item, s.Placed):
            label = replace(item.label, name=self.label(item.label.name), at=self.at)
            return s.Placed(label, self.affine(item.place), self.at)
        return self.affine(item)

    def affine(self, item: s.Affine) -> s.Affine:
        """The same of one that is read."""
        products: list[tuple[int, tuple[str, ...]]] = []
        for times, names in item.products:
            left: list[str] = []
            for name in names:
                value = self.options[name].value if name in self.options else None
                if isinstance(value, int):
                    times *= value
                elif value is not None:
                    raise MacroError(f"macro {self.macro.name}: {name} is no whole number")
                elif name.startswith("size("):
                    left.append(f"size({self.label(name[5:-1])})")
                else:
                    left.append(self.label(name))
            products.append((times, tuple(left)))
        return replace(item, products=tuple(products), at=self.at)

    def ref(self, ref: s.Ref, *, is_target: bool = False) -> s.Ref:
        if ref.name in self.tensors:
            if is_target:
                raise MacroError(f"macro {self.macro.name} assigns its parameter {ref.name}")
            return self.param(ref, *self.tensors[ref.name])
        items = self.items(ref.items)
        if is_target:
            # Labels that only the caller's tensors size, as in a fill, get their sizes here.
            items = tuple(
                replace(i, size=self.sizes.get(i.name))
                if isinstance(i, s.Label) and i.size is None
                else i
                for i in items
            )
        return s.Ref(self.locals.get(ref.name, ref.name), items, self.at)

    def param(self, ref: s.Ref, declared: s.Ref, tensor: Passed) -> s.Ref:
        """A parameter in the body: its indices in the order of the tensor that was passed."""
        unlike = MacroError(
            f"macro {self.macro.name}: {ref.name} must be used with indices like those it has "
            f"among the parameters"
        )
        if len(ref.items) != len(declared.items):
            raise unlike
        place: dict[str, s.Item] = {}
        for was, now in zip(declared.items, ref.items, strict=True):
            # `check_macro` let nothing but stars and labels through.
            bound = (
                self.stars[was.name] if isinstance(was, s.Star) else (self.label(s.label_of(was)),)
            )
            spelled = self.items([now])
            if len(spelled) != len(bound):
                raise unlike
            place |= dict(zip(bound, spelled, strict=True))
        return s.Ref(tensor.name, tuple(place[label] for label in tensor.labels), self.at)
