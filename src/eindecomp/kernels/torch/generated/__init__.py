"""Triton kernels generated for joins that are no plain product, or aggregations that are no sum.

`join.fused_join` gives the kernel of an EinSum. The joined product is never in memory: each value
that is loaded serves a whole row or column of a tile of accumulators, which stay in registers.
"""
