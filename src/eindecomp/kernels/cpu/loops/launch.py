"""Running a program over arrays as generated loops: which loop goes where, and the call."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from threading import local
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.lib.stride_tricks import as_strided

from eindecomp.kernels.address import address
from eindecomp.kernels.cpu.compiling.compile import compile_source
from eindecomp.kernels.cpu.compiling.machine_code import check_refusals
from eindecomp.kernels.cpu.fork_join import HELPERS, CompiledJob
from eindecomp.kernels.cpu.loops.generate import source_of
from eindecomp.kernels.cpu.loops.nest import LANES, Access, Nest, Strides, lay_out, strides_of
from eindecomp.kernels.tile_sizes import sizes_of
from eindecomp.lang.scalar import Call, Const

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eindecomp.kernels.cpu.compiling.machine_code import CompiledFunction
    from eindecomp.kernels.cpu.fork_join import Job
    from eindecomp.kernels.point_program import PointProgram
    from eindecomp.lang.dtypes import DType
    from eindecomp.lang.einsum import Labels

    Array = np.ndarray[Any, Any]
    Ints = np.ndarray[Any, np.dtype[np.int64]]

SMALL = 2**17
"""Number of points below which a blocked nest is not worth compiling."""
LARGE = 2**27
"""Number of points from which a few percent justify compiling a tile of twice as many rows."""
KEPT = 256
"""How many array layouts a kernel remembers; a vertex usually has a handful."""
_INTEGERS = 1 << 13  # more than the sizes, strides and addresses of any nest


@dataclass(frozen=True, slots=True)
class Pack:
    """An input to copy first: which, and the shape and strides in which it is read."""

    which: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def packed(inputs: Sequence[Array], packs: Sequence[Pack]) -> list[Array]:
    """The inputs, with copies in place of those that are packed."""
    found = list(inputs)
    for pack in packs:
        seen = as_strided(found[pack.which], pack.shape, pack.strides, writeable=False)
        found[pack.which] = np.ascontiguousarray(seen)
    return found


class Launch(Protocol):
    """A way to compute arrays of one layout."""

    def launch(
        self, inputs: Sequence[Array], outputs: Sequence[Array], scalars: Sequence[Array], /
    ) -> None:
        """Compute the outputs."""
        ...


class _Arguments:
    """A buffer for the arguments of a call, since asking for an address is slow."""

    def __init__(self, count: int = _INTEGERS) -> None:
        self.integers = np.empty(count, np.int64)
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
    """Where the addresses of inputs, scalars, outputs and scratch go."""
    scratch: int
    packs: tuple[Pack, ...]
    scalars: int = 0
    """How many run-time scalars it takes: all there are, or none."""
    uses_blas: bool = False
    """Whether it calls a library that has threads and locks of its own."""
    calls: tuple[CompiledFunction, ...] = ()
    """Further functions whose addresses are among the integers: machine code goes with them."""

    def launch(
        self, inputs: Sequence[Array], outputs: Sequence[Array], scalars: Sequence[Array]
    ) -> None:
        """Compute the outputs of arrays of this layout."""
        if self.packs:
            inputs = packed(inputs, self.packs)
        own = _SPACE.first
        self.fill(own, inputs, outputs, scalars)
        self.function(own.address)
        check_refusals()

    def ready(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Callable[[], None] | None:
        """What computes these very outputs again; None if it takes more than their addresses."""
        if self.packs or self.scalars or self.scratch:
            return None
        own = _Arguments(len(self.integers))
        self.fill(own, inputs, outputs, ())
        return lambda: self.function(own.address)

    def fill(
        self,
        arguments: _Arguments,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        scalars: Sequence[Array],
    ) -> None:
        """Write down what to compute of inputs that are packed."""
        integers = arguments.integers
        integers[: len(self.integers)] = self.integers
        arrays = (*inputs, *scalars[: self.scalars], *outputs)
        for at, array in zip(self.addresses, arrays, strict=False):
            integers[at] = address(array)
        if self.scratch:
            integers[self.addresses[-1]] = arguments.scratch_for(self.scratch)


def launch_together(
    calls: Sequence[tuple[Launch, Sequence[Array], Sequence[Array]]], scalars: Sequence[Array]
) -> None:
    """Carry out calls that need nothing of each other, each given inputs and outputs."""
    jobs: list[Job] = []
    kept: list[Sequence[Array]] = []
    for own, (call, inputs, outputs) in zip(_SPACE.buffers(len(calls)), calls, strict=True):
        if isinstance(call, LoopsCall):
            if call.packs:
                inputs = packed(inputs, call.packs)
                kept.append(inputs)
            call.fill(own, inputs, outputs, scalars)
            jobs.append(CompiledJob(call.function, own.address))
        else:
            jobs.append(partial(call.launch, inputs, outputs, scalars))
    HELPERS.run(jobs)
    check_refusals()


class Loops:
    """A program over labelled arrays, for any sizes and strides."""

    def __init__(
        self,
        program: PointProgram,
        inputs: Sequence[Labels],
        output: Labels,
        scalars: Sequence[DType] = (),
        *,
        description: str = "",
        overlaps: bool = False,
    ) -> None:
        self.program = program
        self.inputs, self.output = tuple(inputs), output
        self.scalars = tuple(scalars)
        self.description = description
        self.overlaps = overlaps
        self._calls: dict[Any, LoopsCall | None] = {}

    def run(
        self,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        scalars: Sequence[Array] = (),
    ) -> None:
        """Compute the outputs; they overlap no input unless `overlaps` is set."""
        key = tuple([(x.shape, x.strides, x.dtype) for x in (*inputs, *outputs)])
        call = self._calls.get(key, ...)  # None where there is nothing to compute
        if call is ...:
            if len(self._calls) >= KEPT:
                self._calls.clear()
            call = self._calls[key] = self.prepare(inputs, outputs, {})
        if call is not None:
            call.launch(inputs, outputs, scalars)

    def prepare(
        self, inputs: Sequence[Array], outputs: Sequence[Array], more: dict[str, int]
    ) -> LoopsCall | None:
        """Choose the nest for a layout; None where there is nothing to compute.

        `more` has the sizes of labels that none of these arrays has.
        """
        labels = [*self.inputs, *([self.output] * len(outputs))]
        sizes = more | sizes_of(labels, [*inputs, *outputs])
        if any(sizes[label] == 0 for label in self.output):
            return None
        strides = [strides_of(own, x) for own, x in zip(self.inputs, inputs, strict=True)]
        results = [strides_of(self.output, x) for x in outputs]
        layout = lay_out(sizes, strides, results, self.output)
        vector, packed = choose_vector(layout, [x.itemsize for x in (*inputs, *outputs)])
        packs: list[Pack] = []
        if packed:
            for k in packed:
                pack, strides[k] = _packing(k, inputs[k].itemsize, sizes, strides[k], vector)
                packs.append(pack)
            layout = lay_out(sizes, strides, results, self.output)
            vector, _ = choose_vector(layout, [x.itemsize for x in (*inputs, *outputs)])
        nest, numbers = make_nest(
            self.program,
            layout,
            vector,
            [x.dtype for x in inputs],
            [x.dtype for x in outputs],
            self.scalars,
            self.overlaps,
        )
        function = compile_source(source_of(nest), self.description)
        return _call(function, nest, layout, numbers, tuple(packs))


def _packing(
    which: int, itemsize: int, sizes: dict[str, int], strides: dict[str, int], vector: str
) -> tuple[Pack, dict[str, int]]:
    """How an input is copied so that the vector loop walks neighbours, and its strides then."""
    rest = sorted((k for k in strides if k != vector), key=lambda k: -abs(strides[k]))
    names = [*rest, vector]
    own: dict[str, int] = {}
    step = itemsize
    for name in reversed(names):
        own[name] = step
        step *= sizes[name]
    pack = Pack(which, tuple(sizes[k] for k in names), tuple(strides[k] for k in names))
    return pack, own


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


def make_nest(
    program: PointProgram,
    layout: Strides,
    vector: str,
    input_types: Sequence[DType],
    output_types: Sequence[DType],
    scalars: tuple[DType, ...],
    overlaps: bool,
) -> tuple[Nest, dict[str, int]]:
    """The nest over a layout with a chosen vector loop, and the number of each loop in it."""
    results = [k for k in layout.results if k != vector]
    aggregated = [k for k in layout.aggregated if k != vector]
    in_result = vector not in layout.aggregated
    if not in_result:
        aggregated.append(vector)
    elif aggregated:
        # The longest loop goes innermost: it is the one that is unrolled.
        longest = max(aggregated, key=lambda k: layout.sizes[k])
        aggregated.remove(longest)
        aggregated.append(longest)
    row, rows, unroll = _blocking(program, layout, vector, results, aggregated, in_result)
    outer = [k for k in results if k != row]
    loops = [*outer, *([row] if row else []), *([vector] if in_result else []), *aggregated]
    numbers = {label: k for k, label in enumerate(loops)}

    def access(own: dict[str, int], of: DType) -> Access:
        unit = vector not in own or own[vector] == of.itemsize
        return Access(of, tuple(sorted(numbers[k] for k in own)), unit)

    nest = Nest(
        program,
        tuple(access(own, t) for own, t in zip(layout.inputs, input_types, strict=True)),
        scalars,
        tuple(access(own, t) for own, t in zip(layout.outputs, output_types, strict=True)),
        len(loops),
        tuple(numbers[k] for k in outer),
        numbers[vector],
        tuple(numbers[k] for k in aggregated),
        numbers[row] if row else None,
        rows,
        unroll,
        overlaps,
    )
    return nest, numbers


def _blocking(
    program: PointProgram,
    layout: Strides,
    vector: str,
    results: list[str],
    aggregated: list[str],
    in_result: bool,
) -> tuple[str | None, int, int]:
    """The loop whose rows share what they read, how many rows, and how far to unroll."""
    points = prod(layout.sizes.values())
    if not aggregated or points < SMALL:
        return None, 1, 1
    calls = program.calls
    # Complex arithmetic is several operations a term, and gains little from blocking.
    terms = len(calls) * (4 if any(t.kind == "c" for t in program.state) else 1)
    unroll = 4 if terms <= 12 else 2 if terms <= 24 else 1
    shared = [
        row
        for row in results
        if layout.sizes[row] >= 4 and any(row not in own and vector in own for own in layout.inputs)
    ]
    if not in_result or not shared or terms > 12:
        return None, 1, unroll
    row = max(shared, key=lambda k: layout.sizes[k])
    if points >= LARGE and layout.sizes[row] >= 128 and terms <= 3 and all(map(_is_light, calls)):
        return row, 8, unroll
    return row, 4 if terms <= 6 else 2, unroll


def _is_light(call: Call) -> bool:
    """Whether a call takes only one or two instructions."""
    match call:
        case Call("add" | "sub" | "mul" | "abs" | "min" | "max"):
            return True
        case Call("pow", (_, Const(2 | 2.0))):
            return True
        case _:
            return False


def _call(
    function: CompiledFunction,
    nest: Nest,
    layout: Strides,
    numbers: dict[str, int],
    packs: tuple[Pack, ...],
) -> LoopsCall:
    sizes = {number: layout.sizes.get(label, 1) for label, number in numbers.items()}
    integers = [sizes[k] for k in range(nest.count)]
    addresses: list[int] = []
    named = {number: label for label, number in numbers.items()}

    def add(loops: tuple[int, ...], own: dict[str, int]) -> None:
        addresses.append(len(integers))
        integers.append(0)
        integers.extend(own[named[k]] for k in loops)

    for access, own in zip(nest.inputs, layout.inputs, strict=True):
        add(access.loops, own)
    for _ in nest.scalars:
        add((), {})
    for access, own in zip(nest.outputs, layout.outputs, strict=True):
        add(access.loops, own)
    add((), {})
    filled = np.array(integers, np.int64)
    scratch, scalars = nest.scratch_bytes, len(nest.scalars)
    return LoopsCall(function, filled, addresses, scratch, packs, scalars)
