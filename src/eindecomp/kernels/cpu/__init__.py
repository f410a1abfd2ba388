"""Kernels for NumPy's arrays, on one core and without the GIL: BLAS, or generated loops."""
