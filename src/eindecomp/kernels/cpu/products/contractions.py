"""Sums of products of three and more inputs: the fastest nest for every class of sizes.

It is measured once and kept on disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from math import prod

import numpy as np

from eindecomp.graph.orders import Contraction
from eindecomp.kernels.cpu.compiling.compile import versions
from eindecomp.kernels.cpu.loops.launch import LoopsCall
from eindecomp.kernels.cpu.products.blas_libraries import one_thread_each
from eindecomp.kernels.cpu.products.nests import NestCall, PairKernel, candidates, cut, nest_of
from eindecomp.kernels.measured import Verdicts, fastest_of
from eindecomp.kernels.tile_arrays import strides_of
from eindecomp.lang.dtypes import Array, DType
from eindecomp.lang.einsum import EinSum, Sizes

Prepare = Callable[[Sequence[Array], Sequence[Array], dict[str, int]], LoopsCall | None]

_TYPES = {np.dtype("float32"), np.dtype("float64")}
_SMALL = 2**14
"""Points up to which generated loops are taken without comparison."""
_WORK = 2**31
"""The most operations of a nest that are measured at a time: some tens of milliseconds."""
_POINTS = 2**24
"""The most points up to which generated loops are compared with nests."""
_EXACT = 64
"""The longest label of which every size is a class of its own: kernels differ."""
_LOOPS = "loops"
_VERDICTS = Verdicts("contractions", versions)


class FusedContraction:
    """A sum of products of several inputs of one type; `kernel_of` multiplies two of them."""

    def __init__(self, op: EinSum, kernel_of: PairKernel) -> None:
        # Classes know labels by number only.
        self._names = names = {label: f"l{k}" for k, label in enumerate(op.labels)}
        inputs = tuple(tuple(names[label] for label in own) for own in op.inputs)
        output = tuple(names[label] for label in op.output)
        self._op = EinSum(inputs, output, op.join, op.agg)
        self._kernel_of = kernel_of

    @staticmethod
    def suits(op: EinSum, dtypes: Sequence[DType], out: DType) -> bool:
        """Whether nests compute it."""
        types = {*dtypes, out}
        return op.is_contraction and len(op.inputs) > 2 and len(types) == 1 and types <= _TYPES

    def prepare(
        self, operands: Sequence[Array], out: Array, sizes: Sizes, loops: Prepare
    ) -> NestCall | None:
        """The fastest nest for arrays of a layout; None if `loops`, which compile that, are faster.

        Ways that are measured write to the output.
        """
        own = {self._names[label]: size for label, size in sizes.items()}
        if prod(own.values()) <= _SMALL:
            return None
        title = _title(self._op, operands, out, own)
        nest = nest_of(_VERDICTS.find(title, partial(self._measure, operands, out, own, loops)))
        if nest is None:
            return None
        return NestCall(self._op, nest, own, out.dtype, self._kernel_of)

    def _measure(
        self, operands: Sequence[Array], out: Array, given_sizes: Sizes, loops: Prepare
    ) -> str:
        """The text of the fastest nest for the first of a class, or that loops are faster."""
        # Large contractions are measured on smaller sizes: the longest labels are shortened first.
        sizes = dict(given_sizes)
        while _work(self._op, sizes) > _WORK:
            longest = max(sizes, key=lambda label: sizes[label])
            sizes[longest] = -(-sizes[longest] // 2)
        windows = {label: slice(size) for label, size in sizes.items()}
        labelled = zip((*operands, out), (*self._op.inputs, self._op.output), strict=True)
        *given, result = (cut(array, own, windows) for array, own in labelled)
        ways: dict[str, Callable[[], None]] = {}
        with one_thread_each():
            for nest in candidates(self._op, given, result, sizes):
                call = NestCall(self._op, nest, sizes, out.dtype, self._kernel_of)
                ways[nest.to_text()] = partial(call.launch, given, [result])
            if prod(sizes.values()) <= _POINTS:
                compiled = loops(given, [result], {})
                if compiled is not None:
                    unread = [np.zeros(())] * compiled.scalars  # a contraction reads none
                    ways[_LOOPS] = partial(compiled.launch, given, [result], unread)
            return fastest_of(ways)


def _work(op: EinSum, sizes: Sizes) -> int:
    """The operations of the best order of pairs."""
    contraction = Contraction(op.inputs, op.output, sizes, paired=False)
    return contraction.work(contraction.cheapest)


def _title(op: EinSum, operands: Sequence[Array], out: Array, sizes: Sizes) -> str:
    """The class: labels and types, sizes that are about the same, and the order in memory."""
    layouts: list[object] = []
    for own, array in zip((*op.inputs, op.output), (*operands, out), strict=True):
        strides = strides_of(own, array.strides)
        reach = sum((sizes[label] - 1) * abs(step) for label, step in strides.items())
        is_compact = reach + array.itemsize == array.nbytes
        order = sorted(strides, key=lambda label, own=strides: -abs(own[label]))
        layouts.append([order, is_compact])
    rounded = {k: n if n <= _EXACT else 1 << (n - 1).bit_length() for k, n in sizes.items()}
    return json.dumps([out.dtype.name, op.inputs, op.output, layouts, rounded])
