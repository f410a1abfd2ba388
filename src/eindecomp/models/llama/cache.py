"""The keys and values of the tokens read so far, in arrays that new tokens are written to."""

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
    """The cache size used for that many tokens: few sizes, so that few plans are made.

    >>> [bucket(n) for n in (1, 64, 65, 1000, 1025)]
    [64, 64, 128, 1024, 1536]
    """
    if tokens <= 1024:
        return max(_LEAST, 1 << (int(tokens) - 1).bit_length())
    return -(-tokens // 512) * 512


class Cache:
    """Keys and values by layer, [sequence, head, position, …], and the sequence lengths."""

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
        """The number of sequences."""
        return len(self.lengths)

    @property
    def room(self) -> int:
        """The number of tokens of a sequence that fit without growing."""
        return self._room

    def reserve(self, tokens: int) -> None:
        """Make room for that many tokens, keeping the contents."""
        if tokens <= self._room:
            return
        room = bucket(max(tokens, 2 * self._room))
        config, half = self.config, self.config.head_size // 2
        for layer in range(config.layers):
            for name, inner in ((f"KC{layer}", (2, half)), (f"VC{layer}", (config.head_size,))):
                shape = (self.batch, config.kv_heads, room, *inner)
                # The graph masks unused positions, which must be finite for that.
                fresh = np.zeros(shape, DTYPES[config.dtype])
                if name in self._arrays:
                    fresh[:, :, : self._room] = self._arrays[name]
                self._arrays[name] = fresh
        self._room = room

    def views(self, tokens: int) -> dict[str, Array]:
        """Views of the arrays up to that many tokens."""
        return {name: array[:, :, :tokens] for name, array in self._arrays.items()}

    def write(self, found: Mapping[str, Array], lengths: Array) -> None:
        """Add the keys and values of the first `lengths` new tokens of each sequence."""
        self.reserve(int((self.lengths + lengths).max()))
        for layer in range(self.config.layers):
            for name, fresh in ((f"KC{layer}", f"KR{layer}"), (f"VC{layer}", f"V{layer}")):
                for row, (start, count) in enumerate(zip(self.lengths, lengths, strict=True)):
                    self._arrays[name][row, :, start : start + count] = found[fresh][row, :, :count]
        self.lengths = (self.lengths + lengths).astype(np.int32)
