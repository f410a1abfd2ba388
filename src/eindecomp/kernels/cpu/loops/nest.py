"""The shape of a loop nest: how arrays lie in memory, and which loops each of them varies with.

Loops go by number, and are merged where every array walks them as one. One of them is the vector
loop, the innermost, over which the machine's vectors run. If it is a label of the result, every
lane is an element of the result; if it is aggregated, lanes hold partial states that are combined
at the end. States are held in a small scratch block of `rows` × lanes, and `unroll` values of the
innermost aggregated loop are taken in each pass over it, so that states rest in registers for most
of the time.
"""

from __future__ import annotations

from dataclasses import dataclass

from eindecomp.kernels.point_program import PointProgram
from eindecomp.lang.dtypes import DType
from eindecomp.lang.einsum import Labels

ByLoop = dict[str, int]
"""A size, or a stride, of each loop."""
BLOCK = 4096
"""Bytes of one row of the scratch block where the vector loop is over the result: the cost of
entering that loop is spread over many elements, and eight such rows stay in the first cache."""
LANES = 32
"""Lanes where it is aggregated: enough vectors to hide the latency of the combination."""


@dataclass(frozen=True)
class NestAccess:
    """One array in a nest: its type, the loops it varies with, and its step along the vector."""

    type: DType
    loops: tuple[int, ...]
    unit: bool
    """Whether its elements along the vector loop are neighbours."""


@dataclass(frozen=True)
class Nest:
    """A loop nest, complete but for addresses, sizes and strides."""

    program: PointProgram
    inputs: tuple[NestAccess, ...]
    scalars: tuple[DType, ...]
    outputs: tuple[NestAccess, ...]
    count: int
    """How many loops there are."""
    outer: tuple[int, ...]
    """Loops of the result around everything else."""
    vector: int
    aggregated: tuple[int, ...] = ()
    """Aggregated loops from the outermost; the last is unrolled. May end with the vector loop."""
    row: int | None = None
    rows: int = 1
    unroll: int = 1
    overlaps: bool = False
    """Whether outputs may be inputs too, element for element."""

    @property
    def reduces_lanes(self) -> bool:
        """Whether the vector loop is aggregated."""
        return self.vector in self.aggregated

    @property
    def lanes(self) -> int:
        """Lanes of one row of the scratch block."""
        if self.reduces_lanes:
            return LANES
        return max(LANES, BLOCK // sum(t.itemsize for t in self.program.state))

    @property
    def scratch_bytes(self) -> int:
        """The size of the scratch block."""
        if not self.aggregated:
            return 0
        return self.rows * self.lanes * sum(t.itemsize for t in self.program.state)

    def slots(self) -> list[tuple[str, NestAccess, int]]:
        """The name, access and first place of every array among the function's integers."""
        arrays = [
            *((f"a{k}", access) for k, access in enumerate(self.inputs)),
            *((f"c{k}", NestAccess(of, (), unit=True)) for k, of in enumerate(self.scalars)),
            *((f"z{k}", access) for k, access in enumerate(self.outputs)),
        ]
        slots: list[tuple[str, NestAccess, int]] = []
        at = self.count
        for name, access in arrays:
            slots.append((name, access, at))
            at += 1 + len(access.loops)
        return slots


@dataclass(slots=True)
class Strides:
    """Sizes of loops, and the byte stride along each loop that an array has.

    `results` are the loops of the result, `aggregated` the others, outermost first.
    """

    sizes: ByLoop
    inputs: list[ByLoop]
    outputs: list[ByLoop]
    results: list[str]
    aggregated: list[str]

    @property
    def arrays(self) -> list[ByLoop]:
        """All arrays: inputs, then outputs."""
        return [*self.inputs, *self.outputs]


def lay_out(sizes: ByLoop, inputs: list[ByLoop], outputs: list[ByLoop], output: Labels) -> Strides:
    """Order and merge loops: those of the result as it lies in memory, the others as inputs do."""
    loops = {label: size for label, size in sizes.items() if size != 1}
    inputs = [{label: s for label, s in own.items() if label in loops} for own in inputs]
    outputs = [{label: s for label, s in own.items() if label in loops} for own in outputs]

    def reach(label: str) -> int:
        return max((abs(own[label]) for own in (*outputs, *inputs) if label in own), default=0)

    results = [label for label in output if label in loops]
    results.sort(key=lambda label: -abs(outputs[0][label]) if outputs else 0)
    aggregated = sorted((k for k in loops if k not in output), key=lambda k: -reach(k))
    layout = Strides(loops, inputs, outputs, results, aggregated)
    for group in (layout.results, layout.aggregated):
        while _merge(layout, group):
            pass
    return layout


def _merge(layout: Strides, group: list[str]) -> bool:
    """Merge two loops that every array walks as one; returns whether there were any."""
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
