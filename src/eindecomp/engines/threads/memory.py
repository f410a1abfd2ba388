"""The arrays of one run: made at the first write, dropped after the last use.

All threads share memory, so that a tensor is one array whatever its layouts are: a tile is a view
of it, written in place, and fetching a piece copies nothing. Partial results have arrays of their
own.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from mmap import mmap
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from eindecomp.engines.threads.rows import read_rows
from eindecomp.errors import EinDecompError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from eindecomp.engines.spare import Spare
    from eindecomp.lang.dtypes import DType

    Array = np.ndarray[Any, Any]

Key = str | tuple[str, int, int]
"""A tensor; or the partial result that a kernel call leaves, and which number of its state."""
Where = tuple[slice, ...] | None
"""A tile of an array; None for all of it."""


def is_in_memory(array: Any) -> bool:
    """Whether an array's elements are in memory, not mapped from a file nor stored elsewhere."""
    owner = array
    while getattr(owner, "base", None) is not None:
        owner = owner.base
    return isinstance(array, np.ndarray) and not isinstance(owner, mmap)


@contextmanager
def _reading(key: Key) -> Generator[None]:
    """Name the input that cannot be read, as its file was closed or its disk is gone."""
    try:
        yield
    except EinDecompError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"{reason}, when input {key!r} was read") from error


class Arrays(Protocol):
    """What calls see of a run's memory."""

    @property
    def scalars(self) -> Sequence[object]:
        """The values of run-time scalars."""
        ...

    def read(self, key: Key, where: Where) -> Array:
        """A tile."""
        ...

    def read_rows(self, key: Key, where: Where, axis: int, index: Array) -> tuple[Array, Array]:
        """A tile to look rows up in, and the index to do so."""
        ...

    def write(self, key: Key, where: Where) -> Array:
        """The place of a tile."""
        ...


class Memory:
    """Arrays by key, and how much of them there is.

    `loads` are the bytes of tiles that are read at once from inputs that are not in memory.
    """

    def __init__(
        self,
        given: Mapping[str, Any],
        scalars: Sequence[object],
        shapes: Mapping[Key, tuple[tuple[int, ...], DType]],
        uses: Mapping[Key, int],
        loads: int = 0,
        on_free: Callable[[str, int], None] | None = None,
        spare: Spare | None = None,
    ) -> None:
        self.scalars = scalars
        self._spare = spare
        self._shapes = shapes
        self._arrays: dict[Key, Any] = {**given}
        self._given = frozenset(given)
        self._stored = {name for name, array in given.items() if not isinstance(array, np.ndarray)}
        self._uses = uses
        # The next number of a counter is taken without a lock.
        self._seen = {key: count(1) for key in uses}
        self._on_free = on_free
        self._lock = Lock()
        self._held = loads + sum(array.nbytes for array in given.values() if is_in_memory(array))
        self.peak = self._held

    def read(self, key: Key, where: Where) -> Array:
        """A tile: a view where the array is NumPy's, else what its storage reads."""
        array = self._arrays[key]
        if key in self._stored:
            with _reading(key):
                return np.asarray(array[... if where is None else where])
        return array if where is None else array[where]

    def read_rows(self, key: Key, where: Where, axis: int, index: Array) -> tuple[Array, Array]:
        """A tile to look rows up in, and the index to do so; of what is stored only those rows."""
        if key not in self._stored:
            return self.read(key, where), index
        array = self._arrays[key]
        with _reading(key):
            return read_rows(array, where or tuple(slice(0, n) for n in array.shape), axis, index)

    def write(self, key: Key, where: Where) -> Array:
        """The place of a tile."""
        array = self._arrays.get(key)
        if array is None:
            array = self._make(key)
        return array if where is None else array[where]

    def _make(self, key: Key) -> Array:
        with self._lock:
            if key not in self._arrays:
                shape, dtype = self._shapes[key]
                spare = self._spare
                array = np.empty(shape, dtype) if spare is None else spare.make(shape, dtype)
                self._held += array.nbytes
                self.peak = max(self.peak, self._held)
                self._arrays[key] = array
            return self._arrays[key]

    def done(self, key: Key) -> None:
        """Note a use; the last one drops the array, unless it is an output."""
        if key not in self._uses or next(self._seen[key]) < self._uses[key]:
            return
        array = self._arrays.pop(key)
        if key in self._given:
            return
        with self._lock:
            self._held -= array.nbytes
        if self._spare is not None:
            self._spare.give(array)
        if self._on_free is not None:
            self._on_free(key if isinstance(key, str) else key[0], array.nbytes)

    def clear(self) -> None:
        """Drop everything."""
        self._arrays.clear()

    def outputs(self, keys: Mapping[str, str]) -> dict[str, Array]:
        """The arrays of tensors by name; one that was given is copied."""
        return {
            name: np.array(self.read(key, None)) if key in self._given else self._arrays[key]
            for name, key in keys.items()
        }
