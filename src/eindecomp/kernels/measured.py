"""Measured choices: which of several ways is the fastest here, timed once and kept on disk.

Of several processes one measures and the others take its word: ranks of a job that found different
ways to be the fastest would round differently.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import perf_counter
from typing import Any, cast

from eindecomp.kernels.cache import load, only_process, store

_ROUNDS = 8
_ENOUGH = 0.12  # seconds of one way, after which three rounds will do
_FAR = 1.5  # times the best: a way that takes longer at first is not tried again
_CLEARLY = 0.98  # of another way's time, to be preferred to it


class Verdicts:
    """The verdicts on one subject, each a short text under the name of what was measured.

    They hold for one state of the world, `world`: another processor, another version of the
    compiler or of the source are measured anew.
    """

    def __init__(self, subject: str, world: Callable[[], object]) -> None:
        self._subject, self._world = subject, world
        self._lock = threading.RLock()
        self._known: dict[str, str] | None = None

    def find(
        self, name: str, measure: Callable[[], str], serves: Callable[[str], bool] = bool
    ) -> str:
        """The verdict under a name; `measure` gives it where there is none that `serves`."""
        with self._lock:
            self._known = known = self._known or self._read()
            if name not in known or not serves(known[name]):
                with only_process():
                    # Another may have measured meanwhile.
                    known |= self._read()
                    if name not in known or not serves(known[name]):
                        known[name] = measure()
                        store(self._key, json.dumps(known).encode())
            return known[name]

    @property
    def _key(self) -> str:
        return repr([self._subject, self._world()])

    def _read(self) -> dict[str, str]:
        with suppress(ValueError):
            read: Any = json.loads(load(self._key) or b"{}")
            if isinstance(read, dict):
                entries = cast("dict[object, object]", read)
                return {str(name): str(verdict) for name, verdict in entries.items()}
        return {}


def seconds_by_clock(way: Callable[[], object]) -> float:
    """The seconds that one run of a way takes."""
    start = perf_counter()
    way()
    return perf_counter() - start


def fastest_of(
    ways: Mapping[str, Callable[[], None]],
    seconds_of: Callable[[Callable[[], None]], float] = seconds_by_clock,
) -> str:
    """The name of the fastest of several ways, tried in turns; an earlier one wins a draw."""
    best: dict[str, float] = {}
    for name, way in ways.items():
        way()  # the first run allocates memory and loads code
        best[name] = seconds_of(way)
    left = [name for name in ways if best[name] <= _FAR * min(best.values())]
    start = perf_counter()
    for turn in range(_ROUNDS):
        if len(left) < 2 or (turn > 2 and perf_counter() - start > _ENOUGH * len(left)):
            break
        for name in left:
            best[name] = min(best[name], seconds_of(ways[name]))
    winner = left[0]
    for name in left[1:]:
        if best[name] < _CLEARLY * best[winner]:
            winner = name
    return winner
