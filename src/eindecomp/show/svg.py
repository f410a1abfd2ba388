"""The part of SVG that pictures use: elements, a style sheet, widths of text, and files.

Colours are set by a style sheet, light and dark, whose rules hold inside pictures only: several of
them may stand in one page. Every picture has a background of its own, so that it can be read on any
page. Text has a contrast of 4.5:1 or more against what is behind it; the colours of tiles and
edges are told apart by colour-blind readers too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from html import escape
from pathlib import Path
from unicodedata import category, east_asian_width

from eindecomp.engines.whole_files import check_writable, write_whole
from eindecomp.errors import InputError

SCOPE = "eindecomp"
"""The class of every picture, in which its rules hold."""
_MONO = 0.602  # of its height: the width of a character of the fixed-width fonts below
_FONTS = "ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace"
LIGHT = {
    "back": "#ffffff", "ink": "#1c2128", "quiet": "#57606a", "line": "#8c959f", "rest": "#98a2ad",
    "vertex": "#ffffff", "edge": "#57606a", "input": "#eef1f4",
    "output": "#dff0e4", "strong": "#136c3f", "move": "#b93c0a",
}  # fmt: skip
DARK = {
    "back": "#0d1117", "ink": "#e6edf3", "quiet": "#a3adb8", "line": "#6e7681", "rest": "#6b747e",
    "vertex": "#1c222b", "edge": "#9aa4af", "input": "#262c36",
    "output": "#153324", "strong": "#4ac17f", "move": "#ff9a5c",
}  # fmt: skip
_RULES = {
    ".back": "fill:{back}",
    "text": "fill:{ink};font-family:" + _FONTS,
    ".quiet": "fill:{quiet}",
    ".head": "font-weight:600",
    ".moved": "fill:{move}",
    ".strong": "fill:{strong}",
    ".on-tile": "fill:#16202c",
    ".halo": "stroke:{back};stroke-width:4px;stroke-linejoin:round;paint-order:stroke",
    ".vertex": "fill:{vertex};stroke:{edge}",
    ".input": "fill:{input};stroke:{line}",
    ".output": "fill:{output};stroke:{strong};stroke-width:2px",
    ".rest": "fill:none;stroke:{rest};stroke-width:1.1px",
    ".move": "fill:none;stroke:{move}",
    ".tip-rest": "fill:{rest}",
    ".tip-move": "fill:{move}",
    ".next": "stroke-dasharray:6 4",
    ".tile": "stroke:{back};stroke-width:1.5px",
    ".no-tile": "fill:none;stroke:{rest};stroke-dasharray:3 3",
}


def _rules(colours: dict[str, str]) -> str:
    return "".join(f".{SCOPE} {name}{{{rule.format(**colours)}}}" for name, rule in _RULES.items())


STYLE = f"{_rules(LIGHT)}@media (prefers-color-scheme:dark){{{_rules(DARK)}}}"

TILES = (
    "#9ecae9", "#f6c28b", "#a8dcc0", "#f2b5d4", "#f3e38b", "#c3b8ea", "#f4a99b", "#c9ced6",
)  # fmt: skip
"""Light enough for dark text, apart in hue and lightness."""


def tag(name: str, *inside: str, **attributes: object) -> str:
    """An element around markup; attributes are escaped, a trailing `_` is not part of a name.

    >>> tag("text", said("a < b"), x=1, class_="quiet", font_size=11)
    '<text x="1" class="quiet" font-size="11">a &lt; b</text>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}>{''.join(inside)}</{name}>" if inside else f"<{name}{written}/>"


def _number(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def said(text: str) -> str:
    """Text as markup: escaped, without characters that XML cannot have."""
    return escape("".join(c if category(c) not in ("Cc", "Cs") else "\ufffd" for c in text))


def write(
    x: float, y: float, text: str, size: float = 11, anchor: str = "start", class_: str = ""
) -> str:
    """A line of text; `y` is its baseline."""
    placed = None if anchor == "start" else anchor
    named = class_ or None
    return tag("text", said(text), x=x, y=y, font_size=size, text_anchor=placed, class_=named)


def titled(title: str, *inside: str, **attributes: object) -> str:
    """A group with a tooltip."""
    return tag("g", tag("title", said(title)), *inside, **attributes)


def picture(width: float, height: float, title: str, description: str, *inside: str) -> str:
    """A whole SVG."""
    return tag(
        "svg", tag("title", said(title)), tag("desc", said(description)), tag("style", STYLE),
        tag("rect", width=width, height=height, rx=8, class_="back"), *inside,
        xmlns="http://www.w3.org/2000/svg", role="img", class_=SCOPE,
        width=float(width), height=float(height),
        viewBox=f"0 0 {_number(float(width))} {_number(float(height))}",
        style="max-width:100%;height:auto",
    )  # fmt: skip


def text_width(text: str, size: float = 11) -> float:
    """How wide a line is drawn."""
    wide = sum(east_asian_width(c) in "WF" for c in text)
    return (len(text) + wide) * size * _MONO


def device_colour(device: int) -> str:
    """The colour of a device's tiles, the same in all pictures; every eighth device shares one.

    >>> device_colour(0), device_colour(1), device_colour(9)
    ('#9ecae9', '#f6c28b', '#f6c28b')
    """
    return TILES[device % len(TILES)]


# Files


def save_text(path: str | Path, forms: Mapping[str, Callable[[], str]]) -> None:
    """Write the form that the ending of a path asks for; an unknown ending is an error."""
    path = Path(path)
    check_ending(path, forms)
    check_writable(path)
    write_whole(path, forms[path.suffix.lower()]().encode())


def check_ending(path: Path, endings: Collection[str], what: str = "a picture") -> None:
    """Refuse a path whose ending names no form that can be written."""
    if path.suffix.lower() not in endings:
        known = " or ".join(endings)
        raise InputError(f"{path}: {what} is written to a file that ends in {known}")
