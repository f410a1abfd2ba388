"""`BoundProgram`: a prepared plan some of whose inputs were given once, for all runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eindecomp.engines.engine import Listener, Prepared
    from eindecomp.engines.result import Result
    from eindecomp.engines.tensor import Tensor


@dataclass(frozen=True, slots=True)
class BoundProgram:
    """Runs a prepared plan on what was bound and what is given, where an engine has no own way."""

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
        self,
        inputs: Mapping[str, Any],
        scalars: Mapping[str, Any],
        donated: Collection[str],
        on_event: Listener | None,
    ) -> Result:
        """Compute the outputs from the other inputs."""
        return self.prepared.run({**self.inputs, **inputs}, scalars, donated, on_event)

    def close(self) -> None:
        """Nothing is held beside what was bound: whoever prepared the plan closes that."""
