"""What tensors of a framework are called in a graph, and the way back."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any

from eindecomp.errors import InputError, suggest
from eindecomp.lang.names import KEYWORDS

if TYPE_CHECKING:
    from eindecomp.graph.graph import Graph


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


def free_name(name: str, taken: Container[str]) -> str:
    """A name, with underscores after it where others have it already."""
    while name in taken:
        name += "_"
    return name


def key_of(entry: Any) -> str:
    """What a step into a pytree is called: the key of a dict, an attribute, a place in a list."""
    for attribute in ("key", "name", "idx"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)


def check_given(graph: Graph, given: Mapping[str, Any], known: Mapping[str, str]) -> None:
    """Refuse arrays that are not tensors of a graph, which `known` names, or of another shape."""
    for name, array in given.items():
        if name not in known:
            raise InputError(f"the plan has no tensor {name!r}{suggest(name, known)}")
        wanted, shape = graph[known[name]].shape, tuple(array.shape)
        if shape != wanted:
            raise InputError(f"{name} has the shape {wanted} in the plan, not {shape}")
