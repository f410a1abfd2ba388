"""`CpuLibrary`: the kernel library for NumPy's arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.errors import InputError
from eindecomp.graph.ops import Fill, Input
from eindecomp.kernels.cpu.einsum import einsum_kernel
from eindecomp.kernels.cpu.moves import fill_box, move_kernel
from eindecomp.kernels.tile_sizes import lent_sizes
from eindecomp.lang.einsum import EinSum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.kernels.library import TileKernel
    from eindecomp.lang.dtypes import DType

    Array = np.ndarray[Any, Any]


class CpuLibrary:
    """Products and contractions by BLAS or blocks of our own, all else by generated loops."""

    name = "numpy"

    def kernel(self, graph: Graph, vertex: Vertex) -> TileKernel:
        """The kernel of a vertex."""
        op = vertex.op
        if isinstance(op, EinSum):
            types = tuple(graph[name].dtype for name in vertex.inputs)
            scalars = tuple(graph.scalars.items())
            return einsum_kernel(op, types, vertex.dtype, scalars, lent_sizes(graph, vertex, op))
        if isinstance(op, Input | Fill):
            raise InputError(f"{vertex} is not computed from tiles of others: it has no kernel")
        return move_kernel(op, vertex.dtype)

    def empty(self, shape: Sequence[int], dtype: DType) -> Array:
        """A new array, of any contents."""
        return np.empty(shape, dtype)

    def fill(
        self,
        op: Fill,
        out: Array,
        box: Sequence[tuple[int, int]],
        scalars: Mapping[str, object],
        types: Mapping[str, DType],
    ) -> None:
        """Make a box of a fill's tensor."""
        fill_box(op, out, box, scalars, types)

    def copy(self, target: Array, source: Array) -> None:
        """Copy elements from one array to another."""
        np.copyto(target, source)

    def from_numpy(self, array: Array) -> Array:
        """The array itself."""
        return array

    def to_numpy(self, array: Array) -> Array:
        """The array itself."""
        return array
