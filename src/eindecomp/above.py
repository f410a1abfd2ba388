"""What stands above a layer, loaded by name at its first use.

`Graph`, `Plan` and `Result` have methods that explain, draw, compare, save and export them. What
they do is in `show`, `store` and `frontends`, which import those classes, never the other way.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def from_above(module: str) -> Any:
    """A module of `show`, `store` or `frontends`.

    >>> from_above("show.explain").__name__
    'eindecomp.show.explain'
    """
    return import_module(f"eindecomp.{module}")
