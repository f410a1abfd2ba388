"""The primitives of JAX that are imported, by themes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_THEMES = (
    "elementwise",
    "contractions",
    "aggregations",
    "shapes",
    "lookups",
    "scatters",
    "control",
)

CONTROL = frozenset({"scan", "while", "cond"})
"""Primitives that hold jaxprs and more."""

_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "remat": "jaxpr",
}


def load() -> None:
    """Fill the registry."""
    for theme in _THEMES:
        import_module(f"{__name__}.{theme}")


def inner_jaxpr(eqn: Any) -> Any:
    """The jaxpr that an equation calls with its own operands, or None."""
    place = _CALLS.get(eqn.primitive.name)
    return None if place is None else eqn.params[place]
