"""What sharing memory allows: each pass turns a tiled program into one that computes the same.

A pass is a pure function, in a file named for what it does; `prepare.py` lists them in order.
"""
