"""How fast a device computes, by the shape of what it computes.

Products of large matrices are faster than thin ones, and these faster than a matrix times a vector.
What tells them apart is their *intensity*, the operations for each element that is read or written:
2·n/3 for matrices of n × n, about 2·w for one of few rows w, about 2 for a vector. Between the
measured shapes, rates are interpolated. All that is no product is a loop, in which elementary
functions such as `exp` take time of their own: each is many operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.graph.work import tile_functions
from eindecomp.lang.einsum import EinSum

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.graph.ops import Op

INTENSITIES = {"vector": 2.0, "thin": 16.0, "large": 256.0, "huge": 683.0}
"""The intensity of each kind of product for which a machine gives a rate."""
LOOPS = "loops"
FUNCTIONS = "functions"
SHAPES = (*INTENSITIES, LOOPS, FUNCTIONS)
STAND_INS = {"huge": "large", FUNCTIONS: LOOPS}
"""Shapes that older profiles lack, and those whose rates they then have."""
_ITEM = 4


def is_product(op: Op | None) -> bool:
    """Whether a vertex, if it is one, multiplies tensors and sums."""
    return isinstance(op, EinSum) and op.is_contraction and len(op.inputs) > 1


def rate(flops: float | Mapping[str, float], op: Op | None, intensity: Any, item: int) -> Any:
    """Operations per second of a tile, for items of so many bytes."""
    if isinstance(flops, float | int):
        return flops
    slower = max(item, _ITEM) / _ITEM
    if not is_product(op):
        return flops[LOOPS] / slower
    known = np.array(list(INTENSITIES.values()))
    rates = np.array([flops[name] for name in INTENSITIES])
    asked = np.array(np.maximum(intensity, 1.0), dtype=np.float64)
    return np.exp(np.interp(np.log(asked), np.log(known), np.log(rates))) / slower


def function_seconds(
    flops: float | Mapping[str, float], op: Op, tile: Mapping[str, Any], item: int
) -> Any:
    """What elementary functions take on a tile beside all other operations."""
    if isinstance(flops, float | int):
        return 0.0
    return tile_functions(op, tile) / flops[FUNCTIONS] * (max(item, _ITEM) / _ITEM)


def best_rate(flops: float | Mapping[str, float], op: Op, item: int) -> float:
    """The most operations per second of any tile."""
    if isinstance(flops, float | int):
        return flops
    fastest = max(INTENSITIES, key=lambda name: flops[name])
    return float(rate(flops, op, INTENSITIES[fastest], item))
