"""One operator over DTensors: by DTensor's rule, by one of ours, or on gathered operands."""

from __future__ import annotations

from functools import partial
from operator import getitem
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.nn.functional import scaled_dot_product_attention
from torch.utils import _pytree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import fx
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.placement_types import Placement


def run_operator(
    node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], mesh: DeviceMesh
) -> tuple[Any, str]:
    """What an operator returns, and why its operands were gathered, if they were."""
    if node.target is getitem:
        return args[0][args[1]], ""
    if str(node.target) == _ATTENTION and (found := _local_attention(args, kwargs)) is not None:
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
    leaves = (_pytree.tree_leaves(each) for each in (found, node.meta.get("val")))
    for each, meta in zip(*leaves, strict=False):
        if isinstance(each, DTensor) and each.shape != meta.shape:
            return f"its rule makes a shape of {tuple(each.shape)}, not {tuple(meta.shape)}"
    return ""


_ATTENTION = "aten.scaled_dot_product_attention.default"
_BATCH, _HEADS, _QUERIES = 0, 1, 2


def _local_attention(args: Sequence[Any], kwargs: Mapping[str, Any]) -> DTensor | None:
    """Scaled dot-product attention, each device computing its own part; None for other operands.

    DTensor has no rule for it on CPUs, and other rules on each kind of GPU. Sequences, heads and
    queries are independent of each other, so a device that has some of them, with all keys and
    values of theirs, needs no other. Where keys or values are sharded otherwise, they are gathered.
    """
    query, key, value, *more = args
    names = ("attn_mask", "dropout_p", "is_causal")
    given: dict[str, Any] = dict(zip(names, more, strict=False)) | dict(kwargs)
    if not isinstance(query, DTensor) or query.ndim != 4 or given.get("dropout_p"):
        return None
    mesh, causal = query.device_mesh, bool(given.get("is_causal"))
    own = tuple(_kept(each, causal) for each in query.placements)
    others = tuple(Replicate() if each == Shard(_QUERIES) else each for each in own)
    local = query.redistribute(placements=own).to_local()
    pair: list[Any] = [_local(each, mesh, others) for each in (key, value)]
    if given.get("attn_mask") is not None:
        given["attn_mask"] = _local(given["attn_mask"], mesh, own)
    found = scaled_dot_product_attention(local, *pair, **given)
    shape = torch.Size((*query.shape[:3], value.shape[3]))
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(found, mesh, own, run_check=False, shape=shape, stride=stride)


def _kept(place: Placement, causal: bool) -> Placement:
    """How queries may lie: whole, or cut along what is independent.

    With a causal mask that is not given, a query's place among all must be known.
    """
    dims = (_BATCH, _HEADS) if causal else (_BATCH, _HEADS, _QUERIES)
    return place if type(place) is Shard and place.dim in dims else Replicate()


def _local(tensor: Any, mesh: DeviceMesh, places: Sequence[Placement]) -> torch.Tensor:
    """A device's part of a tensor, which is whole along dimensions that it has only one of."""
    if not isinstance(tensor, DTensor):
        whole = (Replicate(),) * mesh.ndim
        tensor = DTensor.from_local(tensor, mesh, whole, run_check=False)
    lacking = 4 - tensor.ndim
    wanted = tuple(
        Shard(each.dim - lacking)
        if isinstance(each, Shard) and each.dim >= lacking and tensor.shape[each.dim - lacking] > 1
        else Replicate()
        for each in places
    )
    return tensor.redistribute(placements=wanted).to_local()
