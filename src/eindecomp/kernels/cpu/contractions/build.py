"""A nest made ready for arrays of one layout: which calls, on which blocks, in which memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from eindecomp.kernels.cpu.contractions.nest import AFTER, BEFORE, INSIDE
from eindecomp.kernels.cpu.contractions.parts import (
    Placed,
    UnsuitedError,
    compact_strides,
    multiply,
    temporary,
)
from eindecomp.kernels.cpu.contractions.script import Address, Script
from eindecomp.kernels.cpu.loops.strides import strides_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from eindecomp.kernels.cpu.contractions.nest import BlockedNest
    from eindecomp.kernels.cpu.loops.launch import LoopsCall
    from eindecomp.lang.dtypes import DType
    from eindecomp.lang.einsum import EinSum, Labels

    Array = np.ndarray[Any, Any]

_UNIT = 8
"""Blocks of more indices than this are multiples of it, as rows of vector kernels are."""


def block_of(
    nest: BlockedNest, inputs: Sequence[Labels], sizes: Mapping[str, int], itemsize: int
) -> int:
    """How many indices of the blocked label are taken at a time."""
    if not nest.blocked:
        return 1
    size = sizes[nest.blocked]
    each = itemsize * sum(
        prod(sizes[label] for label in step.labels if label != nest.blocked)
        for step, when in zip(nest.steps[:-1], nest.times(inputs), strict=False)
        if when == INSIDE and nest.blocked in step.labels
    )
    most = max(1, min(size, nest.budget // max(each, 1)))
    block = -(-size // -(-size // most))  # blocks of about the same size
    return min(size, -(-block // _UNIT) * _UNIT) if block > _UNIT else block


def build(
    op: EinSum, nest: BlockedNest, operands: Sequence[Array], out: Array, sizes: Mapping[str, int]
) -> LoopsCall | None:
    """The call that computes arrays of a layout by a nest; None if there is none."""
    inputs = [
        Placed(array.dtype, Address(k), strides_of(own, array))
        for k, (own, array) in enumerate(zip(op.inputs, operands, strict=True))
    ]
    result = Placed(out.dtype, Address(len(inputs)), strides_of(op.output, out))
    making = _Making(op, nest, dict(sizes), inputs, result, out.dtype, Script(len(inputs) + 1))
    try:
        making.all()
    except UnsuitedError:
        return None
    return making.script.finished()


@dataclass(slots=True)
class _Making:
    op: EinSum
    nest: BlockedNest
    sizes: dict[str, int]
    inputs: list[Placed]
    result: Placed
    type: DType
    script: Script

    def all(self) -> None:
        """All steps: before the blocks, block by block, and after them."""
        nest = self.nest
        times = nest.times(self.op.inputs)
        block = block_of(nest, self.op.inputs, self.sizes, self.type.itemsize)
        tensors = [*self.inputs, *self._made(times, block)]
        self._phase(tensors, [k for k, at in enumerate(times) if at == BEFORE], 1)
        inside = [k for k, at in enumerate(times) if at == INSIDE]
        if inside:
            blocks, rest = divmod(self.sizes[nest.blocked], block)
            summed = any(nest.blocked not in tensors[len(self.inputs) + k].strides for k in inside)
            first = 1 if summed else 0
            start = 0
            for turns, size in ((first, block), (blocks - first, block), (1, rest)):
                if turns and size:
                    self._blocks(tensors, inside, turns, start, size, add=summed and start > 0)
                    start += turns * size
        self._phase(tensors, [k for k, at in enumerate(times) if at == AFTER], 1)

    def _made(self, times: list[int], block: int) -> list[Placed]:
        """The results of all steps; those that have the blocked label are as long as a block."""
        short = self.sizes | ({self.nest.blocked: block} if self.nest.blocked else {})
        made: list[Placed] = []
        for step, at in zip(self.nest.steps[:-1], times, strict=False):
            sizes = short if at == INSIDE else self.sizes
            tensor = temporary(self.script, step.labels, sizes, self.type)
            made.append(replace(tensor, is_whole=at != INSIDE))
        return [*made, self.result]

    def _phase(self, tensors: list[Placed], steps: list[int], turns: int) -> None:
        if steps:
            self.script.begin(turns)
            for k in steps:
                self._step(tensors, k, self.sizes, add=False)

    def _blocks(
        self,
        tensors: list[Placed],
        steps: list[int],
        turns: int,
        start: int,
        size: int,
        *,
        add: bool,
    ) -> None:
        """A phase that takes so many blocks of a size, from an index on."""
        label, sizes = self.nest.blocked, self.sizes | {self.nest.blocked: size}
        seen: list[Placed] = []
        for each in tensors:
            if label not in each.strides:
                seen.append(each)
            elif not each.is_whole:  # it is the next block's, too
                seen.append(replace(each, strides=compact_strides(each.labels, sizes, each.type)))
            else:
                step = each.strides[label]
                offset = each.address.offset + start * step
                address = replace(each.address, offset=offset, turn=size * step)
                seen.append(replace(each, address=address))
        self.script.begin(turns)
        for k in steps:
            made = seen[len(self.inputs) + k]
            self._step(seen, k, sizes, add=add and label not in made.strides)

    def _step(self, tensors: list[Placed], k: int, sizes: dict[str, int], *, add: bool) -> None:
        step = self.nest.steps[k]
        operands = (tensors[step.first], tensors[step.second])
        multiply(self.script, sizes, operands, tensors[len(self.inputs) + k], add=add)
