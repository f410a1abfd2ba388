"""Amounts of memory as users write and read them: `70GB`, `1.5 KiB`."""

from __future__ import annotations

import re

from eindecomp.errors import PlanError
from eindecomp.layout.mesh import is_whole

_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?i?B?)\s*", re.IGNORECASE | re.ASCII)


def parse_bytes(given: int | str) -> int:
    """An amount of memory in bytes.

    >>> parse_bytes("70GB"), parse_bytes("1.5 GiB"), parse_bytes(4096)
    (70000000000, 1610612736, 4096)
    """
    if isinstance(given, str) and (match := _AMOUNT.fullmatch(given)):
        unit = match[2].lower()
        if unit in _UNITS:
            return int(float(match[1]) * _UNITS[unit])
    if not isinstance(given, str) and is_whole(given) and given >= 0:
        return int(given)
    raise PlanError(f"memory must be a number of bytes or a text such as '70GB', not {given!r}")


def show_bytes(size: float) -> str:
    """An amount of memory in words.

    >>> show_bytes(1536), show_bytes(17)
    ('1.5 KiB', '17 B')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            return f"{size:.0f} B" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    raise AssertionError("the last unit takes anything")
