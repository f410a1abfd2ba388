"""By what damage to a file is noticed: its size and the checksum of its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from eindecomp.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

_CHUNK = 1 << 22  # bytes that are read at a time


@dataclass(frozen=True, slots=True)
class FileStamp:
    """The size of a file in bytes, and the CRC-32 of them."""

    nbytes: int
    crc32: int

    def to_json(self) -> dict[str, int]:
        """As a manifest has it."""
        return {"bytes": self.nbytes, "crc32": self.crc32}

    def check(self, path: Path) -> None:
        """Read a file and refuse it unless it is the one that was written."""
        if not path.is_file():
            raise InputError(f"{path} is missing")
        size = path.stat().st_size
        if size != self.nbytes:
            raise InputError(f"{path} has {size} bytes, but {self.nbytes} were written")
        found = 0
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                found = crc32(chunk, found)
        if found != self.crc32:
            raise InputError(f"{path} has not the bytes that were written: its checksum differs")
