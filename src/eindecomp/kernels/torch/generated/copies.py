"""Copies of operands in which what a tile's threads read side by side lies side by side."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.kernels.torch.generated.configs import Config
    from eindecomp.kernels.torch.generated.groups import Split

    Tensor = Any


@dataclass(frozen=True, slots=True)
class Copy:
    """An operand of rows, or of columns, as [batch, summed steps in packs, rows, steps of a pack].

    There are as many rows as fill whole tiles, and one pack more than steps need, so that kernels
    may read beyond both. What is there is never used.
    """

    shape: tuple[int, ...]
    """Sizes of the operand's labels: of the batch, summed, of rows or columns."""
    source: tuple[int, ...]
    batch: int
    summed: int
    own: int
    padded: int
    pack: int

    @property
    def packs(self) -> int:
        """How many packs there are for each element of the batch."""
        return -(-self.summed // self.pack) + 1

    def make(self, operand: Tensor) -> Tensor:
        """Copy an operand."""
        found = operand.as_strided(self.shape, self.source, operand.storage_offset())
        found = found.reshape(self.batch, self.summed, self.own)
        shape = (self.batch, self.packs, self.padded, self.pack)
        buffer = torch.empty(shape, dtype=operand.dtype, device=operand.device)
        whole, rest = divmod(self.summed, self.pack)
        packed = found[:, : whole * self.pack].reshape(self.batch, whole, self.pack, self.own)
        buffer[:, :whole, : self.own].copy_(packed.transpose(2, 3))
        if rest:
            last = found[:, whole * self.pack :].transpose(1, 2)
            buffer[:, whole, : self.own, :rest].copy_(last)
        return buffer


def copy_of(
    source: Mapping[str, int], sizes: Mapping[str, int], split: Split, config: Config
) -> tuple[Copy, dict[str, int]] | None:
    """The copy of an operand of given strides, and the copy's; None if it is of no use.

    In packs, the stride of a summed step is that of a pack: the kernel knows.
    """
    rows, cols = ([label for label in side if label in source] for side in (split.rows, split.cols))
    own = rows or cols
    if not own or (rows and cols):
        return None
    batch, summed = (
        [label for label in group if label in source] for group in (split.batch, split.summed)
    )
    block = config.tile[0 if rows else 1]
    count = {"batch": batch, "summed": summed, "own": own}
    extents = {name: prod(sizes[label] for label in group) for name, group in count.items()}
    order = [*batch, *summed, *own]
    copy = Copy(
        tuple(sizes[label] for label in order),
        tuple(source[label] for label in order),
        **extents,
        padded=-(-extents["own"] // block) * block,
        pack=config.pack,
    )
    step = copy.padded * copy.pack
    strides = _contiguous(own, sizes, copy.pack) | _contiguous(summed, sizes, step)
    return copy, strides | _contiguous(batch, sizes, step * copy.packs)


def _contiguous(labels: list[str], sizes: Mapping[str, int], step: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for label in reversed(labels):
        found[label] = step
        step *= sizes[label]
    return found
