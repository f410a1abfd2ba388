"""Writing pictures to files, in the form that the end of a file's name asks for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eindecomp.errors import InputError
from eindecomp.store.whole_file import check_writable, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


def save_text(path: str | Path, forms: Mapping[str, Callable[[], str | bytes]]) -> None:
    """Write what is made for the ending of a path; an unknown ending is an error."""
    path = Path(path)
    check_ending(path, forms)
    check_writable(path)
    made = forms[path.suffix.lower()]()
    write_whole(path, made.encode() if isinstance(made, str) else made)


def check_ending(path: Path, forms: Collection[str], what: str = "a picture") -> None:
    """Refuse a path whose ending says nothing that can be written."""
    if path.suffix.lower() not in forms:
        raise InputError(f"{path}: {what} is written to a file that ends in {_or(list(forms))}")


def check_page(path: Path) -> None:
    """Refuse a file for a report whose name says that it is none; a pipe may have any name."""
    if path.is_file() or not path.exists():
        check_ending(path, (".html", ".htm"), "a report")


def _or(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
