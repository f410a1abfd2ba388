"""About how long nests take, to tell which few of many are worth measuring."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from eindecomp.kernels.cpu.contractions.build import block_of
from eindecomp.kernels.cpu.contractions.nest import INSIDE
from eindecomp.kernels.cpu.contractions.parts import Placed, compact_strides
from eindecomp.kernels.cpu.contractions.script import Address
from eindecomp.kernels.cpu.products.gemm import Gemm
from eindecomp.lang.einsum import EinSum, product
from eindecomp.lang.monoid import SUM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eindecomp.kernels.cpu.contractions.nest import BlockedNest
    from eindecomp.lang.dtypes import DType

# About what a call costs, a copied element, a multiply-add of a product and one of a loop, and a
# byte of a temporary that is too large for the caches near a core: to tell nests apart.
_CALL, _COPY, _PRODUCT, _LOOP, _BYTE = 3e-7, 1.5e-9, 2e-11, 5e-10, 1e-10
_SCATTERED = 4  # times as long, where a loop has no vectors to read
_NEAR = 2**20  # bytes


class Prices:
    """The prices of nests over tensors of one layout; parts that nests share are priced once."""

    def __init__(self, op: EinSum, inputs: Sequence[Placed], out: Placed) -> None:
        self._op, self._inputs, self._out = op, inputs, out
        self._known: dict[object, float] = {}

    def seconds(self, nest: BlockedNest, sizes: Mapping[str, int]) -> float:
        """About how long a nest takes."""
        of = self._out.type
        block = block_of(nest, self._op.inputs, sizes, of.itemsize)
        blocks = -(-sizes[nest.blocked] // block) if nest.blocked else 1
        short = {**sizes, nest.blocked: block}
        tensors = list(self._inputs)
        total = 0.0
        for k, (step, when) in enumerate(zip(nest.steps, nest.times(self._op.inputs), strict=True)):
            own, turns = (short, blocks) if when == INSIDE else (sizes, 1)
            made = self._out
            if k < len(nest.steps) - 1:
                made = Placed(of, Address(-1), compact_strides(step.labels, own, of))
                nbytes = of.itemsize * prod(own[label] for label in step.labels)
                total += turns * nbytes * _BYTE if nbytes > _NEAR else 0.0
            tensors.append(made)
            total += turns * self._part(tensors[step.first], tensors[step.second], made, own)
        return total

    def _part(self, x: Placed, y: Placed, out: Placed, sizes: Mapping[str, int]) -> float:
        labels = {*x.labels, *y.labels, *out.labels}
        key = (
            *(tuple(each.strides.items()) for each in (x, y, out)),
            tuple(sorted((label, sizes[label]) for label in labels)),
        )
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _seconds(x, y, out, sizes)
        return found


def _seconds(x: Placed, y: Placed, out: Placed, sizes: Mapping[str, int]) -> float:
    op = EinSum((x.labels, y.labels), out.labels, product(2), SUM)
    types: tuple[DType, DType, DType] = (x.type, y.type, out.type)
    gemm = Gemm(op, types[:2], out.type)
    classed = gemm.classed([x.array(sizes), y.array(sizes)], out.array(sizes))
    found = None if classed is None else gemm.arrange(*classed, types)
    points = prod(sizes[label] for label in {*x.labels, *y.labels, *out.labels})
    if found is None:
        last = [each.labels[-1] for each in (x, y, out) if each.labels]
        return _CALL + points * _LOOP * (1 if len(set(last)) < len(last) else _SCATTERED)
    extents = found.layout.sizes
    m, n, k = (
        prod(extents[label] for label in part) for part in (found.rows, found.columns, found.summed)
    )
    calls = prod(extents[label] for label in found.batch)
    slow = (1 + 8 / m) * (1 + 8 / n) * (1 + 8 / k)
    seconds = calls * (_CALL + m * n * k * _PRODUCT * slow * out.type.itemsize / 4)
    for own, copied in zip(found.layout.arrays, found.copied, strict=True):
        if copied:
            seconds += _COPY * prod(extents[label] for label in own)
    return seconds
