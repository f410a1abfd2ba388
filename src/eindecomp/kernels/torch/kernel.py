"""`TorchKernel`: the kernel protocol on top of functions that make new tensors; kernels of moves.

The functions are what an engine traces and compiles, many vertices at a time; by `make_fx`, since
Dynamo cannot follow functions without builtins, which those of scalar expressions are. They write
nowhere and never look at elements; what they give may be a view, of an operand too. Whoever
computes tile by tile into arrays of their own uses the protocol, which copies what they give.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from eindecomp.errors import InputError
from eindecomp.graph.ops import Concat, Gather, Op, Reshape, ScatterAdd, Window
from eindecomp.kernels.tile_arrays import reshaped
from eindecomp.kernels.torch.tensors import CARRIED, aligned, carried, cast, put_back, torch_type
from eindecomp.lang.dtypes import DType, widen
from eindecomp.lang.einsum import Labels

if TYPE_CHECKING:
    from eindecomp.kernels.library import Tile

    Operands = Sequence[Tensor | None]
    Scalars = Sequence[object]
    Shape = Sequence[int]
    States = tuple[Tensor, ...]


class TorchKernel(ABC):
    """The kernel of one vertex. `shape` is the shape of the tile that is computed."""

    state: tuple[DType, ...]
    """The types in which partial results are held."""

    @abstractmethod
    def result(self, operands: Operands, scalars: Scalars, shape: Shape) -> Tensor:
        """The finished result, as a new tensor or a view."""

    @abstractmethod
    def states(self, operands: Operands, scalars: Scalars, shape: Shape) -> States:
        """The state of this tile's share of an aggregation, as new tensors or views."""

    @abstractmethod
    def combined(self, a: Sequence[Tensor], b: Sequence[Tensor]) -> States:
        """Two states combined, element by element, as new tensors."""

    @abstractmethod
    def finished(self, states: Sequence[Tensor]) -> Tensor:
        """The result that a state stands for."""

    def check(self, operands: Operands, shape: Shape) -> None:
        """Raise if an index among the operands is out of range; it waits for the device."""
        del operands, shape  # most have none

    def whole(self, operands: Operands, out: Tensor, scalars: Scalars = ()) -> None:
        """Compute the finished result into `out`, which may have any strides."""
        self.check(operands, out.shape)
        out.copy_(self.result(operands, scalars, out.shape))

    def wholes(self, tiles: Sequence[Tile], scalars: Scalars = ()) -> None:
        """Compute several tiles, one after another."""
        for operands, out in tiles:
            self.whole(operands, out, scalars)

    def partial(self, operands: Operands, state: Sequence[Tensor], scalars: Scalars = ()) -> None:
        """Compute the unfinished states of this tile into the given arrays."""
        self.check(operands, state[0].shape)
        _copy(state, self.states(operands, scalars, state[0].shape))

    def combine(self, into: Sequence[Tensor], other: Sequence[Tensor]) -> None:
        """Combine two states, element by element, into the first."""
        _copy(into, self.combined(into, other))

    def finish(self, state: Sequence[Tensor], out: Tensor) -> None:
        """Turn a state into the result."""
        out.copy_(self.finished(state))


