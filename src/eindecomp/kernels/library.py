"""The protocol of kernel libraries: whatever computes tiles of vertices on one kind of array.

An engine asks a library for the kernel of a vertex and calls that for every tile; it need not tell
the kinds of vertex apart. A tile is computed *whole*; or, where devices share an aggregation, each
computes a *partial* state, states are *combined*, and the last one is *finished* into the result.

A library goes by the name of the package whose arrays it computes: "numpy" is in `kernels.cpu`. A
package adds one as an entry point of the group `eindecomp.kernels`, a callable that makes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol

import numpy as np

from eindecomp.errors import InputError, needing_extras, suggest
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill
from eindecomp.graph.shown import Shown
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.dtypes import DType, ScalarTypes, ScalarValues, Types

Array = Any
"""An array of the library's own kind."""
Range = tuple[int, int]
Scalars = Sequence[object]
"""The values of run-time scalars, in the order of the graph."""
Operands = Sequence[Array | None]
"""Those of a tile; None for one that is not read."""
Tile = tuple[Operands, Array]
"""The operands of a tile, and its output."""

GROUP = "eindecomp.kernels"
_NUMPY = EntryPoint("numpy", "eindecomp.kernels.cpu.library:CpuLibrary", GROUP)


class TileKernel(Protocol):
    """What computes tiles of one vertex, of any sizes and strides, from any thread.

    `operands` are the tiles of the vertex's inputs in order. An input whose elements the vertex
    never reads only lends its labels, and is given as None. `scalars` are the values of all the
    graph's run-time scalars, in the graph's order. Outputs overlap no operand.
    """

    @property
    def state(self) -> Types:
        """The types in which partial results are held: wide ones, so that sums are rounded once.

        A state is one array for each of them, of the shape of the tile.
        """
        ...

    def whole(self, operands: Operands, out: Array, scalars: Scalars = ()) -> None:
        """Compute the finished result into `out`."""

    def wholes(self, tiles: Sequence[Tile], scalars: Scalars = ()) -> None:
        """Compute several tiles, which do not overlap, on as many cores as the library likes to.

        One tile after another will do.
        """

    def partial(self, operands: Operands, state: Sequence[Array], scalars: Scalars = ()) -> None:
        """Compute the state of this tile's share of an aggregation."""

    def combine(self, into: Sequence[Array], other: Sequence[Array]) -> None:
        """Combine two states, element by element, into the first."""

    def finish(self, state: Sequence[Array], out: Array) -> None:
        """Turn a state into the result."""


class KernelLibrary(Protocol):
    """Kernels, fills and copies for one kind of array.

    Arrays have a `shape` and can be sliced; a slice is a view, which engines use to cut tiles.
    """

    name: str
    """The package whose arrays these are."""

    def kernel(self, graph: Graph, vertex: Vertex) -> TileKernel:
        """The kernel of a vertex, which is neither an input nor a fill; equal ones share it."""
        ...

    def empty(self, shape: Sequence[int], dtype: DType) -> Array:
        """A new array, of any contents."""
        ...

    def fill(
        self, op: Fill, out: Array, box: Sequence[Range], scalars: ScalarValues, types: ScalarTypes
    ) -> None:
        """Make a box of a fill's tensor: along each dimension its indices from low to high.

        `scalars` and `types` are the values and types of the graph's run-time scalars.
        """

    def copy(self, target: Array, source: Array) -> None:
        """Copy elements from one array of the library to another of the same shape and type."""

    def window(self, tile: Array, shown: Shown) -> Array:
        """What a vertex reads of a tile through a window, best as a view of it."""
        ...

    def from_numpy(self, array: np.ndarray[Any, Any]) -> Array:
        """An array of the library with these elements; it may share their memory."""
        ...

    def to_numpy(self, array: Array) -> np.ndarray[Any, Any]:
        """The elements as NumPy's array; it may share their memory."""
        ...


def library_of(arrays: type | str) -> KernelLibrary:
    """The library for a type of array, or the one of a name.

    >>> library_of("numpy").name
    'numpy'
    >>> import numpy as np
    >>> library_of(np.memmap) is library_of("numpy")
    True
    """
    if isinstance(arrays, str):
        return _named(arrays)
    # A subclass of another package's arrays is computed by that package's library.
    for ancestor in arrays.__mro__:
        package = ancestor.__module__.partition(".")[0]
        if package == _NUMPY.name or package in _installed():
            return _named(package)
    name = f"{arrays.__module__}.{arrays.__qualname__}"
    raise InputError(f"no kernel library computes arrays of type {name}; {_known()}")


@cache
def _named(name: str) -> KernelLibrary:
    if name == _NUMPY.name:
        return _NUMPY.load()()
    if name not in _installed():
        near = suggest(name, [_NUMPY.name, *_installed()])
        raise InputError(f"there is no kernel library {name!r}; {_known()}{near}")
    with needing_extras():
        return _installed()[name].load()()


@cache
def _installed() -> dict[str, EntryPoint]:
    # Looking through all packages takes milliseconds.
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _known() -> str:
    return f"installed: {', '.join(dict.fromkeys([_NUMPY.name, *_installed()]))}"
