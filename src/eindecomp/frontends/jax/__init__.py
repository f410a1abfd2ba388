"""Functions of JAX in, shardings out."""
