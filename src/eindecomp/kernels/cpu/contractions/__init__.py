"""Sums of products of several inputs: matrix products inside blocks that stay in the cache."""
