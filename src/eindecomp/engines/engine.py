"""The protocol that engines meet, and finding one by name.

An engine prepares a plan once and runs it often. What all engines share (checking inputs, events,
closing) is in `Executable`; an engine adds where tensors lie and how steps are carried out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Protocol

from eindecomp.errors import InputError, needing_extras, suggest
from eindecomp.kernels.cores import cores

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eindecomp.engines.result import Listener, Result
    from eindecomp.engines.tensor import Tensor
    from eindecomp.planner.plan import Plan

    ReadOthers = Callable[[], tuple[dict[str, Any], dict[str, Any]]]
    """Reads and checks the other inputs and the run-time scalars that a run is given."""
    GoOn = Callable[[Mapping[str, Any], ReadOthers], Result | None]

GROUP = "eindecomp.engines"


class Prepared(Protocol):
    """A plan made ready on an engine's devices.

    It may also have `bind(inputs)`, which takes placed tensors by name and returns what runs on the
    other inputs alone; for others that is `executable.BoundProgram`. And `go_on(state, read)`,
    which runs again on tied inputs that are all given up and are what the last run made; where they
    are not, or nothing is gained by knowing it, it does nothing and returns None.
    """

    def place(self, name: str, given: Any) -> Tensor:
        """Put an input on the devices, in the layouts that the plan wants; it stays there.

        What is given is an array that fits the input, or a tensor of the same engine.
        """
        ...

    def run(
        self,
        inputs: Mapping[str, Any],
        scalars: Mapping[str, Any],
        donated: Collection[str],
        on_event: Listener | None,
    ) -> Result:
        """Compute the outputs.

        Each input is an array that fits it or a tensor of the same engine; the memory of `donated`
        tensors may be used for results. `on_event` is called with one event at a time, from any
        thread; what it raises cancels the run, and is raised from here as it is.
        """
        ...

    def close(self) -> None:
        """Let go of what is kept for the next run; tensors last as long as somebody has them."""
        ...


class Engine(Protocol):
    """Runs plans. Its options are the keyword arguments of whatever makes it.

    An engine with arrays of its own kind also has `stored(given, vertex)`, which checks what was
    given for an input and leaves it where it is; for others that is `graph.arrays.to_stored`. One
    that does not run on the cores of this machine has `device_count`, a number: the devices that
    it has, for as many of which plans are made where nobody says how many.
    """

    @property
    def name(self) -> str:
        """The name that it goes by; tensors of one engine can be given to its other executables."""
        ...

    def prepare(self, plan: Plan) -> Prepared:
        """Make a plan ready to run."""
        ...


def find_engine(name: str, options: Mapping[str, Any] | None = None) -> Engine:
    """The engine that some installed package offers under a name, with its options."""
    make = _kind_of(name)
    given = dict(options or {})
    known = [p.name for p in inspect.signature(make).parameters.values()] if given else []
    for option in given:
        if option not in known:
            offered = suggest(option, known) or "; it takes none"
            raise InputError(f"engine {name!r} has no option {option!r}{offered}")
    return make(**given)


def device_count(engine: Engine) -> int:
    """How many devices an engine has: as many as it says, otherwise one for each core."""
    return stated_device_count(engine) or cores()


def stated_device_count(engine: object) -> int | None:
    """How many devices an engine says it has; None if it runs on the cores of this machine."""
    return getattr(engine, "device_count", None)


def engine_names() -> list[str]:
    """The engines that installed packages offer, sorted."""
    return sorted(_installed())


@cache
def _kind_of(name: str) -> Callable[..., Engine]:
    known = _installed()
    if name not in known:
        raise InputError(f"there is no engine {name!r}{suggest(name, known)}")
    with needing_extras():
        return known[name].load()


@cache
def _installed() -> dict[str, EntryPoint]:
    # Looking through all packages takes milliseconds.
    return {entry.name: entry for entry in entry_points(group=GROUP)}
