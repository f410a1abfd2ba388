"""One operator over DTensors: by DTensor's rule, by one of ours, or on gathered operands."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.distributed.tensor import DTensor, Replicate
from torch.utils import _pytree

from eindecomp.frontends.torch import local_attention
from eindecomp.frontends.torch.flat_rows import FlatRows, with_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import fx
    from torch.distributed.device_mesh import DeviceMesh


def run_operator(
    node: fx.Node, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], mesh: DeviceMesh
) -> tuple[Any, str]:
    """What an operator returns, and why its operands were gathered, if they were."""
    if (rows := with_rows(name, args)) is not None:
        return rows, ""
    if any(isinstance(arg, FlatRows) for arg in args):
        args = [arg.made() if isinstance(arg, FlatRows) else arg for arg in args]
    if name == local_attention.NAME:
        found = local_attention.local_attention(args, kwargs)
        if found is not None:
            return found, ""
    target: Any = node.target
    try:
        found = target(*args, **kwargs)
        why = _misshapen(node, found)
    except (NotImplementedError, RuntimeError) as error:
        found, why = None, str(error).strip().splitlines()[0]
    if not why:
        return found, ""
    args, kwargs = _pytree.tree_map_only(DTensor, _gathered, (args, kwargs))
    whole = partial(_replicated, mesh)
    found = _pytree.tree_map_only(torch.Tensor, whole, target(*args, **kwargs))
    return found, f"DTensor cannot do {target}: {why}"


def _gathered(tensor: DTensor) -> torch.Tensor:
    return tensor.full_tensor()


def _replicated(mesh: DeviceMesh, local: torch.Tensor) -> DTensor:
    return DTensor.from_local(local, mesh, (Replicate(),) * mesh.ndim, run_check=False)


def _misshapen(node: fx.Node, found: Any) -> str:
    """What is wrong with the shapes of an operator's results, for rules of DTensor that err."""
    expected: Any = node.meta.get("val")
    several = isinstance(found, tuple | list)
    pairs: Iterable[tuple[Any, Any]] = (
        zip(cast("Sequence[Any]", found), expected, strict=False)
        if several
        else [(found, expected)]
    )
    for each, meta in pairs:
        if isinstance(each, DTensor) and each.shape != meta.shape:
            return f"its rule makes a shape of {tuple(each.shape)}, not {tuple(meta.shape)}"
    return ""
