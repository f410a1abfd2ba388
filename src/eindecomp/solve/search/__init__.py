"""Search, for what exact methods cannot finish: local search, then branch and bound."""
