"""`Executable`: a plan made ready on an engine, to be run again and again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from eindecomp.engines.array_files import open_stored
from eindecomp.engines.engine import Engine, Prepared
from eindecomp.engines.result import ByName, Listener, Result
from eindecomp.engines.tensor import Tensor
from eindecomp.errors import InputError
from eindecomp.graph.arrays import check_known, check_names, to_scalars, to_stored
from eindecomp.graph.vertex import Vertex
from eindecomp.tra.paging.schedule import Schedule

if TYPE_CHECKING:
    from eindecomp.engines.engine import GoOn
    from eindecomp.planner.plan import Plan


class Executable:
    """Runs one plan on one engine; `ed.compile` makes it.

    Inputs are given as arrays, as the paths of files that hold them, or as tensors that are on the
    devices already: those that `place` returns, and those that `result.tensor` does.

    Args:
        plan: What is run, such as `ed.plan(graph, 2)`.
        engine: What runs it, such as `ThreadsEngine(workers=2)`.

    Examples:
        >>> import numpy as np, eindecomp as ed
        >>> graph = ed.parse("input X[i: 4]\\nZ[i] <- X[i] * 2\\noutput Z")
        >>> with ed.compile(ed.plan(graph, 2)) as executable:
        ...     first = executable({"X": np.ones(4, "float32")})
        ...     again = executable({"X": first.tensor("Z")})
        >>> again["Z"]
        array([4., 4., 4., 4.], dtype=float32)
    """

    def __init__(self, plan: Plan, engine: Engine) -> None:
        self.plan, self.engine = plan, engine
        self._stored: Callable[[Any, Vertex], Any] = getattr(engine, "stored", to_stored)
        self._take({vertex.name: vertex for vertex in plan.graph.inputs})
        self._prepared = engine.prepare(plan)
        self._whole: Executable | None = None
        """The executable that this one was bound from."""
        self._bound: frozenset[str] = frozenset()
        self._closed = False

    def _take(self, inputs: dict[str, Vertex]) -> None:
        """Be given these in every call."""
        tie = self.plan.tie
        self._inputs = inputs
        self._names = {**inputs, **self.plan.graph.scalars}
        self._tied_names = [name for name in inputs if name in tie]
        self._others = {name: vertex for name, vertex in inputs.items() if name not in tie}

    def __call__(
        self,
        inputs: Mapping[str, object],
        *,
        donate: Collection[str] = (),
        on_event: Listener | None = None,
    ) -> Result:
        """Compute the outputs.

        Args:
            inputs: Arrays, paths or tensors by name, and numbers for run-time scalars, such as
                `{"X": x}`.
            donate: Inputs whose tensors are given up, such as `["W"]`: their memory may be used for
                results, and they cannot be given again.
            on_event: Is called with one event at a time, such as `print`; what it raises cancels
                the run.

        Returns:
            The outputs, `result["Z"]`, and what the run took, `result.stats`.
        """
        self._check_open()
        if on_event is not None and not callable(on_event):
            raise InputError(f"on_event is a function that takes an event, not {on_event!r}")
        if donate and on_event is None and self._go_on is not None:
            result = self._gone_on(self._go_on, inputs, donate)
            if result is not None:
                return result
        if not self._bound.isdisjoint(inputs):
            self._refuse_bound(inputs)
        if donate:
            self._check_donated(inputs, donate)
        check_names(inputs, self._names)
        arrays = {name: self._read(inputs[name], own) for name, own in self._inputs.items()}
        scalars = to_scalars(inputs, self.plan.graph.scalars)
        # A tensor of another engine has been gathered: its memory is of no use here.
        own = [name for name in dict.fromkeys(donate) if type(arrays[name]) is Tensor]
        result = self._prepared.run(arrays, scalars, own, on_event)
        for name in donate:
            cast("Tensor", inputs[name]).release()
        return result

    def _gone_on(self, go_on: GoOn, inputs: ByName, donate: Collection[str]) -> Result | None:
        """The next run if all state is given up, and is what the last run made.

        Then none of it is looked at again, which takes longer than to begin a run.
        """
        names, types = self._tied_names, self.plan.graph.scalars
        state = dict(zip(names, map(inputs.get, names), strict=True))
        if state.keys() != {*donate} or len(inputs) != len(self._inputs) + len(types):
            return None
        if not all(map(inputs.__contains__, (*self._others, *types))):
            return None

        def read() -> tuple[dict[str, Any], dict[str, Any]]:
            arrays = {name: self._read(inputs[name], own) for name, own in self._others.items()}
            return arrays, to_scalars(inputs, types)

        return go_on(state, read)

    def _check_donated(self, inputs: Mapping[str, object], donate: Collection[str]) -> None:
        for name in donate:
            if name in self._bound:
                raise InputError(f"{name!r} cannot be donated: it is bound, and read in every call")
            if not isinstance(inputs.get(name), Tensor):
                raise InputError(f"{name!r} cannot be donated: it is not a tensor on the devices")

    def run_checked(self, arrays: Mapping[str, Any]) -> Result:
        """Compute the outputs from arrays that are known to fit the inputs.

        Args:
            arrays: All inputs, in their order, such as `{"X": x, "Y": y}`.
        """
        return self._prepared.run(arrays, {}, (), None)

    def place(self, arrays: Mapping[str, object]) -> dict[str, Tensor]:
        """Put inputs on the devices, in the layouts that the plan wants; they stay there.

        An engine that shares memory with the caller reads arrays where they are: leave them as they
        are for as long as their tensors are used.

        Args:
            arrays: Some inputs by name, such as `{"W": w}`. Tensors of another executable of the
                same engine are brought into these layouts; where they lie in them, nothing is
                copied.

        Returns:
            Tensors by name, to be given in place of arrays.
        """
        self._check_open()
        check_known(arrays, {*self._inputs, *self._bound})
        self._refuse_bound(arrays)
        return {
            name: self._prepared.place(name, self._read(given, self._inputs[name]))
            for name, given in arrays.items()
        }

    def bind(self, inputs: Mapping[str, object]) -> Executable:
        """An executable that takes only the other inputs: a call looks at what changes, no more.

        What is bound is placed, and lasts until the new executable is closed, even if its tensors
        are released or donated elsewhere. Closing this one closes that one.

        Args:
            inputs: Arrays, paths or tensors by name, such as the weights of a model, `{"W": w}`.

        Examples:
            >>> import numpy as np, eindecomp as ed
            >>> graph = ed.parse("input X[i: 2], W[i]\\nZ[i] <- X[i] * W[i]\\noutput Z")
            >>> with ed.compile(ed.plan(graph, 2)) as executable:
            ...     double = executable.bind({"W": np.full(2, 2, "float32")})
            ...     double({"X": np.ones(2, "float32")})["Z"]
            array([2., 2.], dtype=float32)
        """
        placed = self.place(inputs)
        bound = copy(self)
        bound._whole, bound._bound = self, self._bound | placed.keys()
        bound._take({n: vertex for n, vertex in self._inputs.items() if n not in placed})
        own: Callable[[Mapping[str, Tensor]], Prepared] | None
        own = getattr(self._prepared, "bind", None)
        every = {name: placed.get(name) for name in self._inputs}
        bound._prepared = BoundProgram(self._prepared, every) if own is None else own(placed)
        return bound

    def _refuse_bound(self, given: Mapping[str, object]) -> None:
        for name in given:
            if name in self._bound:
                raise InputError(f"input {name!r} is bound: it is not given again")

    @property
    def _go_on(self) -> GoOn | None:
        """The engine's own way to run again on what its last run made, if it has one."""
        return getattr(self._prepared, "go_on", None)

    @property
    def schedule(self) -> Schedule | None:
        """What came, went and was computed when in the last run, where memory is limited.

        None before the first run, and on engines that hold all tensors in their devices' memory.
        """
        return getattr(self._prepared, "schedule", None)

    def close(self) -> None:
        """Release what the engine holds for this plan, or the bound inputs; no run follows."""
        if self._closed:
            return
        self._closed = True
        if self._whole is None:
            self._prepared.close()
        else:
            self._prepared = self._whole._prepared  # which holds nothing of what was bound

    def _check_open(self) -> None:
        if self._closed:
            raise InputError("this executable was closed")
        if self._whole is not None:
            self._whole._check_open()

    def _read(self, given: Any, vertex: Vertex) -> Any:
        """What was given for an input: a tensor of this engine, or an array that fits."""
        if not isinstance(given, Tensor):
            if isinstance(given, str | Path):
                given = open_stored(given, vertex.name)
            return self._stored(given, vertex)
        given.held()
        if given.shape != vertex.shape or given.dtype != vertex.dtype:
            wanted = f"{vertex} is of shape {vertex.shape} and {vertex.dtype}"
            raise InputError(f"input {wanted}, got a tensor of {given.shape} and {given.dtype}")
        return given if given.engine == self.engine.name else to_stored(given.numpy(), vertex)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        bound = "" if self._whole is None else f", called with {', '.join(self._inputs)}"
        state = ", closed" if self._closed else ""
        return f"<Executable of {self.plan!r} on {self.engine.name!r}{bound}{state}>"


@dataclass(frozen=True, slots=True)
class BoundProgram:
    """Runs a prepared plan on bound and given inputs, for engines that cannot bind."""

    prepared: Prepared
    inputs: Mapping[str, Any]
    """All inputs of `prepared` in their order, None for those that each run is given."""

    @property
    def schedule(self) -> Any:
        """That of the last run, where memory is limited."""
        return getattr(self.prepared, "schedule", None)

    def place(self, name: str, given: Any) -> Tensor:
        """Put one of the other inputs on the devices."""
        return self.prepared.place(name, given)

    def run(
        self, inputs: ByName, scalars: ByName, donated: Collection[str], on_event: Listener | None
    ) -> Result:
        """Compute the outputs from the other inputs."""
        return self.prepared.run({**self.inputs, **inputs}, scalars, donated, on_event)

    def close(self) -> None:
        """Nothing is held beside what was bound: whoever prepared the plan closes that."""
