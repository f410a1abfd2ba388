"""Nests: ways to compute a sum of products, and the calls of one for arrays of a layout.

A nest says which two tensors come next, and along which label in blocks. Temporaries that have the
blocked label are made one block at a time, so that they stay in the cache and are never whole. What
has no such label is computed once before; a product that sums the blocked label is added up block
by block, and what needs that sum comes after.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from eindecomp.kernels.cpu.contractions.parts import (
    Placed,
    UnsuitedError,
    compact_strides,
    multiply,
    temporary,
)
from eindecomp.kernels.cpu.contractions.script import Address, Script
from eindecomp.kernels.cpu.loops.nest import strides_of
from eindecomp.lang.einsum import Labels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from eindecomp.kernels.cpu.loops.launch import LoopsCall
    from eindecomp.kernels.trees import Tree
    from eindecomp.lang.dtypes import DType
    from eindecomp.lang.einsum import EinSum

    Array = np.ndarray[Any, Any]

BEFORE, INSIDE, AFTER = range(3)
"""When a step is taken: before the blocks, for each of them, or after them."""


@dataclass(frozen=True, slots=True)
class PairStep:
    """The product of two tensors, by their numbers: inputs come first, then results of steps."""

    first: int
    second: int
    labels: Labels
    """Of the result, in the order in which it lies in memory."""


@dataclass(frozen=True, slots=True)
class BlockedNest:
    """Steps, the label that is cut into blocks (or none), and how many bytes a block may take."""

    steps: tuple[PairStep, ...]
    blocked: str = ""
    budget: int = 0

    def labels(self, inputs: Sequence[Labels]) -> list[Labels]:
        """The labels of every tensor, inputs first."""
        return [*inputs, *(step.labels for step in self.steps)]

    def times(self, inputs: Sequence[Labels]) -> list[int]:
        """When each step is taken."""
        labels = self.labels(inputs)
        # What a tensor is: made before, within or after the blocks; inputs with the label are cut.
        when = [INSIDE if self.blocked in own else BEFORE for own in inputs]
        found: list[int] = []
        for step in self.steps:
            operands = (step.first, step.second)
            at = max(when[k] for k in operands)
            if at == INSIDE and not any(self.blocked in labels[k] for k in operands):
                at = AFTER  # it reads what was added up
            found.append(at)
            when.append(at)
        return found

    def to_text(self) -> str:
        """A text that `nest_of` reads."""
        steps = [[step.first, step.second, list(step.labels)] for step in self.steps]
        return json.dumps([steps, self.blocked, self.budget])


def nest_of(text: str) -> BlockedNest | None:
    """The nest that a text describes; None if it is another text."""
    try:
        steps, blocked, budget = json.loads(text)
        made = tuple(PairStep(first, second, tuple(own)) for first, second, own in steps)
    except (ValueError, TypeError):
        return None
    return BlockedNest(made, blocked, budget)


def pairs_of(tree: Tree, inputs: int) -> list[tuple[int, int]]:
    """The pairs of tensors that a tree multiplies, in order."""
    found: list[tuple[int, int]] = []

    def number(tree: Tree) -> int:
        if isinstance(tree, int):
            return tree
        first, second = (number(part) for part in tree)
        found.append((first, second))
        return inputs + len(found) - 1

    number(tree)
    return found


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
