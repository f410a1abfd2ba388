"""Kernels for NumPy's arrays, on one core and without the GIL: BLAS, or generated loops."""

from eindecomp.kernels.interrupts import uninterrupted

# An import of numba that ends halfway leaves modules behind that no later one can use.
with uninterrupted():
    import numba as _numba  # noqa: F401 # pyright: ignore[reportUnusedImport]
