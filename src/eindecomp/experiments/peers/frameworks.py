"""The one place that imports other systems, when one of them is asked for."""

from __future__ import annotations

from typing import Any

from eindecomp.experiments.measure import Absent


def torch() -> Any:
    """The package torch."""
    try:
        import torch
    except ImportError:
        raise Absent("torch is not installed") from None
    return torch


def dask_array() -> Any:
    """The package dask.array."""
    try:
        import dask.array
    except ImportError:
        raise Absent("dask.array is not installed") from None
    return dask.array


def transformers() -> Any:
    """The package transformers, which needs torch."""
    torch()
    try:
        import transformers
    except ImportError:
        raise Absent("transformers is not installed") from None
    return transformers
