"""The primitives of JAX that are imported, by themes; importing this folder registers them."""

from eindecomp.frontends.jax.primitives import (
    aggregations,
    contractions,
    control,
    elementwise,
    lookups,
    scatters,
    shapes,
)

__all__ = [
    "aggregations",
    "contractions",
    "control",
    "elementwise",
    "lookups",
    "scatters",
    "shapes",
]
