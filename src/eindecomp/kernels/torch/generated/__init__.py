"""Triton kernels generated for joins that are not plain products, or not summed.

`form` says which loops an EinSum takes, and the ways to run them; `tile_kernel` writes the source
of its kernel (scalar functions by `emit`); `launch` compiles it and runs it in the fastest way, and
is what others call. The joined product is never in memory: each value that is loaded serves a whole
row or column of a tile of accumulators, which stay in registers.
"""
