"""One tile of one EinSum on one core, fast and without the GIL: BLAS or generated loops."""
