"""Writes the report of a plan: one HTML file that loads nothing and runs nothing but our script.

Names in a plan are somebody else's. They stand in the page only as JSON whose `<`, `>` and `&` are
escaped, the script shows them as text, and the page's own policy allows no script and no style but
ours, by their hashes.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from eindecomp.engines.result import (
    PROGRAM,
    BytesMoved,
    Event,
    KernelCompiled,
    Result,
    TaskFinished,
    TaskStarted,
)
from eindecomp.engines.whole_files import check_writable, write_whole
from eindecomp.errors import InputError
from eindecomp.planner.comparison import Comparison
from eindecomp.planner.costs.machine import machine_of
from eindecomp.planner.space.strategy import spelled, strategy_words
from eindecomp.show.draw.svg import check_page
from eindecomp.show.report.content import content, memory_of
from eindecomp.show.words import exact
from eindecomp.tra.simulation.run import SimulatedRun

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from eindecomp.planner.costs.machine import Machine
    from eindecomp.planner.plan import Plan

_NOBODY = "None"  # what an engine that compiles whole programs counts for no vertex of them
SCRIPTS = (
    "words.js",
    "view.js",
    "scene.js",
    "drawing.js",
    "graph.js",
    "panel.js",
    "tables.js",
    "timeline.js",
    "main.js",
)
"""The parts of the page's script, which are one module."""
_ESCAPED = {
    b"<": rb"\u003c",
    b">": rb"\u003e",
    b"&": rb"\u0026",
    "\u2028".encode(): rb"\u2028",
    "\u2029".encode(): rb"\u2029",
}


def report(
    plan: Plan,
    path: str | Path,
    *,
    result: Result | SimulatedRun | None = None,
    events: Iterable[Event] | None = None,
    compare: bool | Comparison = True,
    machine: Machine | str | Path | None = None,
    time_limit: float = 30,
) -> Path:
    """Write the report of a plan, and of a run of it, to an HTML file.

    Whatever is wrong with the arguments is said before anything is computed.
    """
    output = Path(path)
    told = _events_of(events)
    _check_run(plan, result, told)
    _check_comparison(plan, compare)
    if not isinstance(time_limit, int | float) or not time_limit >= 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"time_limit of a report is a number of seconds, not {time_limit!r}")
    timed_on = plan.machine if machine is None else machine_of(machine)
    check_writable(output)
    check_page(output)
    shown = content(plan, result, told, compare, timed_on, time_limit)
    write_whole(output, _html_page(shown))
    return output


# What a report cannot show: a run or a comparison of another plan, and what is neither


def _events_of(given: object) -> list[Event] | None:
    """The events that were given, as a list."""
    if given is None:
        return None
    told: list[Any] = list(given) if isinstance(given, Iterable) else [given]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - of anything
    for event in told:
        if not isinstance(event, Event):
            kind = type(event).__name__
            raise InputError(f"events are what ed.run gave to on_event, not {kind}")
    return told


def _check_run(
    plan: Plan, result: Result | SimulatedRun | None, events: Sequence[Event] | None
) -> None:
    """Raise `InputError` unless these can be a run of the plan."""
    match result:
        case None:
            pass
        case Result():
            _check_result(plan, result)
        case SimulatedRun():
            if events is not None:
                raise InputError("a simulated run has no events of its own: give it alone")
            _check_simulated(plan, result)
        case _:  # pyright: ignore[reportUnnecessaryComparison]
            kind = type(result).__name__
            raise InputError(f"result is what ed.run or ed.simulate returned, not {kind}")
    if events is not None:
        pieces = result.stats.cut_into if isinstance(result, Result) else None
        _check_events(plan, events, pieces or plan.devices)


