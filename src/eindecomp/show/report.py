"""Writes the report of a plan: one HTML file that loads nothing and runs nothing but our script.

Names in a plan are somebody else's. They stand in the page only as JSON whose `<`, `>` and `&` are
escaped, the script shows them as text, and the page's own policy allows no script and no style but
ours, by their hashes.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from html import escape
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from time import monotonic
from typing import Any

import orjson

from eindecomp.engines.whole_files import check_writable, write_whole
from eindecomp.errors import InputError
from eindecomp.planner.costs.price import Objective
from eindecomp.planner.plan import Plan
from eindecomp.planner.space.strategy import applicable
from eindecomp.show.compare import compare as compare_plan
from eindecomp.show.compare import row_words
from eindecomp.show.explain import (
    alternative_words,
    any_schedule_words,
    meaning,
    notes_of,
    summary,
)
from eindecomp.show.movements import alike, next_best
from eindecomp.show.report_vertices import Shared, bands, vertex_content
from eindecomp.show.rows import Row, rows_of
from eindecomp.show.svg import check_ending, device_colour
from eindecomp.show.words import exact, is_proved, mesh_words, percent, short
from eindecomp.tra.program.make import program_of
from eindecomp.tra.program.memory import fullest

_UNITS = {"bytes": "bytes", "bound": "elements", "time": "seconds"}
_QUICK = 1 << 15  # vertices on devices whose memory is worked out in a few seconds
_ALTERNATIVES = 0.2  # of the time limit, at most: a plan of thousands of vertices that all differ
SCRIPTS = (
    "words.js", "view.js", "scene.js", "drawing.js", "graph.js",
    "panel.js", "tables.js", "main.js",
)  # fmt: skip
"""The parts of the page's script, which are one module."""
_ESCAPED = {mark.encode(): rf"\u{ord(mark):04x}".encode() for mark in "<>&\u2028\u2029"}


def report(plan: Plan, path: str | Path, *, compare: bool = True, time_limit: float = 30) -> Path:
    """Write the report of a plan to an HTML file.

    Wrong arguments are refused before anything is computed.
    """
    output = Path(path)
    if not isinstance(compare, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"compare is True or False, not {compare!r}")
    if not isinstance(time_limit, int | float) or not time_limit >= 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"time_limit of a report is a number of seconds, not {time_limit!r}")
    check_writable(output)
    if output.is_file() or not output.exists():  # a pipe may have any name
        check_ending(output, (".html", ".htm"), "a report")
    write_whole(output, _html_page(content(plan, compare, time_limit)))
    return output


# The page


