"""The primitives of JAX that are imported, by themes; importing these files registers them."""
