"""A program as one function that XLA compiles: a `jax.jit` of a `shard_map` over the mesh.

`TracedProgram` is what a device does, traced step by step as `apart` does it; `ForDevices` compiles
that for all devices; `CompiledProgram` runs it, and knows what it moves.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh as JaxMesh
from jax.sharding import NamedSharding, PartitionSpec

from eindecomp.engines.jax.hlo import SCOPE, CompiledCollective, bytes_by_vertex, count_collectives
from eindecomp.engines.jax.layouts import ArrayLayout
from eindecomp.engines.jax.moves import (
    Here,
    Lying,
    add_up,
    collectives,
    combine_shares,
    lows_within,
    lying,
    move,
    padded,
)
from eindecomp.graph.ops import Fill, Gather, ScatterAdd
from eindecomp.graph.rewrites.fuse import compared
from eindecomp.graph.shown import shown_to
from eindecomp.kernels.jax.functions import filled
from eindecomp.kernels.jax.tile_kernels import TracedKernel, kernel_of
from eindecomp.kernels.jax.windows import view
from eindecomp.kernels.point_program import scalar_type
from eindecomp.layout.boxes import shape_of
from eindecomp.layout.tiling import Tiling, box_on
from eindecomp.tra.program import steps
from eindecomp.tra.program.device_row import is_first
from eindecomp.tra.program.program import Program

States = tuple[jax.Array, ...]

OPTIONS: dict[str, Any] = {
    # A tensor that is rounded where it is stored must be the same where it is computed anew.
    "xla_allow_excess_precision": False,
}


@dataclass(frozen=True)
class ForDevices:
    """A program, and the mesh of JAX's devices that it is for."""

    program: Program
    devices: JaxMesh
    precision: str

    def layout(self, name: str, tiling: Tiling) -> ArrayLayout:
        """How a tensor of the graph lies in a tiling."""
        vertex = self.program.graph[name]
        return ArrayLayout(self.program.mesh, self.devices, tiling, vertex.shape, vertex.dtype)

    @cached_property
    def inputs(self) -> tuple[tuple[int, ArrayLayout], ...]:
        """The buffers that are given, and how they lie; the arguments after all scalars."""
        given = (buffer for own in self.program.inputs.values() for buffer in own)
        return tuple((each.number, self.layout(each.tensor, each.tiling)) for each in given)

    @cached_property
    def outputs(self) -> tuple[tuple[int, ArrayLayout], ...]:
        """The buffers that are results, and how they lie."""
        buffers, named = self.program.buffers, self.program.outputs.items()
        return tuple((number, self.layout(name, buffers[number].tiling)) for name, number in named)

    @cached_property
    def lookups(self) -> tuple[steps.Compute, ...]:
        """The steps that look up rows, in the order of `TracedProgram.indices`."""
        computed = [step for step in self.program.steps if isinstance(step, steps.Compute)]
        by = self.program.computed_by
        return tuple(step for step in computed if isinstance(by(step).op, Gather | ScatterAdd))

    def compile(self, donated: Sequence[int] = ()) -> CompiledProgram:
        """Compile it; the memory of the `donated` buffers may be used for results."""
        scalars = self.program.graph.scalars.values()
        everywhere = NamedSharding(self.devices, PartitionSpec())
        given = [jax.ShapeDtypeStruct((), scalar_type(of), sharding=everywhere) for of in scalars]
        given += [layout.traced for _, layout in self.inputs]
        out = [layout.spec for _, layout in self.outputs]
        out += [PartitionSpec(self.program.mesh.names or None)] * bool(self.lookups)
        specs = tuple(each.sharding.spec for each in given)
        places = [k for k, (number, _) in enumerate(self.inputs, len(scalars)) if number in donated]
        function = self._on_device
        if self.devices.size > 1:
            # What is replicated is so because the program says so; JAX need not find out.
            function = jax.shard_map(
                function, mesh=self.devices, in_specs=specs, out_specs=tuple(out), check_vma=False
            )
        with jax.enable_x64(True), warnings.catch_warnings():
            # Memory that was given up and fits no result is let go of.
            warnings.filterwarnings("ignore", "Some donated buffers were not usable")
            lowered = jax.jit(function, donate_argnums=places).lower(*given)
            return CompiledProgram(self, lowered.compile(compiler_options=OPTIONS))

    def _on_device(self, *args: Any) -> tuple[jax.Array, ...]:
        """What a device makes of its parts of all arguments."""
        names = [*self.program.graph.scalars]
        scalars = dict(zip(names, args, strict=False))
        traced = TracedProgram(self.program, self.precision, scalars)
        for (number, layout), part in zip(self.inputs, args[len(names) :], strict=True):
            traced.arrays[number] = (layout.block(part),)
        for step in self.program.steps:
            traced.carry_out(step)
        parts = [layout.part(traced.arrays[number][0]) for number, layout in self.outputs]
        if traced.indices:
            parts.append(jnp.stack(traced.indices)[None])
        return tuple(parts)


