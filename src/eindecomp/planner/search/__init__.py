"""The search for mesh axes: a lower bound first, then larger and larger parts of the problem.

`choose.py` lists the stages, in the order in which they are tried.
"""