def _html_page(shown: dict[str, Any]) -> bytes:
    """The page for what a report shows."""
    script = "\n".join(_part(name) for name in SCRIPTS)
    style = _part("style.css")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    filled = {
        "POLICY": policy.encode(),
        "TITLE": escape(str(shown["title"])).encode(),
        "STYLE": style.encode(),
        "DATA": json_in_html(shown),
        "SCRIPT": script.encode(),
    }
    # What is filled in may look like a placeholder itself, so these are looked for only once.
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
    return files("eindecomp.show").joinpath("page", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """A source expression of a content security policy."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


# What it shows, as one object of plain numbers, strings and lists


def content(plan: Plan, compare: bool = False, time_limit: float = 30) -> dict[str, Any]:
    """What a report of a plan shows; alternatives and strategies within the time limit, together.

    >>> import eindecomp as ed
    >>> plan = ed.plan(ed.parse("input X[i: 8, j: 8]\\nZ[i] <- sum X[i,j]\\noutput Z"), 2)
    >>> [vertex["name"] for vertex in content(plan)["vertices"]]
    ['X', 'Z']
    """
    began = monotonic()
    rows, shared = rows_of(plan), Shared()
    number = {name: k for k, name in enumerate(plan.graph.vertices)}
    vertices = [vertex_content(plan, name, number, shared) for name in number]
    alternatives = _alternatives(plan, rows, number, began + _ALTERNATIVES * time_limit)
    side_by_side = _strategies(plan, began + time_limit) if compare else []
    return {
        "version": import_module("eindecomp").__version__,  # it stands above all layers
        "title": summary(plan).split("\n")[0].rstrip("."),
        "summary": summary(plan).split("\n"),
        "notes": notes_of(plan, rows).split("\n") if rows else [],
        "figures": _figures(plan, side_by_side),
        "objective": str(plan.objective),
        "unit": plan.objective.unit if isinstance(plan.objective, Objective)
        else _UNITS[plan.objective],
        "computes": isinstance(plan.objective, Objective) or plan.objective == "time",
        "devices": plan.devices,
        "mesh": mesh_words(plan.mesh),
        "cost": plan.cost,
        "moved": plan.traffic.total,
        "vertices": vertices,
        "words": list(shared.words),
        "grids": shared.grids,
        "colours": [device_colour(k) for k in range(plan.devices)],
        "bands": bands(plan, number),
        "alternatives": alternatives,
        "strategies": side_by_side,
    }  # fmt: skip


# The figures at the top


def _figures(plan: Plan, strategies: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """The figures at the top: cost, gap, bytes, memory, each with a word of explanation."""
    in_full = f"{plan.cost:,} bytes " if plan.objective == "bytes" else ""
    least = f"no such plan costs less than {exact(plan.bound, plan.objective)}"
    proved = is_proved(plan.gap)
    gap = ("0 %", f"proved optimal: {least}") if proved else (percent(plan.gap), least)
    times, _, of = any_schedule_words(plan).partition(" the least")
    moved = (short(plan.traffic.total, "bytes"), "received by all devices")
    told = {
        "cost": (short(plan.cost, plan.objective), in_full + meaning(plan)),
        "gap": gap,
        **({"any schedule": (times, f"of the least{of}")} if times else {}),
        **({} if plan.objective == "bytes" else {"bytes that move": moved}),
        "memory": _memory(plan, strategies),
        "devices": (f"{plan.devices:,}", f"{len(plan.parts):,} vertices are computed on them"),
    }
    return [{"name": name, "value": value, "note": note} for name, (value, note) in told.items()]


def _memory(plan: Plan, strategies: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """What the fullest device holds, where that is known soon."""
    if plan.objective == "bound":
        return "–", "the paper's bound does not say where pieces lie"
    if strategies and strategies[0]["memory"] is not None:
        most = strategies[0]["memory"]
    elif plan.devices * len(plan.graph.vertices) <= _QUICK:
        most = fullest(program_of(plan)).bytes
    else:
        return "–", "not computed"
    return short(most, "bytes"), "held at once by the fullest device"


# Alternatives and strategies


def _alternatives(
    plan: Plan, rows: list[Row], number: Mapping[str, int], deadline: float
) -> dict[str, Any]:
    """The next-best cuts in words, with the vertex each was found for and those it holds for.

    `of` has for each vertex the number of its alternative, or -1. Vertices are alike if they differ
    only in names and axes; the costliest come first, and after the deadline none is searched for.
    """
    searched: list[dict[str, Any]] = []
    of = [-1] * len(number)
    for names in alike(plan, rows):
        if monotonic() >= deadline:
            break
        words = alternative_words(plan, next_best(plan, names[0]))
        for name in names:
            of[number[name]] = len(searched)
        searched.append({"words": words, "vertex": number[names[0]]})
    return {"of": of, "found": searched}


def _strategies(plan: Plan, deadline: float) -> list[dict[str, Any]]:
    """A row for the plan and for each strategy, which share the time that is left."""
    chosen = applicable(plan.graph, plan.devices, stateful=bool(plan.tie), repeated=True)
    left = max(deadline - monotonic(), 0.01)  # a little, however late it is
    return [
        asdict(row)
        | {
            "strategy": row_words(row, plan.devices),
            "proved": row.gap is not None and is_proved(row.gap),
        }
        for row in compare_plan(plan, chosen, time_limit=left / max(len(chosen), 1))
    ]
