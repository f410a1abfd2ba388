"""The protocol that engines meet, and finding one by name."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Protocol

from eindecomp.errors import InputError, suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eindecomp.engines.events import Event
    from eindecomp.engines.result import Result
    from eindecomp.planner.plan import Plan

GROUP = "eindecomp.engines"


class Engine(Protocol):
    """Runs plans."""

    def run(
        self,
        plan: Plan,
        inputs: Mapping[str, object],
        *,
        on_event: Callable[[Event], None] | None = None,
    ) -> Result:
        """Compute the outputs of the plan's graph.

        `on_event` is called with one event at a time, from any thread. What it raises cancels the
        run, and is raised from here as it is.
        """
        ...


def find_engine(name: str) -> Engine:
    """The engine that some installed package offers under a name."""
    return _kind_of(name)()


@cache
def _kind_of(name: str) -> Callable[[], Engine]:
    known = _installed()
    if name not in known:
        raise InputError(
            f"there is no engine {name!r}{suggest(name, known)}; installed: {', '.join(known)}"
        )
    return known[name].load()


@cache
def _installed() -> dict[str, EntryPoint]:
    # Looking through all packages takes milliseconds.
    return {entry.name: entry for entry in entry_points(group=GROUP)}