@dataclass(frozen=True)
class CompiledProgram:
    """What XLA has made of a program."""

    made_for: ForDevices
    call: jax.stages.Compiled

    def __call__(self, scalars: Sequence[Any], arrays: Sequence[jax.Array]) -> list[jax.Array]:
        """The arrays of all outputs, and where rows are looked up the ranges of indices."""
        with jax.enable_x64(True):
            types = map(scalar_type, self.made_for.program.graph.scalars.values())
            typed = map(np.asarray, scalars, types)
            outputs: list[jax.Array] = self.call(*typed, *arrays)
            jax.block_until_ready(outputs)
            return outputs

    @property
    def space(self) -> int:
        """The bytes that a run takes beside its inputs, on all devices of this process together."""
        own = self.call.memory_analysis()
        each = 0 if own is None else own.temp_size_in_bytes + own.output_size_in_bytes
        return each * len(self.made_for.devices.local_devices)

    @cached_property
    def collectives(self) -> list[CompiledCollective]:
        """The collectives that it carries out."""
        return count_collectives(self.call)

    @cached_property
    def bytes_by_vertex(self) -> dict[str, int]:
        """The bytes that devices receive for each vertex of the program."""
        planned = dict.fromkeys(self.made_for.program.bytes_by_vertex, 0)
        return planned | bytes_by_vertex(self.collectives)


