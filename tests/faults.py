"""Disks that fail, at every moment: what a writer leaves is the old or the new, and nothing else.

Calls that change a disk are counted, those of Python's own buffered files too, and the n-th of them
fails. What other languages write, as NumPy does, is met by the system's limit of a file's size.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import resource
import shutil
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from eindecomp.errors import EinDecompError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager
    from pathlib import Path

SHORT = 0
"""In place of an error: of what is to be written, only a half is."""
CALLS = (
    "write", "pwrite", "writev", "fsync", "fdatasync", "rename", "replace", "link", "mkdir",
    "truncate", "ftruncate", "posix_fallocate", "open", "chmod", "fchmod",
)  # fmt: skip


class Fault:
    """The n-th change of the disk fails; `seen` has those that were tried."""

    def __init__(self, number: int, error: int) -> None:
        self.number, self.error = number, error
        self.seen: list[str] = []

    def meets(self, name: str) -> bool:
        """Count a call, which fails now; or say whether it is to write only a half."""
        self.seen.append(name)
        if len(self.seen) != self.number:
            return False
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        return True

    @property
    def is_met(self) -> bool:
        return len(self.seen) >= self.number


def _half(data: Any) -> memoryview:
    view = memoryview(data).cast("B")
    return view[: max(1, len(view) // 2)]


@contextmanager
def failing(fault: Fault) -> Generator[None, None, None]:
    """Let changes of the disk meet a fault."""
    real, real_open = {name: getattr(os, name) for name in CALLS}, open

    class Raw(io.FileIO):
        def write(self, data: Any) -> int:
            return super().write(_half(data) if fault.meets("write") else data)

        def truncate(self, size: int | None = None) -> int:
            fault.meets("truncate")
            return super().truncate(size)

    def opened(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, *more):
        if not set(mode) & set("wax+"):
            return real_open(file, mode, buffering, encoding, errors, newline, *more)
        fault.meets("open")
        raw = Raw(file, mode.replace("b", "").replace("t", ""), *more)
        if buffering == 0:
            return raw
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)

    def counted(name: str) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            if name == "open" and not args[1] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return real[name](*args, **more)
            if fault.meets(name) and name in ("write", "pwrite"):
                return real[name](args[0], _half(args[1]), *args[2:], **more)
            return real[name](*args, **more)

        return call

    with (
        patch.multiple(os, **{name: counted(name) for name in CALLS}),
        patch.object(io, "open", opened),
        patch.object(builtins, "open", opened),
    ):
        yield


@contextmanager
def full_disk(room: int = 0) -> Generator[None, None, None]:
    """No file can grow beyond so many bytes, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def content(folder: Path) -> dict[str, bytes | None]:
    """All that a folder has, by name."""
    found = sorted(folder.rglob("*"))
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in found}


def check_all_or_nothing(
    path: Path,
    before: Callable[[Path], object],
    after: Callable[[Path], object],
    read: Callable[[Path], object] = content,
) -> set[str]:
    """Whatever fails, `after` leaves in a folder what was `before`, or what it should.

    Gives the names of the calls that were let fail.
    """
    (path / "old").mkdir()
    before(path / "old")
    shutil.copytree(path / "old", path / "new")
    after(path / "new")
    old, new = read(path / "old"), read(path / "new")
    assert old != new
    seen: set[str] = set()

    def left_by(disk: AbstractContextManager[None], what: str) -> object:
        shutil.copytree(path / "old", path / "copy")
        told = "nothing"
        try:
            with disk:
                after(path / "copy")
        except (OSError, EinDecompError) as error:
            told = str(error)
        found = read(path / "copy")
        assert found in (old, new), f"{what}: it told {told} and left {found}"
        shutil.rmtree(path / "copy")
        return found

    for error in (errno.ENOSPC, errno.EIO, SHORT):
        for number in count(1):
            fault = Fault(number, error)
            what = os.strerror(error) if error else "half"
            found = left_by(failing(fault), f"{what} at change {number} of the disk")
            seen |= set(fault.seen)
            if not error or not fault.is_met:
                assert found == new, f"{what} at change {number} of the disk"
            if not fault.is_met:
                break
    largest = max(p.stat().st_size for p in (path / "new").rglob("*") if p.is_file())
    for room in sorted({0, 1, *(largest * k // 8 for k in range(1, 8)), largest - 1, largest}):
        found = left_by(full_disk(room), f"room for {room} bytes")
        assert room < largest or found == new
    return seen
