"""Rewrites: pure functions from a graph to an equivalent, cheaper one."""
