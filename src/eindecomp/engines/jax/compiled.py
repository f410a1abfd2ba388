"""A program compiled by XLA: one `jax.jit` of a `shard_map` over the mesh, and what it moves."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from eindecomp.engines.jax.hlo import Collectives, count_collectives
from eindecomp.engines.jax.layouts import ArrayLayout
from eindecomp.engines.jax.moves import Here, move
from eindecomp.engines.jax.traced_program import TracedProgram, looks_up
from eindecomp.kernels.point_program import scalar_type
from eindecomp.tra.program.steps import pattern_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jax.sharding import Mesh as JaxMesh

    from eindecomp.layout.tiling import Tiling
    from eindecomp.tra.program.program import Program
    from eindecomp.tra.program.steps import Compute

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
        buffers = self.program.buffers
        return tuple(
            (number, self.layout(name, buffers[number].tiling))
            for name, number in self.program.outputs.items()
        )

    @cached_property
    def lookups(self) -> tuple[Compute, ...]:
        """The steps that look up rows, whose indices the compiled program reports."""
        return looks_up(self.program)

    def compile(self, donated: Sequence[int] = ()) -> CompiledProgram:
        """Compile it; the memory of the `donated` buffers may be used for results."""
        scalars = self.program.graph.scalars
        everywhere = NamedSharding(self.devices, PartitionSpec())
        given = [
            jax.ShapeDtypeStruct((), scalar_type(of), sharding=everywhere)
            for of in scalars.values()
        ]
        given += [layout.traced for _, layout in self.inputs]
        out = [layout.spec for _, layout in self.outputs]
        out += [PartitionSpec(self.program.mesh.names or None)] * bool(self.lookups)
        specs = tuple(each.sharding.spec for each in given)
        places = [
            len(scalars) + k for k, (number, _) in enumerate(self.inputs) if number in donated
        ]
        return CompiledProgram(
            self, _compiled(self.devices, self._on_device, given, specs, tuple(out), places)
        )

    def _on_device(self, *args: Any) -> tuple[jax.Array, ...]:
        """What a device makes of its parts of all arguments."""
        names = [*self.program.graph.scalars]
        traced = TracedProgram(
            self.program, self.precision, dict(zip(names, args[: len(names)], strict=True))
        )
        for (number, layout), part in zip(self.inputs, args[len(names) :], strict=True):
            traced.arrays[number] = (layout.block(part),)
        for step in self.program.steps:
            traced.carry_out(step)
        found = [layout.part(traced.arrays[number][0]) for number, layout in self.outputs]
        if traced.indices:
            found.append(jnp.stack(traced.indices)[None])
        return tuple(found)


@dataclass(frozen=True)
class CompiledProgram:
    """What XLA has made of a program."""

    made_for: ForDevices
    call: jax.stages.Compiled

    def __call__(self, scalars: Sequence[Any], arrays: Sequence[jax.Array]) -> list[jax.Array]:
        """The arrays of all outputs, and where rows are looked up the ranges of indices."""
        with jax.enable_x64(True):
            typed = [
                np.asarray(given, scalar_type(of))
                for given, of in zip(
                    scalars, self.made_for.program.graph.scalars.values(), strict=True
                )
            ]
            found: list[jax.Array] = self.call(*typed, *arrays)
            jax.block_until_ready(found)
            return found

    @property
    def space(self) -> int:
        """The bytes that a run takes beside its inputs, on all devices of this process together."""
        own = self.call.memory_analysis()
        each = 0 if own is None else own.temp_size_in_bytes + own.output_size_in_bytes
        return each * len(self.made_for.devices.local_devices)

    @cached_property
    def collectives(self) -> Collectives:
        """The collectives that it carries out."""
        return count_collectives(self.call)

    @cached_property
    def bytes_by_vertex(self) -> dict[str, int]:
        """The bytes that devices receive for each vertex of the program."""
        found = self.collectives.by_vertex
        program = self.made_for.program
        unknown = {name: n for name, n in found.items() if name not in program.bytes_by_vertex}
        own = {name: found.get(name, 0) for name in program.bytes_by_vertex}
        return own | {str(name): n for name, n in unknown.items()}


def compiled_move(
    program: Program, devices: JaxMesh, held: ArrayLayout, wanted: ArrayLayout
) -> Callable[[jax.Array], jax.Array]:
    """What brings a tensor from one layout into another."""
    mesh = program.mesh
    pattern = pattern_of(mesh, held.tiling, wanted.tiling)

    def on_device(part: jax.Array) -> jax.Array:
        block = held.block(part)
        return wanted.part(move(Here(mesh), pattern, held.tiling, wanted.tiling, block))

    return _compiled(devices, on_device, [held.traced], (held.spec,), wanted.spec)


def _compiled(
    devices: JaxMesh,
    on_device: Callable[..., Any],
    given: Sequence[jax.ShapeDtypeStruct],
    specs: Any,
    out: Any,
    donated: Sequence[int] = (),
) -> jax.stages.Compiled:
    """A function of a device's parts, on all devices of a mesh."""
    function = on_device
    if devices.size > 1:
        # What is replicated is so because the program says so; JAX need not find out.
        function = jax.shard_map(
            on_device, mesh=devices, in_specs=specs, out_specs=out, check_vma=False
        )
    with jax.enable_x64(True), warnings.catch_warnings():
        # Memory that was given up and fits no result is let go of.
        warnings.filterwarnings("ignore", "Some donated buffers were not usable")
        lowered = jax.jit(function, donate_argnums=tuple(donated)).lower(*given)
        return lowered.compile(compiler_options=OPTIONS)
