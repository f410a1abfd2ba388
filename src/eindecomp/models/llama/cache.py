"""The keys and values of what was read so far, in arrays that later tokens are written into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.models.llama.config import DTYPES
from eindecomp.models.sizes import check_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eindecomp.models.llama.config import Config

    Array = np.ndarray[Any, Any]

_LEAST = 64


def bucket(tokens: int) -> int:
    """The room that so many tokens are read in: few sizes, so that few plans are made.

    >>> [bucket(n) for n in (1, 64, 65, 1000, 1025)]
    [64, 64, 128, 1024, 1536]
    """
    if tokens <= 1024:
        return max(_LEAST, 1 << (int(tokens) - 1).bit_length())
    return -(-tokens // 512) * 512


class Cache:
    """Keys and values by layer, [sequence, head, position, …], and how long each sequence is."""

    def __init__(self, config: Config, batch: int, tokens: int) -> None:
        check_whole(batch=batch)
        check_whole(0, tokens=tokens)
        self.config = config
        self.lengths = np.zeros(batch, np.int32)
        self._room = 0
        self._arrays: dict[str, Array] = {}
        self.reserve(int(tokens))

    @property
    def batch(self) -> int:
        """How many sequences there are."""
        return len(self.lengths)

    @property
    def room(self) -> int:
        """How many tokens of a sequence fit without growing."""
        return self._room

    def reserve(self, tokens: int) -> None:
        """Make room for so many tokens; what is there is kept."""
        if tokens <= self._room:
            return
        room = bucket(max(tokens, 2 * self._room))
        config, half = self.config, self.config.head_size // 2
        for layer in range(config.layers):
            for name, inner in ((f"KC{layer}", (2, half)), (f"VC{layer}", (config.head_size,))):
                shape = (self.batch, config.kv_heads, room, *inner)
                # Of what counts for nothing the graph wants that it is finite.
                fresh = np.zeros(shape, DTYPES[config.dtype])
                if name in self._arrays:
                    fresh[:, :, : self._room] = self._arrays[name]
                self._arrays[name] = fresh
        self._room = room

    def views(self, tokens: int) -> dict[str, Array]:
        """The arrays as far as so many tokens, where they lie."""
        return {name: array[:, :, :tokens] for name, array in self._arrays.items()}

    def write(self, found: Mapping[str, Array], lengths: Array) -> None:
        """Add the keys and values of new tokens, the first so many of each sequence."""
        self.reserve(int((self.lengths + lengths).max()))
        for layer in range(self.config.layers):
            for name, fresh in ((f"KC{layer}", f"KR{layer}"), (f"VC{layer}", f"V{layer}")):
                for row, (start, count) in enumerate(zip(self.lengths, lengths, strict=True)):
                    self._arrays[name][row, :, start : start + count] = found[fresh][row, :, :count]
        self.lengths = (self.lengths + lengths).astype(np.int32)
