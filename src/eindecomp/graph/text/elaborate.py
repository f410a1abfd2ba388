"""From `.ein` text to graphs: the meaning of each statement.

A statement's right-hand side is an EinSum unless its indices say otherwise: a tensor as an index is
a gather (left of `<-`: a scatter), `j in 2:10` a slice, `(h, d)` a split or a merge. Inside a
larger expression such an index becomes a vertex of its own first.
"""

from __future__ import annotations

from pathlib import Path

from eindecomp.errors import EinDecompError, Source, suggest
from eindecomp.graph.checks import expect
from eindecomp.graph.graph import Graph
from eindecomp.graph.infer import label_sizes
from eindecomp.graph.ops import Concat, Fill, ScatterAdd
from eindecomp.graph.text.macros import (
    MAX_NESTING,
    MAX_STATEMENTS,
    Passed,
    check_macro,
    expand,
    prelude,
    to_monoid,
)
from eindecomp.graph.text.operands import add_gather, add_reshape, to_distinct, to_plain
from eindecomp.graph.text.scope import Scope, refuse_mistyped, warn_of_misspelt
from eindecomp.graph.text.windows import add_window, filled, note_sizes, turned_round
from eindecomp.lang.einsum import EinSum, Operand
from eindecomp.lang.monoid import Monoid
from eindecomp.lang.scalar import FUNCTIONS, Arg, Expr, replace_args
from eindecomp.lang.text import syntax as s
from eindecomp.lang.text.resolve import (
    MAX_TEXT,
    named_leaf,
    read_statements,
    resolve,
    resolve_values,
)


def parse(text: str, name: str = "<text>") -> Graph:
    """Read a graph from text.

    Args:
        text: Statements, such as `"input X[i: 3]"`, one a line.
        name: What errors call the text, such as `"a.ein"`.

    Raises:
        TextError: The text is wrong; the message shows the line with a caret.

    Examples:
        >>> print(parse("input X[i: 3, j: 4]\\nZ[j] <- max X[i,j]\\noutput Z"))
        input X[i: 3, j: 4]
        Z[j] <- max X[i,j]
        output Z
    """
    return extend(Graph(), text, name)


def load(path: str | Path) -> Graph:
    """Read a graph from a `.ein` file.

    Args:
        path: The file, such as `"examples/matmul.ein"`.

    Raises:
        TextError: The text is wrong; the message shows the line with a caret.
        OSError: The file cannot be read.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "double.ein")
        ...     _ = path.write_text("input X[i: 3]\\nZ[i] <- 2 * X[i]\\noutput Z")
        ...     load(path)
        <Graph of 2 vertices, outputs: Z>
    """
    path = Path(path)
    with path.open("rb") as file:
        data = file.read(4 * MAX_TEXT + 1)  # a character has at most four bytes
    try:
        text = data.decode("utf-8-sig")  # Windows' editors may put a byte-order mark first
    except UnicodeDecodeError as error:
        message = f"{path} is not UTF-8 text: {error.reason} at byte {error.start}"
        raise EinDecompError(message) from None
    return parse(text, str(path))


def extend(graph: Graph, text: str, name: str = "<text>") -> Graph:
    """Add the statements of a text to a graph, which it returns.

    Of a text with an error, the statements before it have been added.

    Args:
        graph: What they are added to, such as `ed.Graph()`.
        text: Statements, such as `"P[s,t] <- softmax[t] U[s,t]"`.
        name: What errors call the text, such as `"a.ein"`.

    Examples:
        >>> g = Graph()
        >>> _ = g.input("U", {"s": 3, "t": 4})
        >>> len(extend(g, "P[s,t] <- softmax[t] U[s,t]"))
        5
    """
    source = Source(expect(text, str, "a text"), name)
    scope = Scope(graph, source)
    for statement in read_statements(source):
        _statement(scope, statement)
    return graph


