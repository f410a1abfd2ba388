"""Divides every vertex of a graph among devices, at a provably minimal cost.

`make.py` tells the story: options are checked, an objective is minimized, a `Plan` comes out.
`space` is what can be chosen, `costs` what it costs, `model` the problem that the solver is given,
`search` how large problems are searched, `minimize_bound.py` what the paper does for its own
objective, and `budgets.py` every number that tunes a search.
"""
