"""Ties: state that lives on from run to run, inputs that are what the last run left of a result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.errors import OperandError, quote, suggest
from eindecomp.graph.ops import Fill, Input

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eindecomp.graph.vertex import Vertex


def check_tie(
    vertices: Mapping[str, Vertex],
    outputs: Iterable[str],
    ties: Mapping[str, str],
    name: str,
    result: str,
) -> None:
    """Refuse to tie an input to a result that cannot become it, beside the ties that are there.

    A result that is tied is an output, computed, and of the input's shape and type.
    """
    given, made = vertices.get(name), vertices.get(result)
    if given is None or not isinstance(given.op, Input):
        inputs = [v.name for v in vertices.values() if isinstance(v.op, Input)]
        raise OperandError(f"the graph has no input {quote(name)}{suggest(name[:60], inputs)}", 0)
    if name in ties:
        raise OperandError(f"{name!r} is tied already, to {ties[name]!r}", 0)
    known = list(outputs)
    if made is None or result not in known:
        hint = suggest(result[:60], known)
        raise OperandError(f"the graph has no output {quote(result)}{hint}", 1)
    if isinstance(made.op, Input | Fill):
        raise OperandError(f"{made} is not computed, so that {name!r} cannot be what it leaves", 1)
    if result in ties.values():
        raise OperandError(f"{result!r} is tied to two inputs", 1)
    if given.shape != made.shape or given.dtype != made.dtype:
        raise OperandError(
            f"{given} is {given.dtype} {list(given.shape)}, "
            f"but {made} is {made.dtype} {list(made.shape)}",
            1,
        )