def _statement(scope: Scope, statement: s.Statement) -> None:
    with scope.at(statement.at):
        match statement:
            case s.InputDecl(ref, dtype):
                for item in ref.items:
                    if isinstance(item, s.Label) and item.size is not None:
                        scope.declare(item.name, item.size)
                scope.graph.input(ref.name, scope.own_sizes(ref), dtype or "float32")
            case s.ScalarDecl(name, dtype):
                scope.graph.scalar(name, dtype or "float32")
            case s.OutputDecl(name):
                scope.graph.output(name)
            case s.TieDecl(given, result):
                with scope.at(statement.at, (given, result)):
                    scope.graph.tie(given.name, result.name)
            case s.MacroDecl(name):
                check_macro(statement)
                if scope.macros.get(name) not in (None, prelude().get(name)):
                    raise scope.error(f"macro {name!r} is defined already", statement.at)
                scope.macros[name] = statement
            case s.MonoidDecl(name):
                if name in scope.monoids:
                    raise scope.error(f"aggregation {name!r} is defined already", statement.at)
                scope.monoids[name] = to_monoid(statement, scope.source)
            case s.Assign():
                _assign(scope, statement)


def _assign(scope: Scope, statement: s.Assign) -> None:
    rhs = _told_apart(scope, statement.rhs)
    note_sizes(scope, statement, rhs.labels if isinstance(rhs, s.MacroCall) else ())
    target = statement.target
    match rhs:
        case s.FillTerm(term):
            _refuse_extra(scope, statement)
            _fill(scope, target, term)
        case s.MacroCall(name) as call if name not in scope.macros and scope.aggregates(name):
            _aggregate_over(scope, statement, call)
        case s.MacroCall(name="concat") as call:
            _refuse_extra(scope, statement)
            _concat(scope, target, call)
        case s.MacroCall() as call:
            _refuse_extra(scope, statement)
            _macro(scope, target, call)
        case s.Aggregate(name, terms):
            agg = None if name is None else scope.aggregation(name, rhs.at)
            _aggregate(scope, statement, agg, terms)
    # Every size that is written in the target must be the one that was inferred.
    for item, size in zip(target.items, scope.graph[target.name].shape, strict=True):
        if isinstance(item, s.Label) and item.size not in (None, size):
            message = f"label {item.name!r} of {target.name} has size {size}, not {item.size}"
            raise scope.error(message, item.at)


def _aggregate(
    scope: Scope, statement: s.Assign, agg: Monoid | None, terms: tuple[s.Term, ...]
) -> None:
    statement, terms = turned_round(scope, statement, terms)
    terms = filled(scope, terms, agg)
    target, term = statement.target, terms[0]
    is_move = agg is None and isinstance(term, s.Ref) and not s.is_plain(term)
    if not is_move and not s.has(target, s.Scattered, s.Group):
        _einsum(scope, statement, agg, terms)
        return
    _refuse_extra(scope, statement)
    if len(terms) > 1:
        raise scope.error("several values need an aggregation over tuples", terms[1].at)
    if s.has(target, s.Scattered):
        _scatter(scope, target, agg, term)
    elif s.has(target, s.Group):
        _merge(scope, target, agg, term)
    elif isinstance(term, s.Ref):
        _move(scope, statement, term)


def _aggregate_over(scope: Scope, statement: s.Assign, call: s.MacroCall) -> None:
    """`sum[i, j] …`: the aggregated labels are named, and lent where no tensor has them."""
    if call.options:
        raise scope.error(f"aggregation {call.name!r} has no options", call.at)
    plain = s.Ref(call.name, call.labels, call.at)
    over = scope.plain_labels(plain)
    refs = (*s.refs_of(call.args), *statement.extra)
    inside = {label for ref in refs for label in s.labels_of(ref)}
    new = tuple(item for item in call.labels if s.label_of(item) not in inside)
    sizes = scope.own_sizes(s.Ref(call.name, new, call.at))
    name = statement.target.name
    lent = tuple(scope.numbers(label, n, name, call.at) for label, n in sizes.items())
    agg = scope.aggregation(call.name, call.at)
    value = s.Aggregate(call.name, call.args, call.at)
    told = s.Assign(statement.target, value, (*statement.extra, *lent), statement.at)
    _aggregate(scope, told, agg, call.args)
    op = scope.graph[statement.target.name].op
    aggregated = op.aggregated if isinstance(op, EinSum) else ()
    for label in {*aggregated} ^ {*over}:
        is_new = label in aggregated
        what = "aggregated too: name it" if is_new else "not aggregated: it is in the result"
        raise scope.error(f"label {label!r} is {what}", call.at)


def _refuse_extra(scope: Scope, statement: s.Assign) -> None:
    if statement.extra:
        raise scope.error("'with' is only allowed with a join", statement.extra[0].at)


