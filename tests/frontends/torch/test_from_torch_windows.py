"""Convolutions, pools, padding and shifts import as windows, have gradients, and can be cut."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from test_from_torch_operators import check, r
from torch import nn

import eindecomp as ed
from eindecomp.graph.ops import Concat, Gather

MODULES = [
    (nn.Conv1d(4, 6, 3, padding=1, stride=2), (2, 4, 9)),
    (nn.Conv1d(2, 3, 1, padding=1), (1, 2, 1)),
    (nn.Conv2d(4, 8, 3, groups=2, padding=(0, 2), dilation=2, bias=False), (2, 4, 9, 8)),
    (nn.Conv2d(4, 4, 3, groups=4, padding=1), (1, 4, 5, 6)),
    (nn.Conv2d(4, 8, 3, groups=4, stride=2), (2, 4, 5, 6)),
    (nn.Conv2d(3, 2, 3, padding=1, padding_mode="replicate"), (1, 3, 4, 5)),
    (nn.Conv2d(3, 2, 3, padding=1, padding_mode="circular"), (1, 3, 4, 5)),
    (nn.Conv3d(2, 3, 2, stride=(1, 2, 1), padding=1), (1, 2, 4, 5, 3)),
    (nn.ConvTranspose1d(4, 6, 3, stride=3, dilation=2), (2, 4, 5)),
    (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), (2, 4, 5, 6)),
    (nn.ConvTranspose2d(4, 4, 2, 2, groups=4, bias=False), (1, 4, 3, 3)),
    (nn.ConvTranspose3d(2, 3, 2, stride=2), (1, 2, 2, 3, 2)),
    (nn.MaxPool1d(3, 2, dilation=2, padding=1), (1, 2, 9)),
    (nn.MaxPool2d(2, ceil_mode=True), (1, 2, 7, 5)),
    (nn.MaxPool2d(3, 2, 1), (1, 2, 7, 6)),
    (nn.AvgPool2d(3, 2, 1, ceil_mode=True), (1, 2, 6, 8)),
    (nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), (1, 2, 6, 8)),
    (nn.AvgPool3d(2, divisor_override=3), (1, 1, 2, 4, 5)),
    (nn.Unfold((2, 3), padding=1, stride=2, dilation=(1, 2)), (1, 2, 6, 8)),
    (nn.Sequential(nn.ZeroPad2d((0, 1, 2, 1)), nn.Conv2d(2, 3, 3, stride=2)), (1, 2, 6, 7)),
]
FUNCTIONS = {
    "pad": lambda x: (F.pad(x, (1, 2)), F.pad(x, (0, 1, 2, -1), value=3.0)),
    "replicate": lambda x: F.pad(x, (2, 1), mode="replicate"),
    "circular": lambda x: F.pad(x, (2, 3), mode="circular"),
    "roll": lambda x: (x.roll(1, 2), x.roll((1, -1), (0, 1)), (x > 0).roll(2, 2)),
    "flip": lambda x: x.flip([0, 2]),
    "steps": lambda x: (x[..., ::2], x[:, 1::2], x[:, ::2, 1::2], x[:, torch.arange(0, 3, 2)]),
    "of parts": lambda x: (x[:, 1:, 1:].roll(1, 2), F.pad(x[:, :2], (1, 1))[..., ::2]),
    "unfold": lambda x: (x.unfold(2, 3, 1), x.unfold(2, 2, 2)),
    "stencil": lambda x: x[..., :-2] - 2 * x[..., 1:-1] + x[..., 2:],
}


def moved(graph):
    """The vertices that look rows up or join tensors end to end."""
    return [v for v in graph.vertices.values() if isinstance(v.op, Gather | Concat)]


@pytest.mark.parametrize(("module", "shape"), MODULES, ids=lambda x: type(x).__name__)
def test_modules_that_read_windows(module, shape):
    graph = ed.rewrite(check(module, r(*shape), atol=1e-5))
    assert ed.parse(str(graph)) == graph
    assert not moved(graph)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_shifts_steps_and_padding(name):
    graph = ed.rewrite(check(FUNCTIONS[name], r(2, 3, 4)))
    assert ed.parse(str(graph)) == graph
    assert not moved(graph)


def test_a_padded_convolution_is_one_vertex():
    graph = ed.rewrite(ed.from_torch(nn.Conv2d(3, 4, 3, 2, 1, bias=False), r(2, 3, 9, 8)))
    [made] = [v for v in graph.vertices.values() if v.inputs]
    b, c, y, x = made.windows[0].index
    assert (b.alone, c.alone) == ("b", "c")
    assert [[times for _, times in index.terms] for index in (y, x)] == [[2, 1], [2, 1]]
    assert [(index.offset, index.outside) for index in (y, x)] == [(-1, 0), (-1, 0)]


def test_what_is_padded_twice_is_one_window():
    def shifted(x):
        return F.conv1d(F.pad(F.pad(x, (1, 0)), (2, 1))[..., 1:], x.new_ones(1, 2, 3))

    graph = ed.rewrite(check(shifted, r(1, 2, 6)))
    assert [v.inputs for v in graph.vertices.values() if any(v.windows)] == [("x",)]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("module", "shape"), [each for each in MODULES if each[1] != (1, 2, 1)],
                         ids=lambda x: type(x).__name__)  # fmt: skip
def test_gradients_are_those_of_autograd(module, shape):
    x = r(*shape)

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = module

        def forward(self, x):
            return (self.module(x) ** 2).sum()

    loss = Loss()
    graph = ed.from_torch(loss, x)
    weights = ed.torch_weights(loss, graph)
    [given] = [v.name for v in graph.inputs if v.name not in weights]
    step = ed.rewrite(ed.grad(graph, graph.outputs[0], [given, *weights]))
    found = [*ed.evaluate(step, {given: x, **weights}).values()][1:]
    x = x.clone().requires_grad_()
    own = dict(loss.named_parameters())
    expected = torch.autograd.grad(loss(x), [x, *(own[name] for name in weights)])
    for array, tensor in zip(found, expected, strict=True):
        np.testing.assert_allclose(array, tensor.numpy(), rtol=1e-3, atol=1e-3)


class Residual(nn.Module):
    """ResNet's: 3×3 convolutions, and a shortcut of every second row and column."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(4, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 1, 1)
        self.norm, self.short = nn.BatchNorm2d(8), nn.Conv2d(4, 8, 1, 2)

    def forward(self, x):
        return torch.relu(self.norm(self.two(torch.relu(self.one(x)))) + self.short(x))


