"""Rows in groups, and complex numbers, imported and evaluated, against PyTorch itself."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from test_from_torch_operators import check, i, r
from torch import nn

import eindecomp as ed


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("way", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_scatter_reduce(way, include_self, dtype):
    def reduced(x, k, source):
        return [
            x.scatter_reduce(dim, k, source, way, include_self=include_self) for dim in (0, 1, -1)
        ]

    x, source = (4 * r(4, 6)).to(dtype), (4 * r(4, 5, seed=1)).to(dtype)
    if way == "mean" and dtype == torch.int32:
        with pytest.raises(ed.GraphError, match="means of fractions"):
            ed.from_torch(reduced, (x, i(4, 3, 5), source))
    else:
        check(reduced, x, i(4, 3, 5), source)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
def test_embedding_bags(mode, padding):
    table = r(7, 3)
    check(lambda w, k: F.embedding_bag(k, w, mode=mode, padding_idx=padding), table, i(7, 4, 5))
    starts = torch.tensor([0, 2, 2, 6])
    check(
        lambda w, k, at: F.embedding_bag(k, w, at, mode=mode, padding_idx=padding),
        table, i(7, 9), starts,
    )  # fmt: skip
    ends = torch.tensor([0, 2, 2, 9])
    check(
        lambda w, k, at: F.embedding_bag(
            k, w, at, mode=mode, include_last_offset=True, padding_idx=padding
        ),
        table, i(7, 9), ends,
    )  # fmt: skip


def test_bags_of_one_size_are_not_compared_with_each_row():
    bag = nn.EmbeddingBag(100, 8, mode="mean")
    graph = check(bag, i(100, 16, 4))
    assert max(len(v.shape) for v in graph.vertices.values()) == 3
    weights = r(16, 4)
    module = nn.EmbeddingBag(100, 8, mode="sum")
    check(lambda w, k, by: F.embedding_bag(k, w, per_sample_weights=by, mode="sum"),
          module.weight.detach(), i(100, 16, 4), weights)  # fmt: skip


def test_repetitions():
    times = torch.tensor([2, 0, 3, 1])
    check(lambda x, n: x.repeat_interleave(n, 0, output_size=6), r(4, 3), times)
    check(lambda x, n: x.repeat_interleave(n, 1, output_size=6), r(3, 4), times)
    check(lambda x, n: x.repeat_interleave(n, output_size=6), r(2, 2), times)
    check(lambda n: torch.repeat_interleave(n, output_size=6), times)
    check(lambda x: x.repeat_interleave(3, 1, output_size=6), r(4, 2))
    with pytest.raises(ed.GraphError, match="output_size"):
        ed.from_torch(lambda x, n: x.repeat_interleave(n, 0), (r(4, 3), times))


def test_histograms():
    check(lambda x: torch.histc(x, bins=4, min=0, max=3), i(6, 20).float())
    check(lambda x: torch.histc(x, bins=5, min=-1, max=1.5), r(30))
    with pytest.raises(ed.GraphError, match="min and max"):
        ed.from_torch(lambda x: torch.histc(x, bins=5), r(30))


@pytest.mark.parametrize("ends", [[3, 3, 7, 8], [0, 8, 8, 8], [2, 4, 6, 8]])
def test_products_by_group(ends):
    x, matrices = r(8, 16).bfloat16(), r(4, 16, 8).bfloat16()
    offsets = torch.tensor(ends, dtype=torch.int32)
    check(lambda x, w, ends: torch._grouped_mm(x, w, ends), x, matrices, offsets, rtol=2e-2)


def test_complex_numbers():
    def turned(x, angle):
        wave = torch.polar(torch.ones_like(angle), angle)
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        made = pairs * wave[None] * torch.complex(angle, x[0, :, :2]).conj()
        return torch.view_as_real(made).flatten(-2), made.real, made.imag, made.abs()

    check(turned, r(2, 3, 4), r(3, 2, seed=1))
