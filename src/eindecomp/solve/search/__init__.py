"""Search where exact methods are too much: local search, then branch and bound."""
