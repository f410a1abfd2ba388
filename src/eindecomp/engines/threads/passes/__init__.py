"""What sharing memory allows: each pass turns a tiled program into one that computes the same.

They are applied in this order. A pass is a pure function, in a file named for what it does.
"""

from eindecomp.engines.threads.passes.add_products_in_place import add_products_in_place
from eindecomp.engines.threads.passes.compute_tiny_vertices_whole import (
    compute_tiny_vertices_whole,
)
from eindecomp.engines.threads.passes.merge_product_tiles import merge_product_tiles

PASSES = (add_products_in_place, compute_tiny_vertices_whole, merge_product_tiles)

__all__ = ["PASSES"]