# What a device does


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

    def carry_out(self, step: steps.Step) -> None:
        """One step."""
        buffers = self.program.buffers
        match step:
            case steps.Load():
                pass  # it is there from the beginning
            case steps.Generate():
                with _scope(buffers[step.into].tensor):
                    self._generate(step)
            case steps.Free():
                del self.arrays[step.buffer]
            case steps.Compute():
                with _scope(step.vertex):
                    self._compute(step)
            case steps.Move():
                with _scope(step.vertex):
                    self._move(step)
            case steps.ReduceScatter():
                with _scope(step.vertex):
                    self._reduce(step, self._kernel(step))
            case steps.AllGather():
                with _scope(step.vertex):
                    self._gather_shares(step)

    def _kernel(self, step: steps.Compute | steps.ReduceScatter) -> TracedKernel:
        return kernel_of(self.program.graph, self.program.computed_by(step), self.precision)

    # What a device computes alone

    def _generate(self, step: steps.Generate) -> None:
        buffer = self.program.buffers[step.into]
        made = self._filled(buffer.tensor, buffer.tiling)
        self.arrays[step.into] = self._once(buffer.tensor, (made,))

    def _filled(self, name: str, tiling: Tiling) -> jax.Array:
        graph, own = self.program.graph, lying(self.program.mesh, tiling)
        op = graph[name].op
        assert isinstance(op, Fill)  # noqa: S101
        lows = {k: tuple(low for low, _ in box) for k, box in enumerate(own.boxes)}
        start = self.here.place(lows, len(own.shape))
        return filled(op, start, own.shape, self.scalars, graph.scalars)

    def _compute(self, step: steps.Compute) -> None:
        """Compute a tile, once for each combination of shapes that devices have."""
        mesh, scalars = self.program.mesh, [*self.scalars.values()]
        kernel = self._kernel(step)
        compute = kernel.states if step.is_partial else kernel.result
        own = lying(mesh, self.program.buffers[step.into].tiling)
        read = [None if read is None else lying(mesh, Tiling(read.cut)) for read in step.reads]

        vertex = self.program.computed_by(step)
        window: Any = getattr(kernel, "window", view)

        def on_tile(shown: Any, shape: tuple[int, ...], *shapes: tuple[int, ...] | None) -> Any:
            blocks = [
                None if of is None or lies is None or size is None else self._block(of, lies, size)
                for of, lies, size in zip(step.reads, read, shapes, strict=True)
            ]
            pairs = zip(blocks, shown or [None] * len(blocks), strict=True)
            blocks = [x if x is None or at is None else window(x, at) for x, at in pairs]
            made = tuple(padded(x, own.shape) for x in compute(blocks, scalars, shape))
            return made, kernel.index_range(blocks, shape)

        every = [
            [None if lies is None else lies.boxes[k] for lies in read] for k in range(mesh.devices)
        ]
        keys = [
            (
                shown_to(vertex, boxes, box, box_on(mesh, step.numbers, k)),
                shape_of(box),
                *(None if b is None else shape_of(b) for b in boxes),
            )
            for k, (boxes, box) in enumerate(zip(every, own.boxes, strict=True))
        ]
        kinds = [*dict.fromkeys(keys)]
        if len(kinds) == 1:
            made, index = on_tile(*kinds[0])
        else:
            chosen = self.here.pick([kinds.index(key) for key in keys])
            made, index = collectives.switch(chosen, [partial(on_tile, *key) for key in kinds])
        self.arrays[step.into] = self._once(step.vertex, made)
        if index is not None:
            self.indices.append(index)

    def _block(self, read: steps.Read, wanted: Lying, shape: tuple[int, ...]) -> jax.Array:
        """The block of a shape that a device reads, of an array that may be larger."""
        [x] = self.arrays[read.buffer]
        if 0 in shape:  # which lies nowhere, and yet has sides
            return jnp.zeros(shape, x.dtype)
        held = lying(self.program.mesh, self.program.buffers[read.buffer].tiling)
        places = {k: lows_within(box, held.boxes[k]) for k, box in enumerate(wanted.boxes)}
        return self.here.taken(x, self.here.place(places, x.ndim), shape)

    def _once(self, vertex: str, states: States) -> States:
        """What was computed for a vertex; of what is compared XLA may not compute a part anew."""
        return lax.optimization_barrier(states) if vertex in self._compared else states

    @cached_property
    def _compared(self) -> set[str]:
        return compared(self.program.graph)

    # What devices do together

    def _move(self, step: steps.Move) -> None:
        mesh = self.program.mesh
        held, wanted = (self.program.buffers[k].tiling for k in (step.source, step.into))
        [x] = self.arrays[step.source]
        moved = move(self.here, step.pattern, held, wanted, x, step.first)
        if step.first:
            has = [int(is_first(mesh, step.first, device)) for device in range(mesh.devices)]
            moved = jnp.where(self.here.pick(has) == 1, moved, self._filled(step.identity, wanted))
        self.arrays[step.into] = (moved,)

    def _reduce(self, step: steps.ReduceScatter, kernel: TracedKernel) -> None:
        buffers = self.program.buffers
        parts, home = (buffers[k].tiling for k in (step.source, step.into))
        states = self.arrays[step.source]
        is_wide = buffers[step.source].types == kernel.state
        if kernel.sums and len(states) == 1 and is_wide:
            # What is rounded when it is finished travels rounded to those who hold it, too.
            whole = buffers[step.source].types == buffers[step.into].types
            total = add_up(self.here, parts, home, step.axes, step.split, states[0], whole)
            if total is not None:
                if whole:
                    self.whole.add(step.into)
                self.arrays[step.into] = self._once(step.vertex, (kernel.finished((total,)),))
                return
        shares = Tiling(home.cut, step.split)
        shape = lying(self.program.mesh, shares).shape
        wide = None if is_wide else partial(kernel.states, scalars=(), shape=shape)
        total = combine_shares(self.here, parts, shares, step.axes, states, kernel.combined, wide)
        self.arrays[step.into] = self._once(step.vertex, (kernel.finished(total),))

    def _gather_shares(self, step: steps.AllGather) -> None:
        if step.buffer in self.whole:
            return
        home, sizes = self.program.buffers[step.buffer].tiling, self.program.mesh.sizes
        pattern = steps.Gathered(tuple(k for k in range(len(sizes)) if step.axes >> k & 1), ())
        [x] = self.arrays[step.buffer]
        shares = Tiling(home.cut, step.axes)
        self.arrays[step.buffer] = (move(self.here, pattern, shares, home, x),)


def _scope(vertex: str) -> Any:
    return jax.named_scope(SCOPE + vertex)
