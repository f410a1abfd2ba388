"""How the texts of options are read: pairs NAME=VALUE, and whole numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable


def pairs_from(option: str, example: str, texts: Iterable[str]) -> dict[str, str]:
    """What each name is given; `example` shows in messages how the option is written.

    >>> pairs_from("--tie", "W=new_W", ["W=new_W", "B = new_B"])
    {'W': 'new_W', 'B': 'new_B'}
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not name or not equals:
            raise typer.BadParameter(f"{option} is such as {example}, not {text!r}")
        if name in found:
            raise typer.BadParameter(f"{option}: {name!r} is given twice")
        found[name] = value
    return found


def number_from(text: str) -> int | None:
    """A whole number with no more digits than numbers of devices or pieces have."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 20 else None
