"""How much memory can be had: what the machine has free, within the limits of control groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/")
_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = ("memory.max", "memory.current", "inactive_file")


def available(root: Path = _ROOT) -> int | None:
    """The bytes that can be allocated without swapping; None where the system does not say."""
    found = [_free(root), *(_left(*group) for group in _groups(root))]
    return min((free for free in found if free is not None), default=None)


def _free(root: Path) -> int | None:
    with suppress(OSError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _groups(root: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """The groups that this process is in, by their folders, and the names of their files.

    Groups lie within others, whose limits hold too; in a container some of them cannot be seen.
    """
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            inner = Path(path.lstrip("/"))
            for group in (inner, *inner.parents):
                if not controllers:
                    yield root / "sys/fs/cgroup" / group, _VERSION_2
                elif controllers == "memory":
                    yield root / "sys/fs/cgroup/memory" / group, _VERSION_1


def _left(group: Path, names: tuple[str, str, str]) -> int | None:
    limit, usage, cached = names
    # A group that has no limit says `max`, or has no such file.
    with suppress(OSError, ValueError):
        left = int((group / limit).read_text()) - int((group / usage).read_text())
        for line in (group / "memory.stat").read_text().splitlines():
            if line.startswith(f"{cached} "):
                left += int(line.split()[1])  # of files, and dropped when memory is needed
        return max(left, 0)
    return None
