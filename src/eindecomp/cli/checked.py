"""How far the outputs of a run are from the reference, and whether that is rounding."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.graph.evaluate import evaluate
from eindecomp.lang.dtypes import Kind, kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.engines.result import Result
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex

    Array = np.ndarray[Any, Any]


def errors_of(result: Result, graph: Graph, arrays: Mapping[str, Any]) -> dict[str, float]:
    """The largest error of each output, against what the graph means."""
    wanted = evaluate(graph, arrays)
    return {name: largest_error(result[name], right) for name, right in wanted.items()}


def is_rounding(errors: Mapping[str, float], graph: Graph) -> bool:
    """Whether all errors are as small as rounding makes them."""
    count = len(graph.vertices)
    return all(error <= _tolerance(graph[name], count) for name, error in errors.items())


def count_nan(array: Array) -> int:
    """How many values are not numbers."""
    return int(np.count_nonzero(array != array))


def largest_error(found: Array, wanted: Array) -> float:
    """The largest difference; of numbers that are rounded, relative to the largest one wanted."""
    if kind(wanted.dtype) in (Kind.BOOL, Kind.INT):
        differ = found != wanted
        # As Python's integers, which are exact at any size.
        apart = np.abs(found[differ].astype(object) - wanted[differ].astype(object))
        return float(apart.max(initial=0))
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    left, right = found.astype(wide), wanted.astype(wide)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where(same, 0, np.abs(left - right))
    scale = np.abs(right[np.isfinite(right)]).max(initial=0)
    worst = float(apart.max(initial=0) / (scale or 1))
    return math.inf if math.isnan(worst) else worst


def _tolerance(vertex: Vertex, vertices: int) -> float:
    """How far apart results may be, the more vertices round on the way the further."""
    if kind(vertex.dtype) in (Kind.BOOL, Kind.INT):
        return 0.0
    bits = {2: 2e-2, 4: 1e-4}
    real = vertex.dtype.itemsize // (2 if kind(vertex.dtype) is Kind.COMPLEX else 1)
    return bits.get(real, 1e-10) * max(1.0, math.sqrt(vertices / 10))
