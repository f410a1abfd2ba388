"""The parts of a nest: products of two tensors, sums and copies, as compiled calls."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from eindecomp.kernels.cpu.loops.launch import Loops, LoopsCall
from eindecomp.kernels.cpu.products.gemm import Gemm
from eindecomp.kernels.point_program import make_program
from eindecomp.lang.einsum import EinSum, Labels, product
from eindecomp.lang.monoid import SUM
from eindecomp.lang.scalar import Arg, call

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.kernels.cpu.contractions.script import Address, Script
    from eindecomp.lang.dtypes import DType

    Array = np.ndarray[Any, Any]
    Sizes = Mapping[str, int]


class UnsuitedError(Exception):
    """A part that no compiled code computes, so that there is no such nest."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor in memory: its type, where it begins, and the byte stride along each label."""

    type: DType
    address: Address
    strides: Mapping[str, int]
    is_whole: bool = True
    """Whether it has all indices of the label that is cut into blocks, not only one block's."""

    @property
    def labels(self) -> Labels:
        """Its labels, each once."""
        return tuple(self.strides)

    def array(self, sizes: Sizes) -> Array:
        """An array of the same layout, to be looked at but not into."""
        shape = [sizes[label] for label in self.strides]
        return as_strided(np.empty(1, self.type), shape, [*self.strides.values()])


def temporary(script: Script, labels: Labels, sizes: Sizes, of: DType) -> Placed:
    """A tensor of its own, with the last label's elements side by side."""
    nbytes = of.itemsize * prod(sizes[label] for label in labels)
    return Placed(of, script.reserve(nbytes), compact_strides(labels, sizes, of))


def compact_strides(labels: Labels, sizes: Sizes, of: DType) -> dict[str, int]:
    """The byte strides of labels that lie one in another."""
    found: dict[str, int] = {}
    step = of.itemsize
    for label in reversed(labels):
        found[label] = step
        step *= sizes[label]
    return {label: found[label] for label in labels}


def multiply(
    script: Script, sizes: Sizes, operands: tuple[Placed, Placed], out: Placed, *, add: bool
) -> None:
    """Add the calls that multiply two tensors and sum, onto what is there with `add`."""
    x, y = operands
    op = EinSum((x.labels, y.labels), out.labels, product(2), SUM)
    arrays = [x.array(sizes), y.array(sizes)]
    gemm = Gemm(op, (x.type, y.type), out.type)
    found = gemm.prepare(arrays, out.array(sizes), add=add)
    if isinstance(found, LoopsCall):
        _call(script, found, [x, y, out])
        return
    if found is not None or add:
        order = _product_order(x.labels, y.labels, out.labels)
        other = temporary(script, order, sizes, out.type)
        inner = EinSum((x.labels, y.labels), order, product(2), SUM)
        found = Gemm(inner, (x.type, y.type), out.type).prepare(arrays, other.array(sizes))
        if not isinstance(found, LoopsCall):
            found = _loops(inner, (x.type, y.type)).prepare(arrays, [other.array(sizes)], {})
        _call(script, found, [x, y, other])
        put(script, sizes, other, out, add=add)
        return
    found = _loops(op, (x.type, y.type)).prepare(arrays, [out.array(sizes)], {})
    _call(script, found, [x, y, out])


def put(script: Script, sizes: Sizes, source: Placed, target: Placed, *, add: bool = False) -> None:
    """Add the calls that copy a tensor into another of the same labels, or add it to that."""
    given = [source, target] if add else [source]
    join = call("add", Arg(0), Arg(1)) if add else Arg(0)
    op = EinSum(tuple(each.labels for each in given), target.labels, join)
    loops = _loops(op, tuple(each.type for each in given), overlaps=add)
    found = loops.prepare([each.array(sizes) for each in given], [target.array(sizes)], {})
    _call(script, found, [*given, target])


def _product_order(x: Labels, y: Labels, out: Labels) -> Labels:
    """An order in which a product of matrices can leave its result: batch, rows, columns."""
    batch = [label for label in out if label in x and label in y]
    rest = [label for label in out if label not in x and label not in y]
    rows = [label for label in x if label in out and label not in y]
    columns = [label for label in y if label in out and label not in x]
    return (*rest, *batch, *rows, *columns)


@lru_cache(maxsize=2**10)
def _loops(op: EinSum, types: tuple[DType, ...], *, overlaps: bool = False) -> Loops:
    program = make_program(op, types, {})
    return Loops(program, op.inputs, op.output, description=str(op), overlaps=overlaps)


def _call(script: Script, found: object, placed: Sequence[Placed]) -> None:
    """Add a call; inputs that it wants in another order are copied first."""
    if not isinstance(found, LoopsCall):
        raise UnsuitedError
    places = list(placed)
    for pack in found.packs:
        names = tuple(f"l{k}" for k in range(len(pack.shape)))
        sizes = dict(zip(names, pack.shape, strict=True))
        own = places[pack.which]
        strides = dict(zip(names, pack.strides, strict=True))
        places[pack.which] = temporary(script, names, sizes, own.type)
        put(script, sizes, Placed(own.type, own.address, strides), places[pack.which])
    script.call(found, [each.address for each in places])
