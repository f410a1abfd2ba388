"""Convolutions of NumPy's arrays: by torch where that is installed, else as products of blocks.

What a window shows of a tile overlaps itself, so that a matrix product takes a copy of it many
times as large as the tile. Of a block of the result it fits into the caches.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from math import prod
from typing import Any

import numpy as np

from eindecomp.kernels.convolutions import Convolution, Seen, multiply_adds
from eindecomp.kernels.cpu.einsum import EinSumKernel
from eindecomp.kernels.cpu.fork_join import HELPERS
from eindecomp.kernels.cpu.windows import view
from eindecomp.kernels.library import Operands, Scalars, Tile
from eindecomp.lang.dtypes import Array

_TYPES = {np.dtype("float32"), np.dtype("float64")}
WORTH = 2**20
"""Multiply-adds from which torch is asked."""
BLOCK = 2**20
"""Bytes of what a window shows of a tile that are copied at a time."""


class ConvolutionKernel:
    """A convolution, of tiles with what windows show of them."""

    window = Seen

    def __init__(self, own: Convolution, products: EinSumKernel) -> None:
        self._own, self._products, self.state = own, products, products.state

    def whole(self, operands: Any, out: Array, scalars: Scalars = ()) -> None:
        """Compute the finished result into `out`."""
        if not self._by_torch(operands, out):
            for views, (block,) in self._blocks(operands, [out]):
                self._products.whole(views, block, scalars)

    def wholes(self, tiles: Sequence[Tile], scalars: Scalars = ()) -> None:
        """Compute several tiles at once."""
        HELPERS.run([partial(self.whole, operands, out, scalars) for operands, out in tiles])

    def partial(self, operands: Any, state: Sequence[Array], scalars: Scalars = ()) -> None:
        """Compute the unfinished states of this tile into the given arrays."""
        if not self._by_torch(operands, state[0]):
            for views, block in self._blocks(operands, state):
                self._products.partial(views, block, scalars)

    def combine(self, into: Sequence[Array], other: Sequence[Array]) -> None:
        """Combine two tiles' states, element by element, into the first."""
        self._products.combine(into, other)

    def finish(self, state: Sequence[Array], out: Array) -> None:
        """Turn states into the result."""
        self._products.finish(state, out)

    def _by_torch(self, operands: Sequence[Any], out: Array) -> bool:
        """Have torch compute the result, unless there is none or it has no function for that."""
        own = self._own
        seen, other = operands[own.seen], operands[1 - own.seen]
        if {seen.tile.dtype, other.dtype, out.dtype} - _TYPES or seen.tile.dtype != other.dtype:
            return False
        sizes = own.sizes(seen.shown, other.shape)
        is_filter = prod(sizes[label] for label in (*own.groups, *own.made, *own.summed)) == 1
        if is_filter or multiply_adds(own, sizes) < WORTH or not has_torch():
            return False
        library = import_module("eindecomp.kernels.torch.library").TorchLibrary()
        with _one_thread():
            tile, weights = library.from_numpy(seen.tile), library.from_numpy(other)
            convolved = import_module("eindecomp.kernels.torch.windows").convolved
            made = convolved(own, Seen(tile, seen.shown), weights)
            if made is not None:
                library.from_numpy(out).copy_(made)
        return made is not None

    def _blocks(
        self, operands: Operands, outs: Sequence[Array]
    ) -> Generator[tuple[list[Any], list[Array]]]:
        """Views of the operands and results, in blocks along a label of what the window shows."""
        op, k = self._own.op, self._own.seen
        seen: Any = operands[k]
        whole = view(seen.tile, seen.shown)
        sizes = dict(zip(op.inputs[k], whole.shape, strict=True))
        kept = [label for label in op.output if label in sizes and label not in self._own.groups]
        label = max(kept, key=lambda label: sizes[label], default=None)
        if label is None or whole.nbytes <= BLOCK:
            yield [whole if n == k else x for n, x in enumerate(operands)], [*outs]
            return
        size = sizes[label]
        block = max(1, min(size, BLOCK * size // whole.nbytes))
        for low in range(0, size, block):
            part = slice(low, low + block)
            views: list[Any] = [*operands]
            views[k] = whole[(*[slice(None)] * op.inputs[k].index(label), part)]
            where = (*[slice(None)] * op.output.index(label), part)
            yield views, [out[where] for out in outs]


@cache
def has_torch() -> bool:
    """Whether torch is installed."""
    return find_spec("torch") is not None


@contextmanager
def _one_thread() -> Generator[None]:
    """Have torch use no other threads for what this thread calls: each core has a tile."""
    torch: Any = import_module("torch")
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