def _check_comparison(plan: Plan, compare: bool | Comparison) -> None:
    """Raise `InputError` unless the first row of a comparison can be that of the plan."""
    if isinstance(compare, bool):
        return
    if not isinstance(compare, Comparison):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"compare is True, False or a Comparison, not {compare!r}")
    first = compare.rows[0] if compare.rows else None
    if first is None or first.cost is None:
        raise InputError("this is a comparison of another plan: its first row has no cost")
    held = memory_of(plan)
    of_both = {
        "objective": (str(compare.objective), str(plan.objective)),
        "cost": (exact(first.cost, compare.objective), exact(plan.cost, plan.objective)),
        "strategy": tuple(strategy_words(spelled(s)) for s in (first.strategy, plan.strategy)),
        "memory of the fullest device": (first.memory, first.memory if held is None else held),
    }
    for what, (theirs, own) in of_both.items():
        if theirs not in (own, None):
            raise InputError(
                f"this is a comparison of another plan: the {what} of its first row is {theirs}, "
                f"this plan's {own}"
            )


def _check_result(plan: Plan, result: Result) -> None:
    stats = result.stats
    _check_names(plan, plan.parts, stats.bytes_by_vertex)
    wanted = {vertex.name: vertex.shape for vertex in plan.graph.outputs}
    for name, tensor in result.tensors.items():
        if tuple(tensor.shape) != wanted.get(name):
            raise _ran(f"its output {name!r} has the shape {list(tensor.shape)}")
        if stats.cut_into is None and tensor.mesh.devices != plan.devices:
            raise _devices(plan, tensor.mesh.devices)


def _check_simulated(plan: Plan, run: SimulatedRun) -> None:
    if run.devices != plan.devices:
        raise _devices(plan, run.devices)
    simulated = run.program.graph.vertices
    _check_names(plan, plan.graph.vertices, simulated)
    for name, vertex in simulated.items():
        if vertex.shape != plan.graph[name].shape:
            raise _ran(f"{name!r} has the shape {list(vertex.shape)} in it")


def _check_names(plan: Plan, wanted: Iterable[str], computed: Collection[str]) -> None:
    for name in wanted:
        if name not in computed:
            raise _ran(f"it did not compute {name!r}")
    for name in computed:
        if name not in plan.graph and name != _NOBODY:
            raise _ran(f"it computed {name!r}")


def _check_events(plan: Plan, events: Sequence[Event], devices: int) -> None:
    whole = any(isinstance(event, TaskFinished) and event.vertex == PROGRAM for event in events)
    for event in events:
        if isinstance(event, TaskStarted | TaskFinished | KernelCompiled) and not (
            0 <= event.device < devices
        ):
            raise _ran(f"its events name device {event.device}, and there are {devices:,}")
        # One that ran as a whole has names of its own for what no vertex stands for.
        if (
            isinstance(event, TaskStarted | TaskFinished | BytesMoved)
            and event.vertex not in plan.graph
            and not whole
        ):
            raise _ran(f"its events name {event.vertex!r}, which is not in the graph")


def _ran(why: str) -> InputError:
    return InputError(f"this is a run of another plan: {why}")


def _devices(plan: Plan, devices: int) -> InputError:
    return _ran(f"it is for {devices:,} devices, this plan for {plan.devices:,}")


# The page


def _html_page(shown: dict[str, Any]) -> bytes:
    """The page for what a report shows."""
    script = "\n".join(_part(name) for name in SCRIPTS)
    style = _part("style.css")
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    filled = {
        "POLICY": policy.encode(),
        "TITLE": escape(str(shown["title"])).encode(),
        "STYLE": style.encode(),
        "DATA": json_in_html(shown),
        "SCRIPT": script.encode(),
    }
    # What is filled in may look like a place to fill in: each place is looked for once.
    pieces = re.split(r"\{\{([A-Z]+)\}\}", _part("page.html"))
    return b"".join(filled[p] if k % 2 else p.encode() for k, p in enumerate(pieces))


def json_in_html(shown: object) -> bytes:
    r"""JSON that ends no script element, whatever strings it has.

    >>> json_in_html("</script>")
    b'"\\u003c/script\\u003e"'
    """
    written = orjson.dumps(shown)
    for character, escaped in _ESCAPED.items():
        written = written.replace(character, escaped)
    return written


def _part(name: str) -> str:
    return files("eindecomp.show.report").joinpath("page", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """A source expression of a content security policy."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
