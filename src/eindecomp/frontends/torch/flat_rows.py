"""Rows that a module flattens for a matrix product, kept as they were.

`x.view(-1, n)` before `addmm` merges all dimensions but the last. Where an inner one of those is
sharded, DTensor would gather it first; the product of the unmerged tensor is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.tensor import DTensor

if TYPE_CHECKING:
    from collections.abc import Sequence

_VIEWS = ("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default")


@dataclass(frozen=True, slots=True)
class FlatRows:
    """A matrix whose rows are all but the last dimension of a tensor."""

    unmerged: torch.Tensor

    def made(self) -> torch.Tensor:
        """The matrix itself, for whoever needs it so."""
        return self.unmerged.reshape(-1, self.unmerged.shape[-1])


def with_rows(name: str, args: Sequence[Any]) -> FlatRows | torch.Tensor | None:
    """What an operator yields where rows stay unmerged; None where it is not about rows."""
    match name, args:
        case "aten.addmm.default", (bias, FlatRows(rows), weight):
            return FlatRows(torch.matmul(rows, weight) + bias)
        case "aten.mm.default", (FlatRows(rows), weight):
            return FlatRows(torch.matmul(rows, weight))
        case _, (FlatRows(rows), shape) if name in _VIEWS:
            return rows.reshape(shape)
        case _, (DTensor() as rows, shape) if name in _VIEWS and _merges(rows, shape):
            return FlatRows(rows)
        case _:
            return None


def _merges(tensor: DTensor, shape: Sequence[int]) -> bool:
    """Whether all dimensions but the last become one, of which an inner one is sharded."""
    if tensor.ndim < 3:
        return False
    sizes = [tensor.size(dim) for dim in range(tensor.ndim)]
    outer, last = sizes[:-1], sizes[-1]
    inner = range(1, len(outer))
    merges = list(shape) in ([-1, last], [prod(outer), last])
    return merges and any(each.is_shard(dim) for each in tensor.placements for dim in inner)
