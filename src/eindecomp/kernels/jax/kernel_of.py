"""The kernel of a vertex for JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.errors import InputError
from eindecomp.graph.ops import Fill, Input
from eindecomp.kernels.jax.einsum import einsum_kernel
from eindecomp.kernels.jax.moves import MoveKernel
from eindecomp.kernels.tile_sizes import lent_sizes
from eindecomp.lang.einsum import EinSum

if TYPE_CHECKING:
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.vertex import Vertex
    from eindecomp.kernels.jax.traced_kernel import TracedKernel


def kernel_of(graph: Graph, vertex: Vertex, precision: str = "highest") -> TracedKernel:
    """What computes tiles of a vertex, which is neither an input nor a fill."""
    op = vertex.op
    if isinstance(op, EinSum):
        types = tuple(graph[name].dtype for name in vertex.inputs)
        lent, scalars = lent_sizes(graph, vertex, op), tuple(graph.scalars.items())
        return einsum_kernel(op, types, vertex.dtype, scalars, lent, precision)
    if isinstance(op, Input | Fill):
        raise InputError(f"{vertex} is not computed from tiles of others: it has no kernel")
    return MoveKernel(op, vertex.dtype)
