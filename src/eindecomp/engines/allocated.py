"""Room on a disk for a file that is mapped: a process that writes where there is none is killed."""

from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING

from eindecomp.planner.costs.byte_sizes import show_bytes

if TYPE_CHECKING:
    from pathlib import Path

_CANNOT = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
"""What a file system says that cannot set room aside."""
_AT_ONCE = 1 << 20  # bytes


def allocate(path: Path) -> None:
    """Set aside the room that a file has by its size; where there is none, remove the file."""
    size = path.stat().st_size
    try:
        with path.open("r+b") as opened:
            try:
                os.posix_fallocate(opened.fileno(), 0, size)
            except OSError as error:
                if error.errno not in _CANNOT:
                    raise
                _write_pages(opened.fileno(), size)
    except OSError as error:
        path.unlink(missing_ok=True)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = shutil.disk_usage(path.parent).free
        why = f"{error.strerror}: it takes {show_bytes(size)}, {show_bytes(free)} are free"
        raise OSError(error.errno, why, str(path)) from error


def _write_pages(descriptor: int, size: int) -> None:
    """Write what a file holds to its place again, so that its pages are there."""
    for start in range(0, size, _AT_ONCE):
        held = os.pread(descriptor, min(_AT_ONCE, size - start), start)
        os.pwrite(descriptor, held, start)
