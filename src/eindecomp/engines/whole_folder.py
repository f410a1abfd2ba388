"""Files and folders that are written beside their place and are there when all of them is."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, suppress
from secrets import token_hex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


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
def naming(path: Path) -> Generator[None, None, None]:
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
