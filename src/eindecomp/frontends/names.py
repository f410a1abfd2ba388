"""What tensors of a graph are called in the framework that a plan goes to."""

from __future__ import annotations


def qualified(name: str) -> str:
    """The name that the framework has for an input: of a parameter, its qualified name."""
    return name
