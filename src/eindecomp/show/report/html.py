"""Puts what a report shows into one HTML file that loads nothing and runs nothing but our script.

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
from typing import Any

import orjson

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


def html_page(shown: dict[str, Any]) -> bytes:
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
