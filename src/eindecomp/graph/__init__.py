"""Graphs of EinSums: building, printing, evaluating, rewriting and differentiating them."""