def _told_apart(scope: Scope, rhs: s.Rhs) -> s.Rhs:
    """Tell `sum (a)**2` and `macro(a)` from the function calls they are written like."""
    if not isinstance(rhs, s.Aggregate) or rhs.agg is not None:
        return rhs
    term = rhs.terms[0]
    first = s.first_call(term)
    if first is None or first.at != rhs.at:
        return rhs
    macro = scope.macros.get(first.op)
    # A macro with labels is not called without them: an aggregation of its name is meant.
    if first is term and macro and not (macro.labels and first.op in scope.monoids):
        return s.MacroCall(first.op, (), first.args, (), first.at)
    is_function = first.op in FUNCTIONS and len(first.args) > 1
    if not scope.aggregates(first.op) or is_function:
        return rhs
    if first is term:
        return s.Aggregate(first.op, first.args, rhs.at)
    if len(first.args) != 1:
        raise scope.error(f"nothing may follow the values of {first.op!r}", rhs.at)
    return s.Aggregate(first.op, (s.replace_first_call(term, first.args[0]),), rhs.at)


def _fill(scope: Scope, target: s.Ref, term: s.Term) -> None:
    sizes = scope.own_sizes(target)
    named = [*sizes, *(f"index({label})" for label in sizes)]
    leaf = named_leaf(named, scope.graph.scalars, scope.source)
    read = resolve(scope.with_sizes(term, sizes), scope.source, leaf)
    value = replace_args(read, [Arg(k) for k in range(len(sizes))] * 2)
    scope.graph.add(Fill(tuple(sizes), value), [], target.name, sizes)


def _refuse_open(scope: Scope, call: s.MacroCall) -> None:
    """`softmax[t] U[t] * 2` does not show whether the product comes before or after."""
    if call.is_open:
        raise scope.error(
            f"{call.name}[…] takes a tensor, or an expression in parentheses, and nothing after",
            call.at,
        )


def _concat(scope: Scope, target: s.Ref, call: s.MacroCall) -> None:
    _refuse_open(scope, call)
    labels = scope.plain_labels(target)
    match call.labels:
        case (s.Label(name=along, size=None),):
            pass
        case _:
            raise scope.error("concat[label](…) takes one label", call.at)
    if call.options:
        raise scope.error("concat has no options", call.at)
    parts: list[str] = []
    for arg in call.args:
        name, own = _tensor(scope, arg, target.name)
        if set(own) != set(labels):
            raise scope.error(f"concat needs the labels [{', '.join(labels)}] here", arg.at)
        if own != labels:
            transposed = scope.graph.fresh(f"{target.name}_1")
            name = scope.graph.add_einsum(labels, [(name, own)], Arg(0), name=transposed).name
        parts.append(name)
    scope.graph.add(Concat(labels, along), parts, target.name)


def _macro(scope: Scope, target: s.Ref, call: s.MacroCall) -> None:
    if call.name not in scope.macros:
        known = [*scope.macros, "concat"]
        raise scope.error(f"unknown macro {call.name!r}{suggest(call.name, known)}", call.at)
    _refuse_open(scope, call)
    chain = [*scope.active, call.name]
    if call.name in scope.active:
        raise scope.error(f"macro {call.name!r} calls itself: {' → '.join(chain)}", call.at)
    scope.expanded += len(scope.macros[call.name].body)
    if len(chain) > MAX_NESTING or scope.expanded > MAX_STATEMENTS:
        raise scope.error(
            f"macros call macros more than {MAX_NESTING} deep, or expand to more than "
            f"{MAX_STATEMENTS:,} statements",
            call.at,
        )
    tensors = (_tensor(scope, arg, target.name) for arg in call.args)
    passed = [Passed(name, labels, scope.graph[name].shape) for name, labels in tensors]
    with scope.at(call.at):
        body = expand(scope.macros[call.name], call, target, passed, scope.graph.fresh)
    scope.active.append(call.name)
    for statement in body:
        _statement(scope, statement)
    scope.active.pop()


