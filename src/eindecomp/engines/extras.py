"""Loading the packages that not every user needs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from eindecomp.errors import InputError


def extra(package: str) -> Any:
    """A package of the extra `models`, or zarr."""
    try:
        return import_module(package)
    except ImportError:
        how = "'eindecomp[zarr]'" if package == "zarr" else "'eindecomp[models]'"
        raise InputError(f"{package} is not installed: pip install {how}") from None
