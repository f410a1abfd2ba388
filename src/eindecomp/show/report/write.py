"""Writes the report of a plan: one HTML file that loads nothing and runs nothing but our script.

Names in a plan are somebody else's. They stand in the page only as JSON whose `<`, `>` and `&` are
escaped, the script shows them as text, and the page's own policy allows no script and no style but
ours, by their hashes.
"""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from eindecomp.errors import InputError
from eindecomp.planner.costs.machine import machine_of
from eindecomp.show.draw.svg import check_page
from eindecomp.show.report.check import check_comparison, check_run, events_of
from eindecomp.show.report.content import content
from eindecomp.store.whole_file import check_writable, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eindecomp.engines.events import Event
    from eindecomp.engines.result import Result
    from eindecomp.planner.comparison import Comparison
    from eindecomp.planner.costs.machine import Machine
    from eindecomp.planner.plan import Plan
    from eindecomp.tra.simulation.run import SimulatedRun

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
    told = events_of(events)
    check_run(plan, result, told)
    check_comparison(plan, compare)
    if not isinstance(time_limit, int | float) or not time_limit >= 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"time_limit of a report is a number of seconds, not {time_limit!r}")
    timed_on = plan.machine if machine is None else machine_of(machine)
    check_writable(output)
    check_page(output)
    shown = content(plan, result, told, compare, timed_on, time_limit)
    write_whole(output, _html_page(shown))
    return output


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
