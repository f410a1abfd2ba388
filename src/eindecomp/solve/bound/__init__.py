"""Proved lower bounds: mini-buckets, message passing and Lagrangian prices."""
