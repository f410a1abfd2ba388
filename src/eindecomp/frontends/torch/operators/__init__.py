"""The operators that are imported; importing this folder registers them.

An operator that is not here is imported as torch itself defines it by others, where it does.
"""

from eindecomp.frontends.torch.operators import (
    aggregations,
    attention,
    convolutions,
    elementwise,
    indexing,
    normalization,
    products,
    shapes,
)

__all__ = [
    "aggregations",
    "attention",
    "convolutions",
    "elementwise",
    "indexing",
    "normalization",
    "products",
    "shapes",
]
