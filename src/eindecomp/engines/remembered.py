"""`Remembered`: which of many tensors are those that were given before, found in few steps.

A model has hundreds of inputs, and most of them are the same in every call.
"""

from __future__ import annotations

from itertools import compress
from operator import call, is_not
from typing import TYPE_CHECKING, Any
from weakref import ref

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_NOBODY = object()


class Remembered:
    """What was given last at each of some places; nothing is kept alive by that."""

    def __init__(self, count: int) -> None:
        self._refs: list[Callable[[], Any]] = [lambda: _NOBODY] * count

    def changed(self, given: Sequence[object]) -> Iterable[int]:
        """The places at which something else was given last.

        >>> class Weight: pass
        >>> known, one, other = Remembered(2), Weight(), Weight()
        >>> known.note(0, one)
        >>> [*known.changed([one, other])], [*known.changed([None, one])]
        ([1], [0, 1])
        """
        return compress(range(len(self._refs)), map(is_not, given, map(call, self._refs)))

    def note(self, place: int, given: Any) -> None:
        """Remember what was given at a place."""
        self._refs[place] = ref(given)

    def note_all(self, given: Mapping[int, Any]) -> None:
        """Remember what was given, or will be next, at each of some places."""
        for place, known in zip(given, map(ref, given.values()), strict=True):
            self._refs[place] = known
