"""Patterns: computations that several vertices of a graph make up together."""
