"""Files and folders that are written beside their place, and are there when all of them is.

Errors name the file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from stat import S_IMODE
from typing import IO


def beside(place: Path, token: str) -> Path:
    """Where a file or folder is written before it is put in its place."""
    return place.with_name(f".{place.name}.{token}")


def put_in_place(written: Path, place: Path) -> None:
    """Give what was written its name; what had the name before is removed.

    A folder cannot replace one that is not empty, so the old one is first set aside.
    """
    old = beside(place, token_hex(8))
    if place.is_dir():
        place.rename(old)
    try:
        written.replace(place)
    except OSError:
        if old.exists():
            old.rename(place)
        raise
    try:
        flush_folder(place.parent)
    finally:
        remove(old)


def remove(path: Path) -> None:
    """Remove a file or a folder with all that is in it, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


@contextmanager
def naming_file(path: Path) -> Generator[None, None, None]:
    """Names a file in errors of the system, which name a temporary file or none."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


def flush(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_folder(path: Path) -> None:
    """Flush the entries of a folder where a folder is a file, as it is but on Windows."""
    if os.name == "posix":
        flush(path)


# Single files


def check_writable(output: Path) -> None:
    """Raise now any error that would keep a result from being written later."""
    with naming_file(output):
        if output.exists():
            output.open("ab").close()
        if output.is_file() or not output.exists():
            with _new_file(output):
                pass


def write_whole(output: Path, content: bytes | Callable[[IO[bytes]], object]) -> None:
    """Write a file completely or not at all; a pipe or a device is simply written to.

    Large content is given as a function that writes to the file it is passed.
    """
    if output.exists() and not output.is_file():
        with naming_file(output):
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
    with naming_file(output), _new_file(output) as fresh:
        mode = S_IMODE((output if output.exists() else fresh).stat().st_mode)
        yield fresh
        fresh.chmod(mode)
        flush(fresh)
        fresh.replace(output.resolve())
        flush_folder(fresh.parent)


@contextmanager
def _new_file(output: Path) -> Generator[Path, None, None]:
    """A new file in the output's folder, removed at the end if it is still there."""
    fresh = beside(output.resolve(), token_hex(8))
    fresh.touch(exist_ok=False)
    try:
        yield fresh
    finally:
        fresh.unlink(missing_ok=True)
