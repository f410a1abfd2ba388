"""The paper's first experiment: a chain of matrix products."""

from __future__ import annotations

from eindecomp.errors import InputError
from eindecomp.graph.graph import Graph
from eindecomp.graph.text.elaborate import parse

_CHAIN = """
input A[i: {i}, j: {j}], B[j, k: {k}], C[i, l: {l}], D[l, m: {m}], E[m, k]
AB[i,k]  <- sum A[i,j] * B[j,k]
DE[l,k]  <- sum D[l,m] * E[m,k]
CDE[i,k] <- sum C[i,l] * DE[l,k]
Z[i,k]   <- AB[i,k] + CDE[i,k]
output Z
"""


def chain(s: int, skewed: bool = False) -> Graph:
    """(A·B) + (C·(D·E)): all matrices s × s, or s × s/10, s/10 × s, s × s/10, s/10 × 10s, 10s × s.

    Args:
        s: The size of matrices, such as `1000`.
        skewed: Whether they are of the second kind, such as `True`.

    Examples:
        >>> chain(100, skewed=True)["D"].shape
        (10, 1000)
    """
    if s < (10 if skewed else 1):
        raise InputError(f"a {'skewed ' if skewed else ''}chain of size {s} has empty matrices")
    narrow, wide = (s // 10, 10 * s) if skewed else (s, s)
    return parse(_CHAIN.format(i=s, j=narrow, k=s, l=narrow, m=wide))
