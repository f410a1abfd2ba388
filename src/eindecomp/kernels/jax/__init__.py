"""Tiles of vertices computed by JAX, inside a traced function."""