def _einsum(
    scope: Scope, statement: s.Assign, agg: Monoid | None, terms: tuple[s.Term, ...]
) -> None:
    target = statement.target
    output = scope.plain_labels(target)
    terms = scope.with_numbers(terms, statement)
    # One reference is read once, however often and under however many spellings it stands there.
    written = dict.fromkeys([*s.refs_of(terms), *statement.extra])
    operand_of = {ref: to_plain(scope, ref, target.name) for ref in written}
    refs: dict[Operand, s.Ref] = {}
    for ref, operand in operand_of.items():
        refs.setdefault(operand, ref)
    position = {operand: Arg(k) for k, operand in enumerate(refs)}

    def leaf(term: s.Ref | s.Name) -> Expr:
        return scope.word(term) if isinstance(term, s.Name) else position[operand_of[term]]

    operands = [scope.graph[name] for name, _ in refs]
    with scope.at(statement.at, list(refs.values())):
        sizes = label_sizes([labels for _, labels in refs], operands)
    left_over = [label for label in sizes if label not in output]
    if agg is None and left_over:
        raise scope.error(
            f"label {left_over[0]!r} is not in {target.name}[{','.join(output)}]: say how to "
            f"aggregate it, such as 'sum (…)'",
            statement.rhs.at,
        )
    unread = tuple(item for item in target.items if s.label_of(item) not in sizes)
    new = scope.own_sizes(s.Ref(target.name, unread, target.at))
    refuse_mistyped(scope, target, refs, left_over)
    sizes |= new
    join = resolve_values([scope.with_sizes(t, sizes) for t in terms], scope.source, leaf)
    made = scope.graph.add_einsum(output, list(refs), join, agg, target.name, new)
    warn_of_misspelt(scope, made.op, sizes, refs)
    own = {name for ref, (name, _) in operand_of.items() if name != ref.name}
    scope.graph.read_through(made, own)


def _scatter(scope: Scope, target: s.Ref, agg: Monoid | None, term: s.Term) -> None:
    rows = [(k, item) for k, item in enumerate(target.items) if isinstance(item, s.Scattered)]
    if len(rows) > 1 or agg is None or agg.name != "sum":
        raise scope.error("a scatter sums into the rows of one label: write 'sum …'", target.at)
    [(axis, row)] = rows
    rest = s.Ref(target.name, target.items[:axis] + target.items[axis + 1 :], target.at)
    name, source = to_distinct(scope, *_tensor(scope, term, target.name), target.name)
    index, at = to_distinct(scope, *to_plain(scope, row.ref, target.name), target.name)
    op = ScatterAdd(source, at, scope.plain_labels(rest), axis, row.label.name)
    scope.graph.add(op, [name, index], target.name, {row.label.name: row.label.size or 0})


def _merge(scope: Scope, target: s.Ref, agg: Monoid | None, term: s.Term) -> None:
    if agg is not None:
        message = "merging labels does not go with an aggregation: take two steps"
        raise scope.error(message, target.at)
    if isinstance(term, s.Ref) and not s.has(term, s.Window, s.Fixed, s.Affine, s.Lookup):
        groups = [s.group_of(item) for item in term.items]
        add_reshape(scope, target, scope.tensor(term).name, groups, term)
    else:
        name, labels = _tensor(scope, term, target.name)
        add_reshape(scope, target, name, [(label,) for label in labels], target)


def _move(scope: Scope, statement: s.Assign, ref: s.Ref) -> None:
    """A statement that is one reference with special indices: one vertex where one can do it."""
    target = statement.target
    output = scope.plain_labels(target)
    scope.tensor(ref)
    if not s.has(ref, s.Window, s.Fixed, s.Affine, s.Lookup):
        add_reshape(scope, target, ref.name, [s.group_of(item) for item in ref.items], ref)
    elif not s.has(ref, s.Window, s.Fixed, s.Affine, s.Group):
        add_gather(scope, ref, output, target.name)
    elif not s.has(ref, s.Lookup, s.Group) and {*s.labels_of(ref)} == {*output}:
        add_window(scope, ref, target.name, output)
    else:
        _einsum(scope, statement, None, (ref,))


def _tensor(scope: Scope, term: s.Term, stem: str) -> Operand:
    """The name and labels of a term's value; anything but a reference becomes a vertex first."""
    if isinstance(term, s.Ref):
        return to_plain(scope, term, stem)
    labels = tuple(dict.fromkeys(label for ref in s.refs_of([term]) for label in s.labels_of(ref)))
    items = tuple(s.Label(label, term.at) for label in labels)
    target = s.Ref(scope.graph.fresh(f"{stem}_1"), items, term.at)
    value = s.Aggregate(None, (term,), term.at)
    _einsum(scope, s.Assign(target, value, (), term.at), None, (term,))
    return target.name, labels
