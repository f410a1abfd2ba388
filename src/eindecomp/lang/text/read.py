"""Reading `.ein` text and join strings into syntax trees.

The parser is only imported when a text is first read: with lark it takes a fifth of the time that
all of the package takes to import, and a plan that is loaded or a graph built from Python may never
need it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from eindecomp.errors import Source, TextError

if TYPE_CHECKING:
    from eindecomp.lang.text import syntax as s

MAX_TEXT = 8_000_000
"""How many characters a text may have."""


def read_statements(source: Source) -> tuple[s.Statement, ...]:
    """Parse a whole text.

    >>> [statement] = read_statements(Source("output Z"))
    >>> statement
    OutputDecl(name='Z', at=7)
    """
    return _read(source, "start")


@lru_cache(maxsize=2**10)
def read_join(text: str) -> tuple[s.Term, ...]:
    """Parse a join string: one term, or the several of a tuple."""
    return _read(Source(text, "join"), "join")


def _read(source: Source, start: str) -> Any:
    if len(source.text) > MAX_TEXT:
        raise TextError(f"the text is longer than {MAX_TEXT:,} characters", source, 0)
    from eindecomp.lang.text.parser import parse

    return parse(source, start)
