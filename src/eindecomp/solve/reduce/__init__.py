"""Reductions: smaller problems with the same optimum."""
