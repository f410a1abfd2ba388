"""Running a program over arrays as generated loops: which loop goes where, and the call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from threading import local
from typing import Any, Protocol

import numpy as np
from numpy.lib.stride_tricks import as_strided

from eindecomp.graph.work import calls_of
from eindecomp.kernels.cpu.compiling.compile import CompiledFunction, check_refusals, compile_source
from eindecomp.kernels.cpu.fork_join import HELPERS, CompiledJob, Job
from eindecomp.kernels.cpu.loops.generate import source_of
from eindecomp.kernels.cpu.loops.nest import LANES, Nest, NestAccess, Strides, lay_out
from eindecomp.kernels.point_program import PointProgram
from eindecomp.kernels.tile_arrays import address, contiguous, sizes_of, strides_of
from eindecomp.lang.dtypes import Array, DType
from eindecomp.lang.einsum import Labels

Arrays = Sequence[Array]
Ints = np.ndarray[Any, np.dtype[np.int64]]

SMALL = 2**17
"""Number of points below which a blocked nest is not worth compiling."""
KEPT = 256
"""How many array layouts a kernel remembers; a vertex usually has a handful."""
_INTEGERS = 1 << 13  # more than the sizes, strides and addresses of any nest


@dataclass(frozen=True, slots=True)
class Pack:
    """An array that is computed through a copy of other layout or type: an input or the output."""

    which: int
    """Its number; the output comes after the inputs."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Those of the array itself; the copy is compact."""
    type: DType
    """That of the copy."""

    def seen(self, array: Array) -> Array:
        """The array with the dimensions of the copy."""
        return as_strided(array, self.shape, self.strides)


class _Packed:
    """Inputs and outputs with copies in place of those that are packed."""

    def __init__(self, inputs: Arrays, outputs: Arrays, packs: Sequence[Pack]) -> None:
        arrays = [*inputs, *outputs]
        self._results: list[tuple[Array, Array]] = []
        for pack in packs:
            seen = pack.seen(arrays[pack.which])
            if pack.which < len(inputs):
                arrays[pack.which] = np.ascontiguousarray(seen, pack.type)
            else:
                arrays[pack.which] = np.empty(pack.shape, pack.type)
                self._results.append((seen, arrays[pack.which]))
        self.inputs, self.outputs = arrays[: len(inputs)], arrays[len(inputs) :]

    def unpack(self) -> None:
        """Put the results where they belong."""
        for seen, copy in self._results:
            np.copyto(seen, copy, casting="unsafe")


class Launch(Protocol):
    """A way to compute arrays of one layout."""

    def launch(self, inputs: Arrays, outputs: Arrays, scalars: Arrays, /) -> None:
        """Compute the outputs."""


class _Arguments:
    """A buffer for the arguments of a call, since asking for an address is slow."""

    def __init__(self) -> None:
        self.integers = np.empty(_INTEGERS, np.int64)
        self.address: int = address(self.integers)
        self._scratch = np.empty(0, np.uint8)
        self._scratch_address = 0

    def scratch_for(self, size: int) -> int:
        """The address of a buffer of at least `size` bytes."""
        if size > self._scratch.size:
            self._scratch = np.empty(size, np.uint8)
            self._scratch_address = address(self._scratch)
        return self._scratch_address


class _Space(local):
    """Each thread's buffers: the first for calls one by one, all for those at once."""

    def __init__(self) -> None:
        self.first = _Arguments()
        self._all = [self.first]

    def buffers(self, count: int) -> list[_Arguments]:
        """So many buffers."""
        self._all += [_Arguments() for _ in range(count - len(self._all))]
        return self._all[:count]


_SPACE = _Space()


