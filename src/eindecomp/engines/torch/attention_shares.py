"""What a device computes of attention from its own keys, and how shares add up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eindecomp.kernels.torch.attention import attend_partial, relative_weight, rescale
from eindecomp.kernels.torch.attention_layout import row_labels
from eindecomp.kernels.torch.dtypes import torch_type
from eindecomp.kernels.torch.views import aligned

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from torch import Tensor

    from eindecomp.engines.torch.attention_operands import AttentionOperands
    from eindecomp.graph.patterns.attention import Attention
    from eindecomp.lang.dtypes import DType
    from eindecomp.lang.einsum import Labels


@dataclass(frozen=True, eq=False)
class Share:
    """The result as if a device's keys were all there are, and the log-sum-exp of its scores."""

    operands: AttentionOperands
    result: Labels
    rows: Labels
    makes: tuple[int, int]

    @property
    def key(self) -> Hashable:
        """Equal for calls that compute the same."""
        return Share, self.operands.key, self.result, self.rows

    def __call__(self, operands: Sequence[Tensor], scalars: Sequence[Tensor]) -> list[Tensor]:
        """Both, from the blocks of the operands in their order."""
        own, one = self.operands, self.operands.attention
        tensors = dict(zip(own.blocks, operands, strict=True))
        [part], [tile] = own.parts, own.tiles(tensors, scalars)
        out, lse = attend_partial(one, part, tensors[one.q], tile, start=own.start)
        return [
            aligned(out, one.output.labels, self.result),
            aligned(lse, row_labels(one), self.rows),
        ]


@dataclass(frozen=True, eq=False)
class Reference:
    """A part of what all shares are relative to: the log-sum-exp, in the type of a maximum."""

    dtype: DType
    makes: tuple[int]

    @property
    def key(self) -> Hashable:
        """Equal for calls that compute the same."""
        return Reference, self.dtype

    def __call__(self, operands: Sequence[Tensor], scalars: Sequence[Tensor]) -> list[Tensor]:
        """The part, from the log-sum-exp."""
        del scalars
        return [operands[0].to(torch_type(self.dtype))]


@dataclass(frozen=True, eq=False)
class Weight:
    """A device's share of the sum of weights, relative to the reference."""

    reads: tuple[Labels, Labels]
    """The labels of the log-sum-exp and of the reference."""
    labels: Labels
    dtype: DType
    makes: tuple[int]

    @property
    def key(self) -> Hashable:
        """Equal for calls that compute the same."""
        return Weight, self.reads, self.labels, self.dtype

    def __call__(self, operands: Sequence[Tensor], scalars: Sequence[Tensor]) -> list[Tensor]:
        """The share, from the log-sum-exp of a device and from the reference."""
        del scalars
        pairs = zip(operands, self.reads, strict=True)
        lse, reference = (aligned(x, own, self.labels) for x, own in pairs)
        return [relative_weight(lse, reference).to(torch_type(self.dtype))]


@dataclass(frozen=True, eq=False)
class Weighted:
    """A device's share of the sum of weights times values, relative to the reference."""

    attention: Attention
    reads: tuple[Labels, ...]
    """The labels of the result, as the sum has them, of the log-sum-exp and of the reference, and
    of the sum of weights if values are multiplied by quotients."""
    dtype: DType
    makes: tuple[int]

    @property
    def key(self) -> Hashable:
        """Equal for calls that compute the same."""
        return Weighted, self.attention.output.labels, self.attention.values, self.reads, self.dtype

    def __call__(self, operands: Sequence[Tensor], scalars: Sequence[Tensor]) -> list[Tensor]:
        """The share, from what `reads` says."""
        del scalars
        output, rows = self.attention.output.labels, row_labels(self.attention)
        out, lse, reference, *totals = (
            aligned(x, own, wanted)
            for x, own, wanted in zip(
                operands, self.reads, (output, rows, rows, output), strict=False
            )
        )
        share, _ = rescale(self.attention, out, lse, reference)
        for total in totals:
            share = share / total
        return [aligned(share, output, self.reads[0]).to(torch_type(self.dtype))]
