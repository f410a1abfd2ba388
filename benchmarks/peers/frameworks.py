"""The one place that imports other systems, when one of them is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from peers.race import Absent

if TYPE_CHECKING:
    from collections.abc import Callable

_SHAPES = 64
"""For how many shapes one function may be compiled; torch gives up after eight."""


def torch() -> Any:
    """The package torch."""
    return _installed("torch")


def dask_array() -> Any:
    """The package dask.array."""
    return _installed("dask.array")


def transformers() -> Any:
    """The package transformers, which needs torch."""
    torch()
    return _installed("transformers")


def accelerate() -> Any:
    """The package accelerate, which needs torch."""
    torch()
    return _installed("accelerate")


def deepspeed() -> Any:
    """The package deepspeed, which needs torch."""
    torch()
    return _installed("deepspeed")


def _installed(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        raise Absent(f"{package} is not installed") from None


def compiled(function: Callable[..., Any], device: str, **options: Any) -> Callable[..., Any]:
    """A function compiled by torch for each shape that it meets.

    On the CPU it is only traced: there it is not to be fast, but to be tried in seconds.
    """
    library = torch()
    library._dynamo.config.recompile_limit = _SHAPES
    if device != "cuda":
        options = {"backend": "eager", "fullgraph": options.get("fullgraph", False)}
    return library.compile(function, dynamic=False, **options)
