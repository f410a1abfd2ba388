"""Searches for mesh axes, where a problem is too large for one solution."""
