"""A way to compute a sum of products: which two tensors next, and along which label in blocks.

Temporaries that have the blocked label are made one block at a time, so that they stay in the
cache and are never whole. What has no such label is computed once before; a product that sums the
blocked label is added up block by block, and what needs that sum comes after.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.lang.einsum import Labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.kernels.trees import Tree

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
