"""Kernels for NumPy's arrays, on one core and without the GIL: BLAS, or generated loops."""

from eindecomp.kernels.interrupts import uninterrupted

# An interrupted import of numba leaves modules behind that make every later import fail.
with uninterrupted():
    import numba as _numba  # noqa: F401 # pyright: ignore[reportUnusedImport]
