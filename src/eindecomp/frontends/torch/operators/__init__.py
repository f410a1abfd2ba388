"""The operators that are imported, a function each; importing this folder registers them."""

from eindecomp.frontends.torch.operators import (
    activations,
    arithmetic,
    attention,
    comparisons,
    convolution,
    creation,
    indexing,
    losses,
    normalization,
    pooling,
    products,
    reductions,
    rounding,
    scattering,
    shapes,
    sorting,
)

__all__ = [
    "activations",
    "arithmetic",
    "attention",
    "comparisons",
    "convolution",
    "creation",
    "indexing",
    "losses",
    "normalization",
    "pooling",
    "products",
    "reductions",
    "rounding",
    "scattering",
    "shapes",
    "sorting",
]
