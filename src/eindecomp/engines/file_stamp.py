"""By what damage to a file is noticed: its size and the digest of its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from eindecomp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import IO

_CHUNK = 1 << 22  # bytes that are read at a time


@dataclass(frozen=True, slots=True)
class FileStamp:
    """The size of a file in bytes, and their BLAKE2b digest."""

    nbytes: int
    digest: str

    def to_json(self) -> dict[str, Any]:
        """As a manifest has it."""
        return {"bytes": self.nbytes, "blake2b": self.digest}

    def check(self, path: Path) -> None:
        """Read a file and refuse it unless it is the one that was written."""
        if not path.is_file():
            raise InputError(f"{path} is missing")
        size = path.stat().st_size
        if size != self.nbytes:
            raise InputError(f"{path} has {size} bytes, but {self.nbytes} were written")
        with path.open("rb", buffering=0) as file:
            found = stamp(iter(lambda: file.read(_CHUNK), b""))
        if found != self:
            raise InputError(f"{path} has not the bytes that were written: its digest differs")


def stamp(parts: Iterable[Any], into: IO[bytes] | None = None) -> FileStamp:
    """The stamp of bytes, which are written to a file as they are read.

    It is of what was to be written, and so also tells what the disk got wrong.
    """
    hashed, size = blake2b(digest_size=32), 0
    for part in parts:
        if into is not None:
            into.write(part)
        hashed.update(part)
        size += len(part)
    return FileStamp(size, hashed.hexdigest())