def _copy(into: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    for target, source in zip(into, sources, strict=True):
        target.copy_(source)


class MoveKernel(TorchKernel):
    """A gather, scatter, concatenation, slice or reshape."""

    def __init__(self, op: Op, out: DType) -> None:
        self.op, self.out = op, out
        self.state = (widen(out),)

    def result(self, operands: Operands, scalars: Scalars, shape: Shape) -> Tensor:
        """A tile."""
        del scalars
        return self.finished(self._moved(operands, shape))

    def states(self, operands: Operands, scalars: Scalars, shape: Shape) -> States:
        """A part of a sum."""
        del scalars
        [moved] = self._moved(operands, shape)
        return (cast(moved, self.state[0], moved.device),)

    def combined(self, a: Sequence[Tensor], b: Sequence[Tensor]) -> States:
        """The sum of two parts."""
        return (put_back(carried(a[0]) + carried(b[0]), a[0].dtype),)

    def finished(self, states: Sequence[Tensor]) -> Tensor:
        """The sum in the result's type."""
        return cast(states[0], self.out, states[0].device)

    def check(self, operands: Sequence[Any], shape: Shape) -> None:
        """Raise if an index is out of range."""
        match self.op:
            case Gather(axis=axis):
                check_index(operands[1], operands[0].shape[axis])
            case ScatterAdd(axis=axis):
                check_index(operands[1], shape[axis])
            case _:
                pass

    def __str__(self) -> str:
        return str(self.op)

    def _moved(self, operands: Sequence[Any], shape: Shape) -> tuple[Tensor]:
        match self.op:
            case Gather() as op:
                return (_gather(op, operands[0], operands[1]),)
            case ScatterAdd() as op:
                wide = self.state[0]
                return (_scatter_add(op, operands[0], operands[1], shape[op.axis], wide),)
            case Concat() as op:
                parts = [cast(x, self.out, x.device) for x in operands]
                return (torch.cat(parts, op.axis),)
            case Window():
                return (operands[0],)
            case Reshape() as op:
                return (reshaped(op, operands[0], torch.permute),)
            case _:
                raise AssertionError(f"{self.op} moves nothing")


move_kernel = lru_cache(maxsize=2**12)(MoveKernel)
"""The kernel of a move for results of type `out`."""


def check_index(index: Tensor, size: int) -> None:
    """Raise if an index is out of range for a table of `size` rows; this waits for the device."""
    if index.numel() == 0:
        return
    low, high = (int(end) for end in torch.aminmax(carried(index)))
    if low < 0 or high >= size:
        raise InputError(f"index {low if low < 0 else high} is outside 0 to {size - 1}")


def _gather(op: Gather, table: Tensor, index: Tensor) -> Tensor:
    rows = _as_index(index)
    if set(op.table).isdisjoint(op.index):
        read = _at(table, [*([None] * op.axis), rows])
        labels = (*op.table[: op.axis], *op.index, *op.table[op.axis :])
        return read.permute([labels.index(label) for label in op.output])
    shape = [size for k, size in enumerate(table.shape) if k != op.axis]
    sizes = dict(zip(op.table, shape, strict=True)) | dict(zip(op.index, index.shape, strict=True))
    place = [_along(label, op.output, sizes[label], index) for label in op.table]
    place.insert(op.axis, aligned(rows, op.index, op.output))
    return _at(table, place)


def _at(table: Tensor, place: Sequence[Tensor | None]) -> Tensor:
    """Index with tensors, so that it can be traced on machines that lack the tensors' device."""
    index: Any = torch.ops.aten.index.Tensor
    return index(table, place)


def _scatter_add(op: ScatterAdd, source: Tensor, index: Tensor, rows: int, wide: DType) -> Tensor:
    """Sum rows by `index_put`, which on a GPU sorts them: adding atomically is not repeatable."""
    of = torch_type(wide)
    sizes = dict(zip(op.source, source.shape, strict=True))
    sizes |= dict(zip(op.index, index.shape, strict=True))
    shared = tuple(label for label in op.table if label in op.index)
    whole = tuple(label for label in op.table if label not in op.index)
    space = (*op.index, *whole)
    added, own = carried(cast(source, wide, source.device)), op.source
    alone = [k for k, label in enumerate(own) if label not in space]
    if alone:
        added = torch.sum(added, alone, dtype=added.dtype)
        own = tuple(label for label in own if label in space)
    values = aligned(added, own, space).expand([sizes[label] for label in space])
    place = [_as_index(index), *(_along(k, op.index, sizes[k], index) for k in shared)]
    total = values.new_zeros([rows, *(sizes[label] for label in (*shared, *whole))])
    total = torch.index_put(total, tuple(place), values, accumulate=True)
    labels = (op.row_label, *shared, *whole)
    total = total.permute([labels.index(label) for label in op.output])
    return put_back(total, of) if of in CARRIED else total


def _as_index(index: Tensor) -> Tensor:
    """Indices of a type that torch takes for indices; bytes it would take for a mask."""
    return index if index.dtype in (torch.int32, torch.int64) else index.to(torch.int64)


def _along(label: str, space: Labels, size: int, like: Tensor) -> Tensor:
    """0, 1, 2, … along one label of a space."""
    return aligned(torch.arange(size, device=like.device), (label,), space)
