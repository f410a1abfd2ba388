"""Where in the user's code a node of an exported graph comes from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import fx

_LINE = re.compile(r'File "([^"]+)", line (\d+), in (.+)\n?(.*)')
_TORCH = str(Path(torch.__file__).parent)


def is_of_torch(file: str) -> bool:
    """Whether a file belongs to torch rather than to the user."""
    return file.startswith(_TORCH)


def module_path(node: fx.Node) -> str:
    """The qualified name of the module that a node belongs to."""
    stack: dict[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
    return next((path for path, _ in reversed([*stack.values()]) if path), "")


def place_of(node: fx.Node) -> str:
    """The innermost line of the user's code that made a node, and its module."""
    found = _LINE.findall(node.meta.get("stack_trace") or "")
    lines = [line for line in found if not is_of_torch(line[0])] or found
    where = "in the exported graph"
    if lines:
        file, number, function, code = lines[-1]
        where = f"in {file}, line {number}, in {function}: {code.strip()}"
    path = module_path(node)
    return f"  {where}" + (f"\n  in module {path}" if path else "")
