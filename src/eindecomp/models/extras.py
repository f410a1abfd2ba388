"""Loading the packages that only models need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from eindecomp.errors import InputError


def extra(package: str) -> Any:
    """A package of the extra `models`."""
    try:
        return import_module(package)
    except ImportError:
        raise InputError(f"{package} is not installed: pip install 'eindecomp[models]'") from None
