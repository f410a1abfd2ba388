"""A model's weights on the devices of one engine, shared by the plans that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eindecomp.api.compile import compile as compile_plan
from eindecomp.api.compile import engine_of
from eindecomp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.engines.engine import Engine
    from eindecomp.engines.executable import Executable
    from eindecomp.engines.result import Result
    from eindecomp.engines.tensor import Tensor
    from eindecomp.planner.plan import Plan


class PlacedWeights:
    """Runs plans that read the same weights, which are placed once in each layout."""

    def __init__(
        self,
        weights: Mapping[str, Any],
        engine: str | Engine,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.engine = engine_of(engine, options)
        self._latest: Mapping[str, Any] = weights
        self._tensors: dict[tuple[object, ...], Tensor] = {}
        self._executables: dict[int, tuple[Executable, Executable]] = {}
        """By plan what runs it, and the same with its weights bound."""
        self._closed = False

    def run(self, plan: Plan, inputs: Mapping[str, object]) -> Result:
        """Run a plan on its other inputs."""
        return self._ready(plan)[1](inputs)

    def place(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Bring other inputs of a plan into its layouts, to be read again and again."""
        return self._ready(plan)[0].place(tensors)

    def _ready(self, plan: Plan) -> tuple[Executable, Executable]:
        if self._closed:
            raise InputError("this model was closed")
        if id(plan) not in self._executables:
            executable = compile_plan(plan, self.engine)
            weights = self._place(executable)
            self._executables[id(plan)] = executable, executable.bind(weights)
        return self._executables[id(plan)]

    def _place(self, executable: Executable) -> dict[str, Tensor]:
        """The weights in a plan's layouts, shared with the plans before where they agree."""
        inputs = {vertex.name for vertex in executable.plan.graph.inputs}
        if inputs.isdisjoint(self._latest):
            return {}  # it stores keys and values
        placed = executable.place(self._latest)
        for name, tensor in placed.items():
            known = self._tensors.setdefault((name, tensor.mesh, tensor.tilings), tensor)
            if known.data is not tensor.data:
                placed[name] = known
        self._latest = placed
        return placed

    def close(self) -> None:
        """Close the executables and free the weights."""
        self._closed = True
        for executable, bound in self._executables.values():
            bound.close()
            executable.close()
        for tensor in self._tensors.values():
            tensor.release()
        self._executables.clear()
        self._tensors.clear()
        self._latest = {}
