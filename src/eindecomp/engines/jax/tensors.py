"""Tensors whose data are arrays of JAX's: taking what is given, bringing it where it is wanted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax

from eindecomp.engines.jax.compiled import ForDevices, compiled_move
from eindecomp.engines.tensor import Tensor, placing_bytes
from eindecomp.errors import InputError
from eindecomp.graph.arrays import to_stored

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from eindecomp.engines.jax.layouts import ArrayLayout
    from eindecomp.graph.vertex import Vertex
    from eindecomp.layout.tiling import Tiling

    ByTiling = dict[Tiling, jax.Array]


@dataclass(slots=True)
class JaxArrays:
    """What a tensor's data are: an array for each of its layouts."""

    by_tiling: ByTiling
    is_shared: bool = False
    """Whether somebody else has the same arrays, so that they cannot be given up."""


def as_given(given: Any, vertex: Vertex) -> Any:
    """What was given for an input, checked; JAX's arrays of the right type stay what they are."""
    if not isinstance(given, jax.Array):
        return to_stored(given, vertex)
    if given.is_deleted():
        raise InputError(f"input {vertex} was given an array that JAX has deleted")
    if given.shape != vertex.shape:
        raise InputError(f"input {vertex} has shape {vertex.shape}, got {given.shape}")
    return given if given.dtype == vertex.dtype else to_stored(given, vertex)


class Placing:
    """Brings inputs where a program wants them, and makes tensors of its outputs."""

    def __init__(self, engine: str, made_for: ForDevices) -> None:
        self.engine, self.made_for = engine, made_for
        self.program = made_for.program
        self._layouts: dict[tuple[str, Tiling], ArrayLayout] = {}
        self._moves: dict[tuple[Tiling, Tiling, Any], Callable[[jax.Array], jax.Array]] = {}

    def place(self, name: str, given: Any) -> Tensor:
        """An input in all layouts that the program wants."""
        wanted = self.program.layouts_of(name)
        if isinstance(given, Tensor):
            here = self._here(given)
            if here is not None and all(tiling in here.by_tiling for tiling in wanted):
                here.is_shared = True
                return replace(given, name=name)
        shared = isinstance(given, jax.Array)
        found = {tiling: self._array(name, given, tiling) for tiling in wanted}
        return self._tensor(name, JaxArrays(found, is_shared=shared))

    def arrays(self, name: str, given: Any) -> tuple[list[jax.Array], int]:
        """An input as the program reads it, and how many bytes move to bring it there."""
        wanted = [buffer.tiling for buffer in self.program.inputs[name]]
        here = self._here(given) if isinstance(given, Tensor) else None
        if here is not None and all(tiling in here.by_tiling for tiling in wanted):
            return [here.by_tiling[tiling] for tiling in wanted], 0
        found = [self._array(name, given, tiling) for tiling in wanted]
        return found, placing_bytes(self.program, name, given)

    def _here(self, given: Tensor) -> JaxArrays | None:
        """The data of a tensor that lies on the devices of this mesh."""
        held = given.held()
        if given.mesh != self.program.mesh or not isinstance(held, JaxArrays):
            return None
        first = next(iter(held.by_tiling.values()))
        sharding: Any = first.sharding
        return held if sharding.mesh == self.made_for.devices else None

    def _array(self, name: str, given: Any, wanted: Tiling) -> jax.Array:
        layout = self.layout(name, wanted)
        if not isinstance(given, Tensor):
            return layout.put(given)
        here = self._here(given)
        if here is None:
            return layout.put(given.numpy())
        if wanted in here.by_tiling:
            return here.by_tiling[wanted]
        tiling, array = next(iter(here.by_tiling.items()))
        key = (tiling, wanted, (given.shape, given.dtype))
        if key not in self._moves:
            held = self.layout(name, tiling)
            self._moves[key] = compiled_move(self.program, self.made_for.devices, held, layout)
        with jax.enable_x64(True):
            return self._moves[key](array)

    def layout(self, name: str, tiling: Tiling) -> ArrayLayout:
        """How a tensor of the graph lies in a tiling."""
        if (name, tiling) not in self._layouts:
            self._layouts[name, tiling] = self.made_for.layout(name, tiling)
        return self._layouts[name, tiling]

    def tensors(self, made: Sequence[jax.Array], inputs: Mapping[str, Any]) -> dict[str, Tensor]:
        """The outputs: what was made, in the program's order, and inputs that are outputs."""
        buffers, outputs = self.program.buffers, self.program.outputs
        arrays = dict(zip(outputs, made, strict=True))
        found: dict[str, Tensor] = {}
        for vertex in self.program.graph.outputs:
            name = vertex.name
            if name in arrays:
                tiling = buffers[outputs[name]].tiling
                found[name] = self._tensor(name, JaxArrays({tiling: arrays[name]}))
            else:
                found[name] = self.place(name, inputs[name])
        return found

    def _tensor(self, name: str, data: JaxArrays) -> Tensor:
        vertex = self.program.graph[name]
        tilings = tuple(data.by_tiling)
        first = self.layout(name, tilings[0])
        return Tensor(
            name,
            vertex.shape,
            vertex.dtype,
            self.engine,
            self.program.mesh,
            tilings,
            data,
            partial(_gathered, first),
            partial(_as_one, first),
        )


def _gathered(layout: ArrayLayout, data: JaxArrays) -> np.ndarray[Any, Any]:
    """All of a tensor, from the first of its layouts, which has it all."""
    return layout.gather(data.by_tiling[layout.tiling])


def _as_one(layout: ArrayLayout, data: JaxArrays) -> jax.Array:
    """A tensor as one array of JAX's: its own, where it lies in equal blocks."""
    if layout.is_natural:
        return data.by_tiling[layout.tiling]
    with jax.enable_x64(True):
        return jax.device_put(_gathered(layout, data))
