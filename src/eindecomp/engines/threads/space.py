"""How much memory a schedule needs, and the tiles that it loads."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from eindecomp.engines.threads.memory import is_in_memory
from eindecomp.tra.program.memory import Change, peak_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eindecomp.engines.threads.memory import Key
    from eindecomp.engines.threads.schedule import Schedule
    from eindecomp.tra.program.memory import Peak


def needed_space(schedule: Schedule) -> Peak:
    """The most bytes that calls hold at once beside the inputs, and the vertex where they do."""
    return peak_of(_changes(schedule))


def _changes(schedule: Schedule) -> Iterator[Change]:
    """What each call adds to what is held, and what may be dropped after it."""
    left = dict(schedule.uses)
    sizes = {key: prod(shape) * dtype.itemsize for key, (shape, dtype) in schedule.shapes.items()}
    held: set[Key] = set()
    made: dict[str, list[Key]] = {}
    for key in sizes:
        made.setdefault(key if isinstance(key, str) else key[0], []).append(key)
    for call in schedule.calls:
        fresh = [key for key in made.get(call.vertex, ()) if key not in held]
        held.update(fresh)
        dropped = 0
        for key in call.uses:
            if key in left:
                left[key] -= 1
                if left[key] == 0 and key in held:
                    dropped += sizes[key]
        yield Change(call.vertex, sum(sizes[key] for key in fresh), 0, dropped)


def largest_load(schedule: Schedule, arrays: Mapping[str, Any]) -> int:
    """The most bytes that one call reads of inputs that are not in memory."""
    stored = {name for name, array in arrays.items() if not is_in_memory(array)}
    if not stored:
        return 0
    loads = (sum(n for name, n in call.loads if name in stored) for call in schedule.calls)
    return max(loads, default=0)
