"""Operators in terms of others, as torch itself defines them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.utils import _pytree

if TYPE_CHECKING:
    from collections.abc import Callable


def decomposed(node: fx.Node) -> tuple[fx.GraphModule, list[int]] | None:
    """A graph that computes a node, and which of its flat arguments the placeholders stand for.

    None if torch knows no simpler operators for it.
    """
    rule = _rule(node.target)
    if rule is None:
        return None
    from torch.fx.experimental.proxy_tensor import make_fx

    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
    flat, spec = _pytree.tree_flatten((args, kwargs), is_leaf=lambda x: x is None)
    tensors = [k for k, value in enumerate(flat) if isinstance(value, torch.Tensor)]
    modes = [mode for k in tensors if (mode := getattr(flat[k], "fake_mode", None)) is not None]

    def run(*given: torch.Tensor) -> Any:
        own = list(flat)
        for k, tensor in zip(tensors, given, strict=True):
            own[k] = tensor
        args, kwargs = _pytree.tree_unflatten(own, spec)
        return rule(*args, **kwargs)

    given = [flat[k] for k in tensors]
    mode = modes[0] if modes else torch.no_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Kernels of mkldnn would stand for whole layers.
        with mode, torch.no_grad(), torch.backends.mkldnn.flags(enabled=False):
            try:
                made = make_fx(run)(*given)
            except (RuntimeError, ValueError, TypeError):  # rules of torch that do not go through
                return None
    if any(each.target is node.target for each in made.graph.nodes):
        return None
    return made, tensors


def changes(node: fx.Node) -> bool:
    """Whether a node changes a tensor in place."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable and str(node.target) != "aten.detach_.default"


def _rule(target: Any) -> Callable[..., Any] | None:
    """What defines an operator by others."""
    from torch import _decomp

    table: Any = _decomp.decomposition_table  # pyright: ignore[reportUnknownVariableType]
    if target in table:
        return table[target]
    if not isinstance(target, torch._ops.OpOverload):  # pyright: ignore[reportPrivateUsage]
        return None
    composite = torch._C.DispatchKey.CompositeImplicitAutograd  # pyright: ignore
    has = torch._C._dispatch_has_kernel_for_dispatch_key  # pyright: ignore
    known = composite in target.py_kernels or has(target.name(), composite)
    return target.decompose if known else None
