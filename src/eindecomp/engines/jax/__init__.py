"""Plans as one compiled function of JAX over a mesh of its devices."""
