"""What parameters and buffers of modules are called in a graph."""

from __future__ import annotations

from eindecomp.lang.names import KEYWORDS


def input_name(qualified: str) -> str:
    """The name of an input for a parameter's qualified name, which it is wherever that is legal.

    >>> input_name("model.norm.weight"), input_name("0.weight"), input_name("_0.weight")
    ('model.norm.weight', '_0.weight', '__0.weight')
    """
    return f"_{qualified}" if _is_marked(qualified) else qualified


def qualified(name: str) -> str:
    """The qualified name of the parameter that an input stands for: the inverse of `input_name`.

    >>> qualified("_0.weight"), qualified("_result")
    ('0.weight', 'result')
    """
    return name[1:] if name.startswith("_") and _is_marked(name) else name


def _is_marked(name: str) -> bool:
    """Whether a name gets one underscore more: one that is no name without underscores."""
    bare = name.lstrip("_")
    return bare[:1].isdigit() or bare in KEYWORDS
