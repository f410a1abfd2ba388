"""A plan in words: how vertices are cut, what moves where, what it costs, and the alternatives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, prod
from shutil import get_terminal_size

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from eindecomp.graph.ops import Gather, ScatterAdd
from eindecomp.graph.turns import in_turns
from eindecomp.layout.mesh import BALANCED, ROWS
from eindecomp.planner.any_schedule import AgainstAny, product_alone, whole_plan
from eindecomp.planner.costs.cost import Number
from eindecomp.planner.costs.machine import Machine
from eindecomp.planner.costs.price import Objective, may_repeat
from eindecomp.planner.plan import Plan
from eindecomp.planner.space.layout_rules import read_tensors
from eindecomp.planner.space.strategy import strategy_words
from eindecomp.show.movements import Alternative, alternatives, input_layouts, move_lines
from eindecomp.show.rows import Row, folded_rows
from eindecomp.show.words import (
    count_words,
    cuts,
    exact,
    few,
    fewer_words,
    is_proved,
    mesh_words,
    percent,
    ratio,
    render,
    short,
    table,
    travel_words,
)
from eindecomp.tra.program.make import program_of

WIDTH = 120  # where there is no terminal
_LEAST = 40
_NARROW = 110  # below this width, layouts of results get a list of their own
_LINES, _NAMES = 12, 6
_PRODUCTS = "Products whose operands arrive stored once, each alone"
_NOTHING = 1e-9  # relative to the cost: how far rounding sets equal seconds apart

_PIECES = {"balanced": "", "even": ", in equal pieces", "ceil": ", in chunks of the ceiling"}
_MEANING = {
    "bytes": "that devices receive",
    "bound": "by the paper's bound on what moves",
    "time": "on the described machine",
    "own": "at the given prices",
}
_LEGEND = {
    "bytes": "join: inputs that devices receive. aggregate: partial results that devices receive "
    "and reduce. repartition: results of other vertices that devices receive, second layouts "
    "included.",
    "bound": "In elements, by the paper's bound. join: what kernel calls read. aggregate: partial "
    "results that are reduced. repartition: results that change from one partition to another.",
    "time": "join: fetching inputs. aggregate: reducing. repartition: fetching results of other "
    "vertices, second layouts included. compute: kernel calls.",
}
_LEGEND["own"] = f"At the given prices. {_LEGEND['time']}"


def explain(plan: Plan, width: int | None = None) -> str:
    """The whole plan as text: summary, table, inputs, movements and alternatives."""
    width = get_terminal_size((WIDTH, 24)).columns if width is None else width
    rows, narrow = folded_rows(plan), width < _NARROW
    parts: list[RenderableType] = [Text(summary(plan))]
    if rows:
        parts += [plan_table(plan, rows, narrow=narrow), Text(notes_of(plan, rows))]
        if narrow:
            parts += _section("Result layouts", _grouped({row.vertex: row.lies for row in rows}))
        parts += _section("Input layouts", _grouped(input_layouts(plan, rows)))
        parts += _section("What moves", move_lines(plan, rows), right=True)
        parts += _section(_PRODUCTS, _products_alone(plan, rows))
        others = [
            (f"{name} {cuts(plan.parts[name])}", alternative_words(plan, other))
            for name, other in alternatives(plan, rows)
        ]
        title = "Alternatives: the next-best cut of each vertex, everything else fixed"
        parts += _section(title, others)
    return render(max(width, _LEAST), *parts)


def summary(plan: Plan) -> str:
    """A plan in one paragraph."""
    mesh = f" (mesh {mesh_words(plan.mesh)})" if plan.mesh.names else ""
    devices = count_words(plan.devices, "device")
    vertices = count_words(len(plan.parts), "vertex", "vertices")
    asked = [f"objective {plan.objective}", f"inputs {plan.inputs}"]
    if plan.pieces != BALANCED:
        asked.append(f"{plan.pieces} pieces")
    if plan.lookups == ROWS:
        asked.append("lookups of rows")
    if plan.strategy is not None:
        asked.append(f"strategy {strategy_words(plan.strategy)}")
    if plan.pin:
        asked.append(f"pinned {few(list(plan.pin), _NAMES)}")
    if plan.tie:
        asked.append(f"{count_words(len(plan.tie), 'input')} tied")
    if plan.memory is not None:
        asked.append(f"at most {exact(plan.memory, 'bytes')} on each device")
    if plan.solver != "auto":
        asked.append(f"solver {plan.solver}")
    lines = [
        f"Plan of {vertices} for {devices}{mesh}: {', '.join(asked)}.",
        f"Cost {exact(plan.cost, plan.objective)} {meaning(plan)}. {not_counted(plan)}",
        claim(plan),
        *filter(None, [worst_case(plan), any_schedule_words(plan), awkward(plan), repeated(plan)]),
        found_words(plan),
    ]
    return "\n".join(line.rstrip() for line in lines)


def found_words(plan: Plan) -> str:
    """How a plan was found, what ended planning early, and whether another run may differ."""
    ended = {"time": ", when time was up", "interrupt": ", when interrupted"}
    found = f"Found by {plan.method or plan.solver} in {short(plan.seconds, 'time')}"
    differs = plan.stopped_by and not is_proved(plan.gap)
    more = " Another run may find another plan." if differs else ""
    return f"{found}{ended.get(plan.stopped_by, '')}.{more}"


def meaning(plan: Plan) -> str:
    """What a plan's cost counts."""
    is_most = plan.objective == "bytes" and worst_case(plan)
    return _MEANING[_kind(plan)] + (", at most" if is_most else "")