class Up(nn.Module):
    """UNet's: a transposed convolution beside what was there on the way down."""

    def __init__(self):
        super().__init__()
        self.up, self.after = nn.ConvTranspose2d(4, 2, 2, 2), nn.Conv2d(6, 2, 3, padding=1)

    def forward(self, x):
        return self.after(torch.cat([x, self.up(F.max_pool2d(x, 2))], 1))


class ConvNext(nn.Module):
    """ConvNeXt's: depthwise 7×7, norm over channels, two linear layers."""

    def __init__(self):
        super().__init__()
        self.deep, self.norm = nn.Conv2d(4, 4, 7, padding=3, groups=4), nn.LayerNorm(4)
        self.wide, self.back = nn.Linear(4, 16), nn.Linear(16, 4)

    def forward(self, x):
        y = self.norm(self.deep(x).permute(0, 2, 3, 1))
        return x + self.back(F.gelu(self.wide(y))).permute(0, 3, 1, 2)


class Efficient(nn.Module):
    """EfficientNet's: depthwise with a stride, squeezed and excited."""

    def __init__(self):
        super().__init__()
        self.wide, self.deep = nn.Conv2d(4, 8, 1), nn.Conv2d(8, 8, 3, 2, 1, groups=8)
        self.squeeze, self.excite = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)
        self.back = nn.Conv2d(8, 4, 1)

    def forward(self, x):
        y = F.silu(self.deep(F.silu(self.wide(x))))
        scale = self.excite(F.silu(self.squeeze(F.adaptive_avg_pool2d(y, 1))))
        return self.back(y * scale.sigmoid())


class Causal(nn.Module):
    """Mamba's: a depthwise convolution of the past."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 4, groups=4, padding=3)

    def forward(self, x):
        return F.silu(self.conv(x.transpose(1, 2))[..., : x.shape[1]])


BLOCKS = [
    (Residual, (2, 4, 12, 10)),
    (Up, (2, 4, 8, 6)),
    (ConvNext, (2, 4, 9, 8)),
    (Efficient, (2, 4, 8, 9)),
    (Causal, (2, 10, 4)),
]


@pytest.mark.parametrize(("block", "shape"), BLOCKS, ids=lambda x: getattr(x, "__name__", ""))
def test_blocks_of_models_have_no_gathers_and_no_padding_by_concats(block, shape):
    graph = ed.rewrite(check(block(), r(*shape), atol=1e-5))
    assert any(vertex.windows for vertex in graph.vertices.values())
    assert len(moved(graph)) == (block is Up)  # it joins channels


LARGE = [(Residual, (4, 512, 512), "yx"), (Up, (4, 512, 512), "yx"),
         (ConvNext, (4, 512, 512), "yx"), (Efficient, (4, 512, 512), "yx"),
         (Causal, (16384, 4), "cxn")]  # fmt: skip


@pytest.mark.parametrize(
    ("block", "size", "least"), LARGE, ids=lambda x: getattr(x, "__name__", "")
)
@pytest.mark.parametrize("batch", [1, 16])
def test_blocks_are_cut_in_batch_channels_or_space(block, size, least, batch):
    with torch.device("meta"):
        module = block().eval()
    graph = ed.from_torch(module, torch.zeros(batch, *size, device="meta"))
    plan = ed.plan(graph, 8, inputs="sharded", time_limit=20)
    large = {v.name for v in plan.graph.vertices.values() if any(v.windows) and v.elements > 2**14}
    cuts = {label[0] for name in large for label, pieces in plan.parts[name].items() if pieces > 1}
    assert cuts
    assert cuts <= {*("b" if batch > 1 and "y" in least else least), *("b" * (batch > 1))}
    assert plan.cost < plan.graph["x"].elements * 4 / 20
