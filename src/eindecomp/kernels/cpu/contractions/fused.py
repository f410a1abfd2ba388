"""Sums of products of three and more inputs: the fastest nest for every class of sizes."""

from __future__ import annotations

import json
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from eindecomp.kernels.cpu.compiling.compile import versions
from eindecomp.kernels.cpu.contractions.build import build, nest_of
from eindecomp.kernels.cpu.contractions.candidates import candidates
from eindecomp.kernels.cpu.contractions.parts import Placed
from eindecomp.kernels.cpu.contractions.script import Address
from eindecomp.kernels.cpu.loops.nest import strides_of
from eindecomp.kernels.cpu.products.blas_libraries import one_thread_each
from eindecomp.kernels.measured import Verdicts, fastest_of
from eindecomp.kernels.trees import cheapest_trees
from eindecomp.lang.einsum import EinSum

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eindecomp.kernels.cpu.loops.launch import Launch, LoopsCall
    from eindecomp.lang.dtypes import DType
    from eindecomp.lang.einsum import Labels

    Array = np.ndarray[Any, Any]
    Prepare = Callable[[Sequence[Array], Sequence[Array], dict[str, int]], LoopsCall | None]

_TYPES = {np.dtype("float32"), np.dtype("float64")}
_SMALL = 2**14
"""Points up to which generated loops are not worth comparing with anything."""
_WORK = 2**31
"""The most operations of a nest that are measured at a time: some tens of milliseconds."""
_POINTS = 2**24
"""The most points up to which generated loops are compared with nests."""
_NUMBERS = 2**24
"""The most numbers of all arrays that are measured."""
_EXACT = 64
"""The longest label of which every size is a class of its own: kernels differ."""
_LOOPS = "loops"
_VERDICTS = Verdicts("contractions", versions)


class FusedContraction:
    """A sum of products of several inputs of one type."""

    def __init__(self, op: EinSum) -> None:
        # Classes know labels by number only.
        names = {label: f"l{k}" for k, label in enumerate(op.labels)}
        inputs = tuple(tuple(names[label] for label in own) for own in op.inputs)
        output = tuple(names[label] for label in op.output)
        self.op = EinSum(inputs, output, op.join, op.agg)
        self._names = names

    @staticmethod
    def suits(op: EinSum, dtypes: Sequence[DType], out: DType) -> bool:
        """Whether nests compute it."""
        types = {*dtypes, out}
        return op.is_contraction and len(op.inputs) > 2 and len(types) == 1 and types <= _TYPES

    def prepare(
        self, operands: Sequence[Array], out: Array, sizes: Mapping[str, int], loops: Prepare
    ) -> Launch | None:
        """The fastest way to compute arrays of a layout; None if `loops` are, which it is given."""
        own = {self._names[label]: size for label, size in sizes.items()}
        if prod(own.values()) <= _SMALL:
            return None
        title = _title(self.op, operands, out, own)
        measure = partial(self._measure, operands, out, own, loops)
        nest = nest_of(_VERDICTS.find(title, measure))
        return None if nest is None else build(self.op, nest, operands, out, own)

    def _measure(
        self, operands: Sequence[Array], out: Array, sizes: Mapping[str, int], loops: Prepare
    ) -> str:
        """The text of the fastest nest for the first of a class, or that loops are faster."""
        sizes = _sample(self.op, sizes)
        arrays = [
            _like(own, array, sizes)
            for own, array in zip((*self.op.inputs, self.op.output), (*operands, out), strict=True)
        ]
        *given, result = arrays
        placed = [
            Placed(array.dtype, Address(k), strides_of(own, array))
            for k, (own, array) in enumerate(
                zip((*self.op.inputs, self.op.output), arrays, strict=True)
            )
        ]
        ways: dict[str, Callable[[], None]] = {}
        with one_thread_each():
            for nest in candidates(self.op, placed[:-1], placed[-1], sizes):
                call = build(self.op, nest, given, result, sizes)
                if call is not None:
                    ways[nest.to_text()] = partial(call.launch, given, [result], ())
            if not ways or prod(sizes.values()) <= _POINTS:
                call = loops(given, [result], {})
                if call is not None:
                    ways[_LOOPS] = partial(call.launch, given, [result], ())
            return fastest_of(ways)


def _sample(op: EinSum, sizes: Mapping[str, int]) -> dict[str, int]:
    """Sizes that stand for larger ones: the longest labels are shortened first."""
    found = dict(sizes)
    while True:
        [(work, _)] = cheapest_trees(op.inputs, op.output, found)
        numbers = sum(prod(found[label] for label in own) for own in (*op.inputs, op.output))
        if work <= _WORK and numbers <= _NUMBERS:
            break
        longest = max(found, key=lambda label: found[label])
        found[longest] = -(-found[longest] // 2)
    return found


def _title(op: EinSum, operands: Sequence[Array], out: Array, sizes: Mapping[str, int]) -> str:
    """The class: labels and types, sizes that are about the same, and the order in memory."""
    layouts: list[object] = []
    for own, array in zip((*op.inputs, op.output), (*operands, out), strict=True):
        strides = strides_of(own, array)
        reach = sum((sizes[label] - 1) * abs(step) for label, step in strides.items())
        is_compact = reach + array.itemsize == array.nbytes
        layouts.append(
            [sorted(strides, key=lambda label, own=strides: -abs(own[label])), is_compact]
        )
    rounded = {k: n if n <= _EXACT else 1 << (n - 1).bit_length() for k, n in sizes.items()}
    return json.dumps([out.dtype.name, op.inputs, op.output, layouts, rounded])


def _like(labels: Labels, array: Array, sizes: Mapping[str, int]) -> Array:
    """An array of other sizes with the strides of a given one: far numbers take longer to read."""
    shape = [sizes[label] for label in labels]
    strides = [abs(stride) for stride in array.strides]
    reach = sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    # Numbers of no meaning, all of them ordinary: odd ones would take longer.
    made = as_strided(np.empty(reach // array.itemsize + 1, array.dtype), shape, strides)
    made[...] = np.resize(np.linspace(-1, 1, 97), shape)
    return made
