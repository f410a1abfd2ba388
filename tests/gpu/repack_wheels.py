"""Pack the large wheels of a folder tighter, by LZMA, which pip reads as well: half of LLVM's size.

`python repack_wheels.py wheels`; pip's own stays as it is, since Python runs it from its wheel.
"""

from __future__ import annotations

import sys
from pathlib import Path
from zipfile import ZIP_LZMA, ZipFile

LARGE = 1_000_000  # bytes


def repack(wheel: Path) -> None:
    """Pack one wheel anew, unless that has been done."""
    with ZipFile(wheel) as given:
        if all(entry.compress_type == ZIP_LZMA for entry in given.infolist()):
            return
        packed = wheel.with_suffix(".part")
        with ZipFile(packed, "w", ZIP_LZMA) as made:
            for entry in given.infolist():
                data = given.read(entry)
                entry.compress_type = ZIP_LZMA
                made.writestr(entry, data)
    packed.replace(wheel)


if __name__ == "__main__":
    for path in sorted(Path(sys.argv[1]).glob("*.whl")):
        if path.stat().st_size > LARGE and not path.name.startswith("pip-"):
            repack(path)