def _kind(plan: Plan) -> str:
    """The objective by which wording is chosen."""
    return "own" if isinstance(plan.objective, Objective) else plan.objective


# The table


def plan_table(plan: Plan, rows: list[Row], *, narrow: bool = False) -> Table:
    """A row for each vertex: its cut, what it costs, and where its result lies if there is room."""
    folded = any(row.times > 1 for row in rows)
    shown = table()
    shown.show_footer = True
    shown.add_column("vertex", "total", overflow="fold", min_width=16)
    if folded:
        shown.add_column("", justify="right", no_wrap=True)
    shown.add_column("cut", overflow="fold")
    shown.add_column("calls", justify="right", no_wrap=True)
    names = ["join", "aggregate", "repartition", *["compute"] * (_kind(plan) in ("time", "own"))]
    cost = plan.cost
    for name in names:
        total = sum(getattr(row, name) * row.times for row in rows)
        shown.add_column(name, short(total, plan.objective), justify="right", no_wrap=True)
    shown.add_column("share", percent(float(cost > 0)), justify="right", no_wrap=True)
    if not narrow:
        shown.add_column("result layout", overflow="fold", min_width=14)
    for row in rows:
        share = row.cost * row.times / cost if cost else 0.0
        calls = f"{row.pieces}×{row.copies}" if row.copies > 1 else str(row.pieces)
        shown.add_row(
            Text(row.statement),
            *([f"×{row.times}" if row.times > 1 else ""] if folded else []),
            Text(cuts(row.parts)),
            calls if row.calls else "",
            *(short(getattr(row, name), plan.objective) for name in names),
            percent(share),
            *([] if narrow else [Text(row.lies)]),
        )
    return shown


def notes_of(plan: Plan, rows: list[Row]) -> str:
    """What the columns mean."""
    notes = [
        "cut: pieces of each label, `h/8` is h in 8 pieces. calls: kernel calls, one for each "
        "piece.",
        _LEGEND[_kind(plan)],
    ]
    if any(row.copies > 1 and row.calls for row in rows):
        notes[0] += " `4×2`: 4 pieces, each computed by 2 devices."
    if any(row.times > 1 for row in rows):
        notes.append("`×n`: n such vertices; costs are for one of them, shares and totals for all.")
    notes += machine_words(plan, rows)
    if plan.objective != "bytes":
        moved = exact(plan.traffic.total, "bytes")
        notes.append(f"When the plan runs, devices receive {moved} in total.")
    return "\n".join(notes)


def _section(
    title: str, lines: Sequence[tuple[str, str]], *, right: bool = False
) -> list[RenderableType]:
    """A titled list in two columns, cut off at a readable length."""
    if not lines:
        return []
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(overflow="fold", justify="right" if right else "left", no_wrap=right)
    grid.add_column(overflow="fold")
    for left, words in lines[:_LINES]:
        grid.add_row(Text(left), Text(words))
    section: list[RenderableType] = [Text(f"\n{title}"), Padding(grid, (0, 0, 0, 2), expand=False)]
    if len(lines) > _LINES:
        section.append(Text(f"  and {len(lines) - _LINES} more"))
    return section


def _grouped(words: dict[str, str]) -> list[tuple[str, str]]:
    """Names that share a description, together."""
    names: dict[str, list[str]] = {}
    for name, said in words.items():
        names.setdefault(said, []).append(name)
    return [(", ".join(alike), said) for said, alike in names.items()]


# Alternatives


