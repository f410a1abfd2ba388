"""`TorchLibrary`: the kernel library for torch's tensors, on one device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eindecomp.errors import InputError
from eindecomp.graph.graph import Graph
from eindecomp.graph.ops import Fill, Input
from eindecomp.graph.shown import Shown
from eindecomp.graph.vertex import Vertex
from eindecomp.kernels.convolutions import convolution_of, pool_of
from eindecomp.kernels.point_program import fill_function, scalar_type
from eindecomp.kernels.tile_arrays import einsum_arguments
from eindecomp.kernels.torch.convolution import WindowKernel
from eindecomp.kernels.torch.einsum import einsum_kernel
from eindecomp.kernels.torch.functions import torch_functions
from eindecomp.kernels.torch.kernel import TorchKernel, move_kernel
from eindecomp.kernels.torch.tensors import aligned, as_array, as_tensor, cast, expanded, torch_type
from eindecomp.kernels.torch.windows import view
from eindecomp.lang.dtypes import BFLOAT16, Array, DType
from eindecomp.lang.einsum import EinSum

Box = Sequence[tuple[int, int]]
Types = Mapping[str, DType]


class TorchLibrary:
    """Contractions by torch's matrix products, all else by its functions of elements.

    >>> TorchLibrary().from_numpy(np.arange(3.0))
    tensor([0., 1., 2.], dtype=torch.float64)
    """

    name = "torch"

    def __init__(self, device: str | torch.device = "cpu") -> None:
        self.device = torch.device(device)

    def kernel(self, graph: Graph, vertex: Vertex) -> TorchKernel:
        """The kernel of a vertex, with the functions that engines trace."""
        op = vertex.op
        if isinstance(op, EinSum):
            arguments = einsum_arguments(graph, vertex, op)
            plain = einsum_kernel(*arguments, self.device)
            known = convolution_of(vertex, arguments[1]) or pool_of(vertex)
            return plain if known is None else WindowKernel(known, plain)
        if isinstance(op, Input | Fill):
            raise InputError(f"{vertex} is not computed from tiles of others: it has no kernel")
        return move_kernel(op, vertex.dtype)

    def empty(self, shape: Sequence[int], dtype: DType) -> Tensor:
        """A new tensor, of any contents."""
        return torch.empty(tuple(shape), dtype=torch_type(dtype), device=self.device)

    def filled(self, op: Fill, box: Box, scalars: Mapping[str, object], types: Types) -> Tensor:
        """A box of a fill's tensor, in the type of its vertex; it may be a view of less.

        Along each dimension it has the indices from low to high.
        """
        index = [
            aligned(torch.arange(low, high, device=self.device), (label,), op.output)
            for label, (low, high) in zip(op.output, box, strict=True)
        ]
        value, names, of = _compiled(op, tuple(types.items()), self.device)
        given = [as_tensor(scalars[name], scalar_type(types[name]), self.device) for name in names]
        values = cast(value(*index, *given), of, self.device)
        return expanded(values, [high - low for low, high in box])

    def fill(
        self, op: Fill, out: Tensor, box: Box, scalars: Mapping[str, object], types: Types
    ) -> None:
        """Make a box of a fill's tensor."""
        out.copy_(self.filled(op, box, scalars, types))

    def copy(self, target: Tensor, source: Tensor) -> None:
        """Copy elements from one tensor to another."""
        target.copy_(source)

    def window(self, tile: Tensor, shown: Shown) -> Tensor:
        """A view of the tile, or of a copy with what lies outside beside it."""
        return view(tile, shown)

    def from_numpy(self, array: Array) -> Tensor:
        """A tensor with these elements, which on the CPU shares their memory if it can."""
        of = torch_type(array.dtype)
        if any(stride < 0 for stride in array.strides):
            array = array.copy()
        if array.dtype == BFLOAT16:
            array = array.view(np.int16)
        writable = array if array.flags.writeable else np.asarray(_Lent(array))
        return torch.from_numpy(writable).view(of).to(self.device)

    def to_numpy(self, array: Tensor) -> Array:
        """The elements as NumPy's array, which shares the memory of a tensor on the CPU."""
        return as_array(array.detach().cpu().resolve_conj())


class _Lent:
    """An array's memory, said to be writable: torch warns of any other, but kernels only read."""

    def __init__(self, array: Array) -> None:
        self._array = array
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


@lru_cache(maxsize=256)
def _compiled(op: Fill, types: tuple[tuple[str, DType], ...], device: torch.device) -> Any:
    return fill_function(op, dict(types), torch_functions(device))
