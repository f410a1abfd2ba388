"""What stands above the planner, loaded by name at its first use.

`Plan` has methods that explain, compare, verify, save, load and export it. What they do is in
`show`, `store` and `frontends`, which import the planner; the planner imports none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from eindecomp.errors import needing_extras


def from_above(module: str) -> Any:
    """A module of `show`, `store` or `frontends`.

    >>> from_above("show.explain").__name__
    'eindecomp.show.explain'
    """
    with needing_extras():
        return import_module(f"eindecomp.{module}")
