"""Exact methods: folding repeated layers, and elimination."""
