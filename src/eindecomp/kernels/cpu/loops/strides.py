"""How the arrays of one call lie in memory, loop by loop, with loops merged where they can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from eindecomp.lang.einsum import Labels

    Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Strides:
    """Sizes of loops, and the byte stride along each loop that an array has.

    `results` are the loops of the result, `aggregated` the others, outermost first.
    """

    sizes: dict[str, int]
    inputs: list[dict[str, int]]
    outputs: list[dict[str, int]]
    results: list[str]
    aggregated: list[str]

    @property
    def arrays(self) -> list[dict[str, int]]:
        """All arrays: inputs, then outputs."""
        return [*self.inputs, *self.outputs]


def strides_of(labels: Labels, array: Array) -> dict[str, int]:
    """The byte stride of each label; one that stands twice walks the diagonal."""
    found: dict[str, int] = {}
    for label, stride in zip(labels, array.strides, strict=True):
        found[label] = found.get(label, 0) + stride
    return found


def lay_out(
    sizes: dict[str, int],
    inputs: list[dict[str, int]],
    outputs: list[dict[str, int]],
    output: Labels,
) -> Strides:
    """Order and merge loops: those of the result as it lies in memory, the others as inputs do."""
    loops = {label for label, size in sizes.items() if size != 1}
    inputs, outputs = (
        [{label: s for label, s in own.items() if label in loops} for own in part]
        for part in (inputs, outputs)
    )
    reach = {
        label: max([abs(own[label]) for own in [*outputs, *inputs] if label in own], default=0)
        for label in sizes
    }
    results = [label for label in output if label in loops]
    results.sort(key=lambda label: -abs(outputs[0][label]) if outputs else 0)
    aggregated = sorted(
        (k for k in sizes if k in loops and k not in output), key=lambda k: -reach[k]
    )
    layout = Strides(
        {k: sizes[k] for k in sizes if k in loops}, inputs, outputs, results, aggregated
    )
    for group in (layout.results, layout.aggregated):
        while _merge(layout, group):
            pass
    return layout


def _merge(layout: Strides, group: list[str]) -> bool:
    """Merge two loops that every array walks as one; whether there were such."""
    for outer in group:
        for inner in group:
            if outer != inner and all(
                own[outer] == own[inner] * layout.sizes[inner]
                if outer in own and inner in own
                else outer not in own and inner not in own
                for own in layout.arrays
            ):
                layout.sizes[inner] *= layout.sizes.pop(outer)
                group.remove(outer)
                for own in layout.arrays:
                    own.pop(outer, None)
                return True
    return False
