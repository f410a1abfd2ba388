"""What tensors of a graph are called in the framework that a plan goes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.errors import InputError, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from eindecomp.graph.graph import Graph


def qualified(name: str) -> str:
    """The name that the framework has for an input: of a parameter, its qualified name."""
    return name


def check_given(graph: Graph, given: Mapping[str, Any], known: Mapping[str, str]) -> None:
    """Refuse arrays that are not tensors of a graph, which `known` names, or of another shape."""
    for name, array in given.items():
        if name not in known:
            raise InputError(f"the plan has no tensor {name!r}{suggest(name, known)}")
        wanted, shape = graph[known[name]].shape, tuple(array.shape)
        if shape != wanted:
            raise InputError(f"{name} has the shape {wanted} in the plan, not {shape}")
