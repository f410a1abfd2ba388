"""The rewrites that run before planning, as one readable pipeline."""

from __future__ import annotations

from eindecomp.graph.arrays import check_outputs
from eindecomp.graph.graph import Graph
from eindecomp.graph.patterns.attention import find_attention
from eindecomp.graph.rewrites.exchange import divide_late, factor_out, gather_early
from eindecomp.graph.rewrites.fuse import fuse
from eindecomp.graph.rewrites.order_contractions import order_contractions
from eindecomp.graph.rewrites.rebuild import merge_common, remove_dead, simplify_joins
from eindecomp.graph.windows import apart, together

BEFORE_ORDER = (gather_early, remove_dead, simplify_joins, factor_out, merge_common)
PASSES = (*BEFORE_ORDER, order_contractions, divide_late, fuse, together)


def after_order(graph: Graph, *, keeps_sums: bool) -> Graph:
    """Run the passes that follow the order of contractions.

    What an attention reads stays apart: one kernel computes all of it, from whole tensors.
    """
    fused = fuse(divide_late(graph), keeps_sums=keeps_sums)
    inside = {name for attention in find_attention(fused) for name in attention.replaces}
    return together(fused, {source for name in inside for source in fused[name].inputs})


def rewrite(graph: Graph, *, keeps_sums: bool = False) -> Graph:
    """Run every pass once: the same outputs from fewer and cheaper vertices.

    Args:
        graph: What to rewrite, such as `ed.parse(text)`; it stays as it is.
        keeps_sums: Whether sums stay vertices that several devices may leave in parts, such as
            `True` for `ed.plan(..., pending=True)`.

    Examples:
        >>> from eindecomp.graph.text.elaborate import parse
        >>> text = "S[i] <- sum X[i,j] / size(j)\\nZ[i] <- S[i] * sqrt(4)\\noutput Z"
        >>> print(rewrite(parse("input X[i: 3, j: 4]\\n" + text)))
        input X[i: 3, j: 4]
        S[i] <- sum X[i,j] / 4
        Z[i] <- S[i] * 2.0
        output Z
    """
    check_outputs(graph)
    graph = apart(graph)
    for run in (*BEFORE_ORDER, order_contractions):
        graph = run(graph)
    return after_order(graph, keeps_sums=keeps_sums)
