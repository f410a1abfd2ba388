"""Divides every vertex of a graph among devices, at provably the least cost."""
