"""Writes files completely or not at all; errors name the file."""

from __future__ import annotations

from contextlib import contextmanager
from secrets import token_hex
from stat import S_IMODE
from typing import TYPE_CHECKING

from eindecomp.engines.whole_folder import flush, flush_folder, naming

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path
    from typing import IO


def check_writable(output: Path) -> None:
    """Raise now any error that would keep a result from being written later."""
    with naming(output):
        if output.exists():
            output.open("ab").close()
        if output.is_file() or not output.exists():
            with _beside(output):
                pass


def write_whole(output: Path, content: bytes | Callable[[IO[bytes]], object]) -> None:
    """Write a file completely or not at all; a pipe or a device is simply written to.

    Large content is given as a function that writes to the file it is passed.
    """
    if output.exists() and not output.is_file():
        with naming(output):
            _write(output, content)
        return
    with replacing(output) as fresh:
        _write(fresh, content)


def _write(path: Path, content: bytes | Callable[[IO[bytes]], object]) -> None:
    with path.open("wb") as opened:
        if callable(content):
            content(opened)
        else:
            opened.write(content)


@contextmanager
def replacing(output: Path) -> Generator[Path, None, None]:
    """A new file to write, which replaces the output once it is safely on disk.

    If writing fails or is interrupted, the output stays as it was. The file gets the permissions of
    the output, or those that the umask gives a new file, whatever the writer sets.
    """
    with naming(output), _beside(output) as fresh:
        mode = _mode(output if output.exists() else fresh)
        yield fresh
        fresh.chmod(mode)
        flush(fresh)
        fresh.replace(output.resolve())
        flush_folder(fresh.parent)


def _mode(path: Path) -> int:
    return S_IMODE(path.stat().st_mode)


@contextmanager
def _beside(output: Path) -> Generator[Path, None, None]:
    """A new file in the output's folder, removed at the end if it is still there."""
    fresh = output.resolve().with_name(f".eindecomp-{token_hex(8)}")
    fresh.touch(exist_ok=False)
    try:
        yield fresh
    finally:
        fresh.unlink(missing_ok=True)