def alternative_words(plan: Plan, other: Alternative | None) -> str:
    """What the next-best cut of a vertex is and how much more it costs, or that there is none."""
    if other is None:
        within = "" if plan.strategy is None else " within this strategy"
        return f"no other cut is possible{within}{' with these pins' if plan.pin else ''}"
    nothing = _NOTHING * plan.cost if plan.objective == "time" else 0
    parts = ("join", "aggregate", "repartition", "compute")
    named: dict[str, Number] = {part: getattr(other, part) for part in parts}
    named["its readers' repartition"] = other.handover
    changes = {name: more for name, more in named.items() if abs(more) > nothing}
    detail = ", ".join(
        f"{name} {'+' if more > 0 else ''}{short(more, plan.objective)}"
        for name, more in changes.items()
    )
    why = f", in {next(iter(changes))}" if len(changes) == 1 else f" ({detail})" if detail else ""
    cut, amount = cuts(other.parts), short(abs(other.more), plan.objective)
    if abs(other.more) <= nothing:
        return f"{cut} would cost the same{why}"
    if other.more > 0:
        return f"{cut} would cost {amount} more{why}"
    limited = ", or the memory limit forbids that" if plan.memory is not None else ""
    return f"{cut} would cost {amount} less{why}: this plan is not optimal{limited}"


# What a plan claims: how good it is, among which plans, and what its cost and time leave out


def claim(plan: Plan) -> str:
    """How close to optimal a plan is, and among which plans, in one sentence."""
    among = "; ".join(_space(plan))
    if is_proved(plan.gap):
        return f"Proved optimal among: {among}."
    return f"Proved: {bound_words(plan)}, among: {among}."


def any_schedule_words(plan: Plan) -> str:
    """A sentence on what any schedule moves, for a graph of one product or attention."""
    against = whole_plan(plan)
    if against is None or not against.least:
        return ""
    what, formed = "this product", ""
    if len(against.products) > 1:
        what = "these two products"
    elif any(len(plan.graph[name].inputs) > 2 for name in against.products):
        what, formed = "this contraction", ", forms each product of elements on one device,"
    return (
        f"{_over(against)} the least that any schedule of {what} moves that divides the work as "
        f"evenly{formed} and stores inputs and result once: {exact(against.least, 'bytes')}."
    )


def awkward(plan: Plan) -> str:
    """A sentence on a smaller number of devices that suits a product better, if there is one."""
    fewer = plan.fewer_devices
    return "" if fewer is None else fewer_words(fewer, plan.cost, plan.devices, plan.objective)


def product_words(against: AgainstAny) -> str:
    """What one product moves beside the least that any schedule of it alone moves."""
    moved, least = (short(amount, "bytes") for amount in (against.moved, against.least))
    return f"{_over(against)} the least that any schedule of it moves: {moved}, at least {least}"


def _over(against: AgainstAny) -> str:
    return f"{ratio(against.ratio)[:-1]} ×"


def _products_alone(plan: Plan, rows: Sequence[Row]) -> list[tuple[str, str]]:
    """The products of a larger graph of which the least is known."""
    if len(plan.parts) == 1:
        return []
    known = {row.vertex: product_alone(plan, row.vertex) for row in rows if row.calls}
    return _grouped({name: product_words(own) for name, own in known.items() if own and own.least})


def bound_words(plan: Plan) -> str:
    """What is proved of a plan that may not be optimal; its gap is relative to its own cost."""
    bound = exact(plan.bound, plan.objective)
    return f"none costs less than {bound}, gap {percent(plan.gap)}"


def _again_words(again: str | int | tuple[str, ...]) -> str:
    if isinstance(again, int):
        return f"the first {count_words(again, 'part')} of the forward pass"
    return again if isinstance(again, str) else ", ".join(again)


