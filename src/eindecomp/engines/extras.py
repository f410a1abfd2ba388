"""Loading the packages that not every user needs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from eindecomp.errors import needing_extras


def extra(package: str) -> Any:
    """A package of one of our extras, such as `zarr`."""
    with needing_extras():
        return import_module(package)
