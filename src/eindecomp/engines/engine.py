"""The protocol that engines meet, finding one by name, and the processes among which it runs.

An engine prepares a plan once and runs it often. What all engines share (checking inputs, events,
closing) is in `Executable`; an engine adds where tensors lie and how steps are carried out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from eindecomp.errors import EinDecompError, InputError, needing_extras, suggest
from eindecomp.kernels.cores import cores
from eindecomp.lang.dtypes import Array
from eindecomp.layout.boxes import Box

if TYPE_CHECKING:
    from eindecomp.engines.result import ByName, Listener, Result
    from eindecomp.engines.tensor import Tensor
    from eindecomp.planner.plan import Plan

    ReadOthers = Callable[[], tuple[dict[str, Any], dict[str, Any]]]
    """Reads and checks the other inputs and the run-time scalars that a run is given."""
    GoOn = Callable[[Mapping[str, Any], ReadOthers], Result | None]


GROUP = "eindecomp.engines"
T = TypeVar("T")


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
        self, inputs: ByName, scalars: ByName, donated: Collection[str], on_event: Listener | None
    ) -> Result:
        """Compute the outputs.

        Each input is an array that fits it or a tensor of the same engine; the memory of `donated`
        tensors may be used for results. `on_event` is called with one event at a time, from any
        thread; what it raises cancels the run, and is raised from here as it is.
        """
        ...

    def close(self) -> None:
        """Let go of what is kept for the next run; tensors last as long as somebody has them."""


class Engine(Protocol):
    """Runs plans. Its options are the keyword arguments of whatever makes it.

    An engine with arrays of its own kind also has `stored(given, vertex)`, which checks what was
    given for an input and leaves it where it is; for others that is `graph.arrays.to_stored`. One
    that does not run on the cores of this machine has `device_count`, a number: the devices that
    it has, for as many of which plans are made where nobody says how many.
    """

    name: str
    """The name that it goes by; tensors of one engine can be given to its other executables."""

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


# The processes of a job, who do something together


class Ranks:
    """This process among those of its job; as it is here, the only one.

    An engine that has several offers them as `ranks`.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    def gather_bytes(self, own: bytes) -> list[bytes]:
        """What every rank has to say, by rank."""
        return [own]

    def share_bytes(self, own: bytes | None) -> bytes:
        """What rank 0 has to say."""
        return self.gather_bytes(own or b"")[0]

    def not_stuck(self) -> AbstractContextManager[None]:
        """While this rank uses files or waits for somebody to type, and so computes nothing."""
        return nullcontext()

    def own_block(self, tensor: Tensor) -> tuple[Box, Array] | None:
        """What this rank is to write of a tensor, so that all ranks together write all of it."""
        return tuple((0, size) for size in tensor.shape), tensor.numpy()


def ranks_of(engine: object) -> Ranks:
    """The processes among which an engine runs."""
    return getattr(engine, "ranks", None) or Ranks()


def common_token(ranks: Ranks) -> str:
    """A new name for what ranks write together."""
    return ranks.share_bytes(None if ranks.rank else token_hex(8).encode()).decode()


def agree(ranks: Ranks, do: Callable[[], T]) -> T:
    """Let every rank do its part, and wait for all; what keeps one from it is raised by all."""
    wrong: Exception | None = None
    done: T | None = None
    try:
        with ranks.not_stuck():
            done = do()
    except Exception as error:  # of a disk, of a library: whoever waits for this rank must know
        wrong = error
    told = "" if wrong is None else _in_words(wrong, ranks)
    first = next((each for each in ranks.gather_bytes(told.encode()) if each), None)
    if first is not None:
        raise InputError(first.decode()) from wrong
    return cast("T", done)


def _in_words(error: Exception, ranks: Ranks) -> str:
    at = f" (rank {ranks.rank})" if ranks.size > 1 else ""
    if isinstance(error, EinDecompError):
        return f"{error}{at}"
    if isinstance(error, OSError) and error.strerror:
        named = f"{error.filename}: " if error.filename else ""
        return f"{named}{error.strerror}{at}"
    return f"{type(error).__name__}: {error}{at}"


def at_first(ranks: Ranks, do: Callable[[], object]) -> None:
    """Let rank 0 do something while the others wait for it; what goes wrong is raised by all."""
    agree(ranks, do if ranks.rank == 0 else lambda: None)
