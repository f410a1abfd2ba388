"""Engines run plans; each is loaded by name."""
