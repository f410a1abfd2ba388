"""Folding repeated layers, elimination, and bounds by elimination with tables of limited size."""
