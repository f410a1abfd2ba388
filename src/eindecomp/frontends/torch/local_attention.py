"""Attention over DTensors, each device computing its own part.

DTensor has no rule for attention on CPUs, and other rules on each kind of GPU. Sequences, heads and
queries are independent of each other, so a device that has some of them, with all keys and values
of theirs, needs no other. Where keys or values are sharded otherwise, they are gathered first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.nn.functional import scaled_dot_product_attention

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.placement_types import Placement

NAME = "aten.scaled_dot_product_attention.default"
_BATCH, _HEADS, _QUERIES = 0, 1, 2


def local_attention(args: Sequence[Any], kwargs: Mapping[str, Any]) -> DTensor | None:
    """Scaled dot-product attention of DTensors; None where the operands are others."""
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
