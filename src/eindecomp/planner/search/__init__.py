"""The search for mesh axes: a lower bound first, then larger and larger parts of the problem.

`choose.py` tells the order in which the others are tried.
"""
