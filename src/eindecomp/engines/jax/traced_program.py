"""A program as one function of a device's blocks, to be traced: step by step what `apart` does."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax

from eindecomp.engines.jax.hlo import SCOPE
from eindecomp.engines.jax.moves import (
    Here,
    add_up,
    combine_shares,
    lows_within,
    lying,
    move,
    padded,
)
from eindecomp.graph.ops import Fill, Gather, ScatterAdd
from eindecomp.graph.rewrites.fuse import compared
from eindecomp.kernels.jax.functions import filled
from eindecomp.kernels.jax.tile_kernels import kernel_of
from eindecomp.layout.boxes import shape_of
from eindecomp.layout.tiling import Tiling
from eindecomp.tra.program.steps import (
    AllGather,
    Compute,
    Free,
    Gathered,
    Generate,
    Load,
    Move,
    ReduceScatter,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eindecomp.kernels.jax.tile_kernels import TracedKernel
    from eindecomp.layout.boxes import Box
    from eindecomp.tra.program.program import Program
    from eindecomp.tra.program.steps import Read, Step

    States = tuple[jax.Array, ...]


@dataclass
class TracedProgram:
    """The arrays of one device, by buffer, while a program is traced."""

    program: Program
    precision: str
    scalars: Mapping[str, Any]
    arrays: dict[int, States] = field(default_factory=dict[int, "States"])
    indices: list[jax.Array] = field(default_factory=list[jax.Array])
    """For every vertex that looks up rows: the least index, the largest, and how many rows."""
    whole: set[int] = field(default_factory=set[int])
    """Buffers whose shares have been put together already."""

    def __post_init__(self) -> None:
        self.here = Here(self.program.mesh)

    def carry_out(self, step: Step) -> None:
        """One step."""
        graph, buffers = self.program.graph, self.program.buffers
        match step:
            case Load():
                pass  # it is there from the beginning
            case Generate():
                with _scope(buffers[step.into].tensor):
                    self._generate(step)
            case Free():
                del self.arrays[step.buffer]
            case Compute():
                with _scope(step.vertex):
                    self._compute(step)
            case Move():
                held, wanted = (buffers[k].tiling for k in (step.source, step.into))
                with _scope(step.vertex):
                    [x] = self.arrays[step.source]
                    self.arrays[step.into] = (move(self.here, step.pattern, held, wanted, x),)
            case ReduceScatter():
                kernel = kernel_of(graph, graph[step.vertex], self.precision)
                with _scope(step.vertex):
                    self._reduce(step, kernel)
            case AllGather():
                with _scope(step.vertex):
                    self._gather_shares(step)

    # What a device computes alone

    def _generate(self, step: Generate) -> None:
        buffer, graph = self.program.buffers[step.into], self.program.graph
        op = graph[buffer.tensor].op
        assert isinstance(op, Fill)  # noqa: S101
        own = lying(self.program.mesh, buffer.tiling)
        lows = {k: tuple(low for low, _ in box) for k, box in enumerate(own.boxes)}
        start = self.here.place(lows, len(own.shape))
        found = filled(op, start, own.shape, self.scalars, graph.scalars)
        self.arrays[step.into] = self._once(buffer.tensor, (found,))

    def _compute(self, step: Compute) -> None:
        graph = self.program.graph
        kernel = kernel_of(graph, graph[step.vertex], self.precision)
        own = lying(self.program.mesh, self.program.buffers[step.into].tiling)
        operands = [None if read is None else self._operand(read) for read in step.reads]
        call = _Call(kernel, operands, tuple(self.scalars.values()), own.shape, step.is_partial)
        found, index = self._by_shape(call, own.boxes)
        self.arrays[step.into] = self._once(step.vertex, found)
        if index is not None:
            self.indices.append(index)

    def _operand(self, read: Read) -> _Operand:
        buffer, mesh = self.program.buffers[read.buffer], self.program.mesh
        held, wanted = lying(mesh, buffer.tiling), lying(mesh, Tiling(read.cut))
        places = {k: lows_within(box, held.boxes[k]) for k, box in enumerate(wanted.boxes)}
        [x] = self.arrays[read.buffer]
        start = self.here.place(places, x.ndim)
        return _Operand(self.here, x, start, wanted.boxes)

    def _by_shape(self, call: _Call, boxes: Sequence[Box]) -> Any:
        """What a kernel computes, once for each combination of shapes that devices have."""
        keys = [
            (shape_of(box), *(None if x is None else x.shape_on(device) for x in call.operands))
            for device, box in enumerate(boxes)
        ]
        kinds = [*dict.fromkeys(keys)]
        if len(kinds) == 1:
            return call.on_tile(*kinds[0])
        chosen = self.here.pick([kinds.index(key) for key in keys])

        def branch(key: tuple[Any, ...]) -> Callable[[], Any]:
            return lambda: call.on_tile(*key)

        control: Any = lax
        return control.switch(chosen, [branch(key) for key in kinds])

    def _once(self, vertex: str, found: States) -> States:
        """What was computed for a vertex; of what is compared XLA may not compute a part anew."""
        return lax.optimization_barrier(found) if vertex in self._compared else found

    @cached_property
    def _compared(self) -> set[str]:
        return compared(self.program.graph)

    # What devices do together

    def _reduce(self, step: ReduceScatter, kernel: TracedKernel) -> None:
        buffers = self.program.buffers
        partial, home = (buffers[k].tiling for k in (step.source, step.into))
        states = self.arrays[step.source]
        if kernel.sums and len(states) == 1:
            # What is rounded when it is finished travels rounded to those who hold it, too.
            whole = buffers[step.source].types == buffers[step.into].types
            total = add_up(self.here, partial, home, step.axes, step.split, states[0], whole)
            if total is not None:
                if whole:
                    self.whole.add(step.into)
                self.arrays[step.into] = self._once(step.vertex, (kernel.finished((total,)),))
                return
        shares = Tiling(home.cut, step.split)
        total = combine_shares(self.here, partial, shares, step.axes, states, kernel.combined)
        self.arrays[step.into] = self._once(step.vertex, (kernel.finished(total),))

    def _gather_shares(self, step: AllGather) -> None:
        if step.buffer in self.whole:
            return
        home, sizes = self.program.buffers[step.buffer].tiling, self.program.mesh.sizes
        pattern = Gathered(tuple(k for k in range(len(sizes)) if step.axes >> k & 1), ())
        [x] = self.arrays[step.buffer]
        shares = Tiling(home.cut, step.axes)
        self.arrays[step.buffer] = (move(self.here, pattern, shares, home, x),)


@dataclass(frozen=True, slots=True)
class _Operand:
    """A block that a device reads, in an array that may be larger."""

    here: Here
    array: jax.Array
    start: Sequence[Any]
    boxes: Sequence[Box]

    def shape_on(self, device: int) -> tuple[int, ...]:
        """The shape of the block of a device."""
        return shape_of(self.boxes[device])

    def block(self, shape: tuple[int, ...]) -> jax.Array:
        """The block, of this shape."""
        if 0 in shape:  # which lies nowhere, and yet has sides
            return jnp.zeros(shape, self.array.dtype)
        return self.here.taken(self.array, self.start, shape)


@dataclass(frozen=True, slots=True)
class _Call:
    """A kernel and what it is called with, on tiles of any shapes."""

    kernel: TracedKernel
    operands: Sequence[_Operand | None]
    scalars: Sequence[object]
    room: tuple[int, ...]
    """The shape of the array in which the tile lies."""
    is_partial: bool

    def on_tile(self, shape: tuple[int, ...], *read: tuple[int, ...] | None) -> Any:
        """The tile, or its states, and which indices it has looked up, if any."""
        blocks = [
            None if x is None or own is None else x.block(own)
            for x, own in zip(self.operands, read, strict=True)
        ]
        compute = self.kernel.states if self.is_partial else self.kernel.result
        found = compute(blocks, self.scalars, shape)
        return tuple(padded(x, self.room) for x in found), self.kernel.index_range(blocks, shape)


def looks_up(program: Program) -> tuple[Compute, ...]:
    """The steps that look up rows, in the order of `TracedProgram.indices`."""
    steps = (step for step in program.steps if isinstance(step, Compute))
    kinds = Gather | ScatterAdd
    return tuple(step for step in steps if isinstance(program.graph[step.vertex].op, kinds))


def _scope(vertex: str) -> Any:
    return jax.named_scope(SCOPE + vertex)
