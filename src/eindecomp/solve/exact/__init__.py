"""Exact methods: folding repeated layers, elimination, and toulbar2."""