@dataclass(frozen=True, slots=True)
class LoopsCall:
    """A compiled nest for arrays of one layout: all but their addresses."""

    function: CompiledFunction
    integers: Ints
    addresses: list[int]
    """Where the addresses of inputs, scalars and outputs go; that of scratch is the last."""
    scratch: int
    packs: tuple[Pack, ...]
    scalars: int = 0
    """How many run-time scalars it takes: all there are, or none."""

    def launch(self, inputs: Arrays, outputs: Arrays, scalars: Arrays) -> None:
        """Compute the outputs of arrays of this layout."""
        own = _SPACE.first
        if self.packs:
            packed = _Packed(inputs, outputs, self.packs)
            self.fill(own, packed.inputs, packed.outputs, scalars)
            self.function(own.address)
            packed.unpack()
        else:
            self.fill(own, inputs, outputs, scalars)
            self.function(own.address)
        check_refusals()

    def fill(self, arguments: _Arguments, inputs: Arrays, outputs: Arrays, scalars: Arrays) -> None:
        """Write down the arguments of a call on arrays that are packed already."""
        integers = arguments.integers
        integers[: len(self.integers)] = self.integers
        arrays = (*inputs, *scalars[: self.scalars], *outputs)
        for at, array in zip(self.addresses, arrays, strict=True):
            integers[at] = address(array)
        if self.scratch:
            integers[len(self.integers) - 1] = arguments.scratch_for(self.scratch)


def launch_together(calls: Sequence[tuple[Launch, Arrays, Arrays]], scalars: Arrays) -> None:
    """Carry out independent calls, each with its inputs and outputs."""
    jobs: list[Job] = []
    copies: list[_Packed] = []
    for own, (call, inputs, outputs) in zip(_SPACE.buffers(len(calls)), calls, strict=True):
        if isinstance(call, LoopsCall):
            copies.append(_Packed(inputs, outputs, call.packs))
            call.fill(own, copies[-1].inputs, copies[-1].outputs, scalars)
            jobs.append(CompiledJob(call.function, own.address))
        else:
            jobs.append(partial(call.launch, inputs, outputs, scalars))
    HELPERS.run(jobs)
    for packed in copies:
        packed.unpack()
    check_refusals()


@dataclass(eq=False)
class Loops:
    """A program over labelled arrays, for any sizes and strides."""

    program: PointProgram
    inputs: Sequence[Labels]
    output: Labels
    scalars: tuple[DType, ...] = ()
    description: str = ""
    overlaps: bool = False
    _calls: dict[Any, LoopsCall | None] = field(default_factory=dict[Any, Any], init=False)

    def run(self, inputs: Arrays, outputs: Arrays, scalars: Arrays = ()) -> None:
        """Compute the outputs; they overlap no input unless `overlaps` is set."""
        key = tuple([(x.shape, x.strides, x.dtype) for x in (*inputs, *outputs)])
        call = self._calls.get(key, ...)  # None where there is nothing to compute
        if call is ...:
            if len(self._calls) >= KEPT:
                self._calls.clear()
            call = self._calls[key] = self.prepare(inputs, outputs, {})
        if call is not None:
            call.launch(inputs, outputs, scalars)

    def prepare(self, inputs: Arrays, outputs: Arrays, more: dict[str, int]) -> LoopsCall | None:
        """Choose the nest for a layout; None where there is nothing to compute.

        `more` has the sizes of labels that none of these arrays has.
        """
        labels = [*self.inputs, *([self.output] * len(outputs))]
        sizes = more | sizes_of(labels, [*inputs, *outputs])
        if any(sizes[label] == 0 for label in self.output):
            return None
        strides = [strides_of(own, x.strides) for own, x in zip(self.inputs, inputs, strict=True)]
        results = [strides_of(self.output, x.strides) for x in outputs]
        layout = lay_out(sizes, strides, results, self.output)
        vector, packed = choose_vector(layout, [x.itemsize for x in (*inputs, *outputs)])
        packs: list[Pack] = []
        if packed:
            for k in packed:
                # In the copy, the vector loop walks neighbours.
                own, array = strides[k], inputs[k]
                loops = sorted(own, key=lambda loop: (loop == vector, -abs(own[loop])))
                shape, steps = (tuple(by[loop] for loop in loops) for by in (sizes, own))
                packs.append(Pack(k, shape, steps, array.dtype))
                strides[k] = contiguous(loops, sizes, array.itemsize)
            layout = lay_out(sizes, strides, results, self.output)
            vector, _ = choose_vector(layout, [x.itemsize for x in (*inputs, *outputs)])
        nest, loops = self._nest(layout, vector, inputs, outputs)
        integers = [layout.sizes.get(loop, 1) for loop in loops]
        addresses: list[int] = []
        arrays = [*layout.inputs, *({} for _ in self.scalars), *layout.outputs]
        for (_, access, slot), own in zip(nest.slots(), arrays, strict=True):
            addresses.append(slot)
            integers += [0, *(own[loops[k]] for k in access.loops)]
        filled = np.array([*integers, 0], np.int64)
        function = compile_source(source_of(nest), self.description)
        scratch, scalars = nest.scratch_bytes, len(self.scalars)
        return LoopsCall(function, filled, addresses, scratch, tuple(packs), scalars)

    def _nest(
        self, layout: Strides, vector: str, inputs: Arrays, outputs: Arrays
    ) -> tuple[Nest, list[str]]:
        """The nest over a layout with a chosen vector loop, and its loops by number."""
        results = [k for k in layout.results if k != vector]
        aggregated = [k for k in layout.aggregated if k != vector]
        in_result = vector not in layout.aggregated
        if not in_result:
            aggregated.append(vector)
        elif aggregated:
            # The longest loop goes innermost: it is the one that is unrolled.
            longest = max(aggregated, key=lambda k: layout.sizes[k])
            aggregated.sort(key=lambda k: k == longest)
        row, rows, unroll = _blocking(self.program, layout, vector, results, aggregated)
        outer = [k for k in results if k != row]
        loops = [*outer, *([row] if row else []), *([vector] if in_result else []), *aggregated]
        numbers = {label: k for k, label in enumerate(loops)}

        def accesses(strides: list[dict[str, int]], arrays: Arrays) -> tuple[NestAccess, ...]:
            made: list[NestAccess] = []
            for own, array in zip(strides, arrays, strict=True):
                unit = vector not in own or own[vector] == array.itemsize
                made.append(NestAccess(array.dtype, tuple(sorted(numbers[k] for k in own)), unit))
            return tuple(made)

        nest = Nest(
            self.program,
            accesses(layout.inputs, inputs),
            self.scalars,
            accesses(layout.outputs, outputs),
            len(loops),
            tuple(numbers[k] for k in outer),
            numbers[vector],
            tuple(numbers[k] for k in aggregated),
            numbers[row] if row else None,
            rows,
            unroll,
            self.overlaps,
        )
        return nest, loops


