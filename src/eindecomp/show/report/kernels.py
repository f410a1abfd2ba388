"""What devices carried out in a run: a kernel may compute several vertices, which end with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.engines.events import TaskFinished

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eindecomp.engines.events import Event

_NAMED = 3  # vertices of a kernel that are named; of more, it is said how many


@dataclass(frozen=True, slots=True)
class Kernel:
    """What a device did from a start to an end, for one vertex or for several."""

    vertices: tuple[str, ...]
    kind: str
    device: int
    start: float
    end: float

    @property
    def name(self) -> str:
        """Its vertex, or those that it computes together.

        >>> Kernel(("Z",), "compute", 0, 0.0, 1.0).name
        'Z'
        >>> Kernel(("T", "P", "Z", "Y"), "compute", 0, 0.0, 1.0).name
        'one kernel with T, P, Z and 1 more'
        """
        if len(self.vertices) == 1:
            return self.vertices[0]
        more = len(self.vertices) - _NAMED
        named = ", ".join(self.vertices[:_NAMED])
        return f"one kernel with {named}{f' and {more} more' if more > 0 else ''}"

    @property
    def seconds_each(self) -> float:
        """Nobody measures a vertex within a kernel: its time is shared out equally."""
        return (self.end - self.start) / len(self.vertices)


def kernels_of(events: Iterable[Event]) -> list[Kernel]:
    """Tasks that a worker began and ended together on a device are one kernel.

    >>> tasks = [TaskFinished(name, "compute", 0, 0, 0.0, 1.0) for name in "TZ"]
    >>> [kernel.vertices for kernel in kernels_of(tasks)]
    [('T', 'Z')]
    """
    together: dict[tuple[int, int, float, float], list[TaskFinished]] = {}
    for event in events:
        if isinstance(event, TaskFinished):
            at = (event.device, event.worker, event.start, event.end)
            together.setdefault(at, []).append(event)
    return [
        Kernel(
            tuple(dict.fromkeys(task.vertex for task in tasks)),
            " + ".join(dict.fromkeys(task.kind for task in tasks)),
            device,
            start,
            end,
        )
        for (device, _, start, end), tasks in together.items()
    ]