def _space(plan: Plan) -> Iterator[str]:
    """What all plans have in common among which this one was chosen."""
    if plan.objective == "bound":
        equal = "equal " if plan.pieces == "even" else ""
        yield f"all partitions of every vertex into as many {equal}pieces as there are devices"
    elif plan.devices > 1:
        yield f"every nested layout on this mesh{_PIECES[plan.pieces]}"
        yield "at most one extra copy per tensor"
        cut = "any number of devices" if may_repeat(plan.objective) else "all devices"
        yield f"every vertex divided among {cut}{', as far as sizes allow' * bool(repeated(plan))}"
        if plan.pending:
            is_free = plan.work is None or plan.objective == "time"
            work = "" if is_free else f", contractions within {plan.work:g} × their work"
            yield f"results in parts where all their readers can read them so{work}"
    if plan.recompute is not None:
        yield f"{_again_words(plan.recompute)} computed again for the backward pass"
    for label, count in plan.microbatches.items():
        yield f"{label} in {count} micro-batches, one after another"
    if plan.memory is not None and plan.devices > 1 and in_turns(plan.graph)[1]:
        yield "queries of an attention cut alike in all its vertices, for turns"
    if types := travel_words(plan.reduce_dtype):
        yield types
    yield _order_words(plan)
    if any(isinstance(vertex.op, Gather | ScatterAdd) for vertex in plan.graph.vertices.values()):
        rows = " or, at worst, a row for each index" * (plan.lookups == ROWS)
        yield f"lookups that move whole blocks of tables{rows}"
    if plan.objective == "time" and plan.machine is not None and plan.machine.overlap:
        yield "communication beside a vertex's own computing, in equal shares, an approximation"
    limits = {
        "this strategy": plan.strategy is not None,
        "these pins": bool(plan.pin),
        "these ties": bool(plan.tie),
        "this memory limit, counted from above": plan.memory is not None,
    }
    if within := [limit for limit, is_set in limits.items() if is_set]:
        yield f"within {' and '.join(within)}"


def _order_words(plan: Plan) -> str:
    """Which contraction orders were considered."""
    if plan.orders is None or plan.orders.considered < 2:
        return "contraction order as written"
    kind = "all" if plan.orders.complete else "some"
    limit = ""
    if plan.objective != "time" and plan.work != inf:
        limit = f" of at most {plan.work:g} × the least operations"
    return f"{kind} {plan.orders.considered:,} contraction orders{limit}"


def repeated(plan: Plan) -> str:
    """A sentence on vertices that several devices compute alike, as they cannot be cut further."""
    names = [
        name
        for name, parts in plan.parts.items()
        if prod(parts.values()) < plan.devices and not (plan.pending and plan.decisions[name].waits)
    ]
    if may_repeat(plan.objective) or not names:
        return ""
    which = names[0] if len(names) == 1 else f"{len(names)} of {len(plan.parts)} vertices"
    verb = "is" if len(names) == 1 else "are"
    return (
        f"Devices repeat work: {which} {verb} not cut into {plan.devices} pieces, as the factors "
        "of that number do not fit the sizes."
    )


def worst_case(plan: Plan) -> str:
    """A sentence on bytes that depend on what indices name when the plan runs."""
    if plan.lookups != ROWS or plan.objective == "bound":
        return ""
    by_rows = program_of(plan).by_rows
    if not by_rows:
        return ""
    names = list(dict.fromkeys(step.vertex for step in by_rows))
    most = sum(step.rows.most for step in by_rows if step.rows is not None)
    return (
        f"A worst case: for {few(names, _NAMES)} only rows move that an index names, "
        f"at most {exact(most, 'bytes')} if each names another row that lies elsewhere."
    )


def not_counted(plan: Plan) -> str:
    """What the cost leaves out, if anything."""
    read = read_tensors(plan.graph)
    free = [v.name for v in plan.graph.inputs if v.name in read and v.name not in plan.given]
    if plan.devices == 1 or not free or plan.objective == "bound":
        return ""
    return "Not counted: placing free inputs where they are wanted, and the memory of their copies."


def machine_words(plan: Plan, rows: Sequence[Row]) -> Iterator[str]:
    """Why a plan is coarser than there are devices, and what its seconds leave out."""
    machine = plan.machine
    if plan.objective != "time" or machine is None:
        return
    if machine.task_overhead:
        yield _task_words(plan, rows, machine)
    if machine.overlap:
        yield (
            f"Communication runs beside {percent(machine.overlap)} of computing: a vertex's "
            "fetches and its reduction each beside an equal share of its own kernel calls. Costs "
            "are what they take beyond that."
        )


def _task_words(plan: Plan, rows: Sequence[Row], machine: Machine) -> str:
    """How many vertices are cut into fewer pieces, which need fewer messages."""
    message = "message that was not measured" if machine.transfers else "message"
    overhead = short(machine.task_overhead, "time")
    each = f"Each kernel call and each {message} takes {overhead} more than its work"
    called = [row for row in rows if row.calls]
    total = sum(row.times for row in called)
    coarse = sum(row.times for row in called if row.pieces < plan.devices)
    if not coarse:
        return f"{each}; still every vertex is cut into as many pieces as there are devices."
    are = "is" if coarse == 1 else "are"
    return (
        f"{each}: {coarse} of {total} vertices {are} cut into fewer pieces than there are devices, "
        "which takes fewer messages; several devices compute the same piece."
    )
