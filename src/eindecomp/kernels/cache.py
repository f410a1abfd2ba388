"""Compiled code: what is compiled now, for engines to report, and what is kept on disk.

Files hold native code, so they are trusted only in a folder that belongs to the user and that
nobody else can write to or replace, and only if they are complete: each begins with the digest of
the rest. A key names each file. A file that is missing or damaged counts as absent, and a folder
that cannot be written to costs nothing but the next process's time. What was not used for longest
goes first when there is more than `limit`.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from itertools import count
from pathlib import Path
from secrets import token_hex
from time import time

from eindecomp.errors import InputError, quote

try:
    import fcntl
except ImportError:  # only POSIX has it
    fcntl = None


LIMIT = "EINDECOMP_CACHE_MB"
"""The environment variable that says how many MiB are kept; 0 stores and loads nothing."""
_USUAL = 256
_LEAVE = 0.8  # of the limit is kept when it is exceeded, so that not every store exceeds it
_LOOK = 32  # stores between two checks of the size
_DAY = 86_400.0  # seconds after which an unfinished file is considered abandoned
_DIGEST = 32
_UNFINISHED = "."  # prefix of files that are being written
_LOCK = f"{_UNFINISHED}measuring"

_stores = count()


def load(key: str) -> bytes | None:
    """What was stored under a key, or None."""
    path = _path_of(key)
    if path is None or not limit():
        return None
    with suppress(OSError):
        with path.open("rb") as opened:
            # Check the file that is read, not only the folder: it could have been replaced.
            if not _is_ours_alone(os.fstat(opened.fileno())):
                return None
            data = opened.read()
        if hashlib.sha256(data[_DIGEST:]).digest() == data[:_DIGEST]:
            with suppress(OSError):  # the folder may be read-only
                os.utime(path)
            return data[_DIGEST:]
    return None


def store(key: str, data: bytes) -> None:
    """Store data under a key, all of it or nothing, even if others store it at the same time."""
    path = _path_of(key)
    if path is None or not limit() or len(data) > limit():
        return
    fresh = path.with_name(f"{_UNFINISHED}{token_hex(8)}")
    with suppress(OSError):
        try:
            fresh.touch(0o600, exist_ok=False)
            fresh.write_bytes(hashlib.sha256(data).digest() + data)
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
        if next(_stores) % _LOOK == 0:
            _shrink(path.parent)


@contextmanager
def only_process() -> Generator[None]:
    """Keep out all other processes that share the folder, where it can be locked."""
    folder = cache_folder()
    with ExitStack() as stack:
        if folder is not None and fcntl is not None:
            with suppress(OSError):  # as in a read-only folder, where nobody stores anything
                opened = stack.enter_context((folder / _LOCK).open("w"))
                fcntl.flock(opened, fcntl.LOCK_EX)
        yield


def cache_folder() -> Path | None:
    """The folder of compiled functions; None if no folder can be created and trusted."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    try:
        root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
        folder = root / "eindecomp" / "kernels"
        if not _is_safe(folder):
            return None
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The real path, so that links are followed once, now.
        real = folder.resolve(strict=True)
        status = real.lstat()
    except (OSError, RuntimeError):
        return None
    safe = _is_safe(folder) and _is_ours_alone(status) and stat.S_ISDIR(status.st_mode)
    return real if safe else None


def _path_of(key: str) -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / hashlib.sha256(key.encode()).hexdigest()


def limit() -> int:
    """The limit in bytes that the environment sets; raises if that is not a number."""
    text = os.environ.get(LIMIT, "").strip() or str(_USUAL)
    if not (text.isascii() and text.isdecimal() and len(text) < 12):
        raise InputError(
            f"{LIMIT} is how many whole MiB of compiled code are kept, not {quote(text)}"
        )
    return int(text) << 20


def _shrink(folder: Path) -> None:
    """Remove the least recently used files, and abandoned unfinished ones."""
    most, now = limit(), time()
    files = sorted(_files(folder), key=lambda file: file[1].st_mtime)
    total = sum(status.st_size for _, status in files)
    leave = most if total <= most else _LEAVE * most
    for path, status in files:
        abandoned = path.name.startswith(_UNFINISHED) and status.st_mtime < now - _DAY
        if total > leave or abandoned:
            path.unlink(missing_ok=True)
            total -= status.st_size


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):  # another process may have removed it
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield folder / entry.name, status


def _is_safe(folder: Path) -> bool:
    """Whether only the user and root control what lies at a path, as far as it exists.

    As ssh has it: up to the home folder, or to the root for what lies elsewhere.
    """
    # A link owned by somebody else could point anywhere.
    links = (part for part in (folder, *folder.parents) if part.is_symlink())
    if not all(_is_own(part.lstat()) for part in links):
        return False
    real, home = folder.resolve(), Path.home().resolve()
    for part in (real, *real.parents):
        if part.exists() and not _is_kept_from_others(part.lstat()):
            return False
        if part == home:
            break
    return True


def _is_own(status: os.stat_result) -> bool:
    """Whether something belongs to the user or to root."""
    return not hasattr(os, "getuid") or status.st_uid in (0, os.getuid())


def _is_kept_from_others(status: os.stat_result) -> bool:
    """Whether nobody else can replace what lies in a folder."""
    if not hasattr(os, "getuid"):
        return True
    sticky = bool(status.st_mode & stat.S_ISVTX)  # as /tmp is: only owners may rename and remove
    shared = status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid)
    return _is_own(status) and (sticky or not (shared or status.st_mode & stat.S_IWOTH))


def _is_ours_alone(status: os.stat_result) -> bool:
    """Whether something is the user's own and nobody else can write to it."""
    own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    return own and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_private_group(group: int) -> bool:
    """Whether a group is the user's private group: same name, no other members."""
    import grp
    import pwd

    with suppress(KeyError):
        user, entry = pwd.getpwuid(os.getuid()), grp.getgrgid(group)
        alone = set(entry.gr_mem) <= {user.pw_name}
        return alone and entry.gr_name == user.pw_name and user.pw_gid == group
    return False


# Recording what is compiled

Compilation = tuple[str, float, float]
"""What was compiled, and from when until when, by `perf_counter`."""

_recorded: ContextVar[list[Compilation] | None] = ContextVar("recorded", default=None)


@contextmanager
def record_compilations() -> Generator[list[Compilation]]:
    """Collect what this thread compiles in the block; an inner block collects its own."""
    compiled: list[Compilation] = []
    token = _recorded.set(compiled)
    try:
        yield compiled
    finally:
        _recorded.reset(token)


def note_compilation(description: str, start: float, stop: float) -> None:
    """Add a compilation to what this thread records, if it does."""
    recorded = _recorded.get()
    if recorded is not None:
        recorded.append((description, start, stop))
