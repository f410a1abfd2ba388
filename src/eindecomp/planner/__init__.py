"""Cuts every vertex of a graph over devices at provably least cost."""