def choose_vector(layout: Strides, itemsizes: Sequence[int]) -> tuple[str, list[int]]:
    """The loop for the machine's vectors, and the inputs worth copying for its sake."""
    loops = [*layout.results, *layout.aggregated]
    if not loops:
        return "", []
    costs = {loop: _cost(layout, loop, itemsizes) for loop in loops}
    best = min(loops, key=lambda loop: costs[loop][0])
    return best, costs[best][1]


def _cost(layout: Strides, vector: str, itemsizes: Sequence[int]) -> tuple[float, list[int]]:
    """About how many cycles a nest takes with a vector loop, and the inputs copied for it."""
    points = prod(layout.sizes.values())
    size = max(1, layout.sizes[vector])
    cost = 0.5 * points
    packed: list[int] = []
    for k, own in enumerate(layout.inputs):
        if vector not in own or own[vector] == itemsizes[k]:
            continue
        elements = prod(layout.sizes[label] for label in own)
        cost += min(2.0 * points, 6.0 * elements)
        if 6.0 * elements < 2.0 * points:
            packed.append(k)
    elements = prod(layout.sizes[label] for label in layout.results)
    if vector in layout.aggregated:
        cost += 4.0 * elements * min(LANES, size) + 10.0 * points / min(size, 4 * LANES)
    else:
        step = layout.outputs[0][vector] if layout.outputs else 0
        cost += elements * (0.5 if step == itemsizes[-1] else 2.0)
        cost += 10.0 * points / size
    return cost, packed


def _blocking(
    program: PointProgram, layout: Strides, vector: str, results: list[str], aggregated: list[str]
) -> tuple[str | None, int, int]:
    """The loop whose rows share what they read, how many rows, and how far to unroll."""
    points = prod(layout.sizes.values())
    if not aggregated or points < SMALL:
        return None, 1, 1
    # Complex arithmetic takes several operations per term, and gains little from blocking.
    terms = len(calls_of((*program.join, *(program.combine or ()))))
    terms *= 4 if any(t.kind == "c" for t in program.state) else 1
    unroll = 4 if terms <= 12 else 2 if terms <= 24 else 1
    long = [row for row in results if layout.sizes[row] >= 4]
    shared = [row for row in long if any(row not in own and vector in own for own in layout.inputs)]
    if vector in aggregated or not shared or terms > 12:
        return None, 1, unroll
    row = max(shared, key=lambda k: layout.sizes[k])
    return row, 4 if terms <= 6 else 2, unroll
