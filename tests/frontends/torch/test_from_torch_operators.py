"""Operators of PyTorch, imported and evaluated, against PyTorch itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import nn

import eindecomp as ed


def check(function, *inputs, rtol=1e-5, atol=1e-6):
    """Import a module or function and compare its outputs, and their types, with torch's."""
    module = function.eval() if isinstance(function, nn.Module) else function
    graph = ed.from_torch(module, inputs)
    with torch.no_grad():
        expected = module(*inputs)
    weights = ed.torch_weights(module, graph) if isinstance(module, nn.Module) else {}
    names = [v.name for v in graph.inputs if v.name not in weights]
    given = dict(zip(names, (x for x in inputs if isinstance(x, torch.Tensor)), strict=True))
    found = ed.evaluate(graph, {**weights, **given})
    expected = expected if isinstance(expected, tuple | list) else (expected,)
    assert len(found) == len(expected)
    for array, tensor in zip(found.values(), expected, strict=True):
        assert array.dtype.name == str(tensor.dtype).removeprefix("torch.")
        if tensor.dtype == torch.bfloat16:
            array, tensor = array.astype("float32"), tensor.float()
        np.testing.assert_allclose(array, tensor.numpy(), rtol=rtol, atol=atol)
    return graph


def r(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def i(high, *shape, seed=0):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed))


X = torch.tensor([-3.0, -1.5, -0.5, -1e-4, 0.0, 1e-4, 0.4, 0.5, 1.0, 2.5, 3.5, 30.0])
ODD = torch.tensor([-torch.inf, -2.0, -0.0, 0.5, 7.0, torch.inf, torch.nan, 1e9])

UNARY = [
    torch.exp, torch.sin, torch.cos, torch.tan, torch.tanh, torch.erf, torch.sigmoid, torch.abs,
    torch.neg, torch.sign, torch.square, torch.reciprocal, torch.expm1, torch.exp2, torch.sinh,
    torch.cosh, F.relu, F.silu, F.gelu, F.elu, F.selu, F.leaky_relu, F.hardtanh, F.softplus, F.mish,
    F.hardswish, F.hardsigmoid, F.relu6, F.logsigmoid, F.softsign, F.celu, F.tanhshrink,
    torch.floor, torch.ceil, torch.round, torch.trunc, torch.frac, torch.isnan, torch.isfinite,
    torch.isinf, torch.logical_not, torch.rad2deg,
]  # fmt: skip


@pytest.mark.parametrize("function", UNARY, ids=lambda f: f.__name__)
def test_functions_of_one_tensor(function):
    # On some CPUs torch's own gelu(-3) is off by 5e-7.
    check(function, X, rtol=2e-6, atol=1e-6 if function is F.gelu else 4e-7)


@pytest.mark.parametrize(
    "function",
    [torch.log, torch.log2, torch.log10, torch.sqrt, torch.rsqrt, torch.log1p],
    ids=lambda f: f.__name__,
)
def test_functions_of_positive_numbers(function):
    check(function, torch.tensor([1e-8, 1e-4, 0.3, 1.0, 2.0, 1e6]), rtol=2e-6, atol=0)


@pytest.mark.parametrize(
    "function",
    [torch.floor, torch.ceil, torch.round, torch.trunc, torch.isnan, torch.isinf, torch.isfinite,
     torch.relu, torch.nan_to_num, torch.sign, torch.log1p, torch.expm1],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_infinities_and_nan(function):
    check(function, ODD)


def test_accuracy_near_zero():
    small = torch.logspace(-30, -1, 30)
    check(lambda x: (torch.expm1(x), torch.log1p(x)), small, rtol=5e-7, atol=0)


BINARY = {
    "add": lambda x, y: x + y,
    "alpha": lambda x, y: torch.add(x, y, alpha=3),
    "sub": lambda x, y: x - 2 * y,
    "rsub": lambda x, y: 1.5 - x * y,
    "div": lambda x, y: x / (y + 10),
    "div_floor": lambda x, y: torch.div(x, y + 10, rounding_mode="floor"),
    "div_trunc": lambda x, y: torch.div(x, y - 10, rounding_mode="trunc"),
    "remainder": lambda x, y: x % (y + 10),
    "fmod": lambda x, y: torch.fmod(x, y - 10),
    "pow": lambda x, y: (x.abs() ** y.clamp(0, 2), x**2, x**3, x.abs() ** 0.5, 2.0**y),
    "compare": lambda x, y: (x < y, x <= y, x > 0.1, x >= y, x == y, x != y),
    "maximum": lambda x, y: (torch.maximum(x, y), torch.minimum(x, y), torch.fmax(x, y)),
    "where": lambda x, y: (torch.where(x > y, x, y), torch.where(x > 0, 1.0, y)),
    "clamp": lambda x, y: (x.clamp(-0.5, 0.5), x.clamp(min=0), torch.clamp(x, max=y)),
    "logic": lambda x, y: ((x > 0) & (y > 0), (x > 0) | (y > 0), (x > 0) ^ (y > 0), ~(x > 0)),
    "masked_fill": lambda x, y: x.masked_fill(y > 0, float("-inf")),
    "lerp": lambda x, y: (torch.lerp(x, y, 0.3), torch.lerp(x, y, y.sigmoid())),
    "addcmul": lambda x, y: (torch.addcmul(x, y, y, value=0.5), torch.addcdiv(x, y, y + 10)),
    "outer": lambda x, y: torch.outer(x[0], y[0]),
    "logaddexp": lambda x, y: torch.logaddexp(x, y),
}


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_tensors(name):
    check(BINARY[name], r(3, 4), r(3, 4, seed=1), atol=1e-5)


def test_types_are_promoted_as_in_torch():
    whole, low, wide = i(9, 3, 2), r(3, 2).to(torch.bfloat16), r(3, 2, seed=1).double()
    check(lambda a, b, c: (a + b, a / 2, b * c, a + 1.5, b + 2, a // 2, a * True), whole, low, wide)
    check(lambda a, b: (a + b.sum(), (a > 0) + 1, a.to(torch.int32) * b.to(torch.int8)), whole, low)
    check(lambda a: (a.float().to(torch.int64), (a - 4.7).int(), a.bool(), a.type_as(a > 0)), whole)
    check(lambda a: (a % 4, -a % 4, torch.div(-a, 4, rounding_mode="trunc"), a**2), whole)


SHAPES = {
    "view": lambda x: (x.view(6, 4), x.reshape(2, 12), x.flatten(1), x.unflatten(2, (2, 2))),
    "transpose": lambda x: (x.transpose(0, 2), x.permute(2, 0, 1), x.mT, x.movedim(0, 2)),
    "merge": lambda x: (x.transpose(1, 2).reshape(2, 12), x.permute(2, 1, 0).reshape(-1)),
    "squeeze": lambda x: (x[:1].squeeze(0), x.unsqueeze(1), x.unsqueeze(-1).squeeze(), x[:, :1]),
    "expand": lambda x: (x[:, :1].expand(2, 5, 4), x.unsqueeze(0).expand(3, 2, 3, 4) * 1),
    "slice": lambda x: (x[:, 1:], x[..., ::2], x[:, -2:, :3], x[1], x[:, 2], x[..., -1]),
    "split": lambda x: (*x.split(2, 2), *x.split([1, 2], 1), *x.chunk(2, 2), *x.unbind(1)),
    "cat": lambda x: (torch.cat([x, x * 2], 1), torch.stack([x, x + 1], -1), torch.cat([x, x])),
    "repeat": lambda x: (x.repeat(2, 1, 3), x.repeat_interleave(2, 1), torch.tile(x, (2,))),
    "flip": lambda x: (x.flip(1), x.flip([0, 2]), x.roll(1, 2), x.roll((1, -1), (0, 1)), x.roll(5)),
    "pad": lambda x: (F.pad(x, (1, 2)), F.pad(x, (0, 1, 2, 0), value=3.0), F.pad(x, (-1, 1))),
    "pad_mode": lambda x: (
        F.pad(x, (1, 2), mode="reflect"), F.pad(x, (2, 1), mode="replicate"),
        F.pad(x, (1, 1), mode="circular"),
    ),
    "triangle": lambda x: (x.tril(), x.triu(1), x.tril(-1)),
    "diagonal": lambda x: (x.diagonal(0, 1, 2), x.diagonal(1, 1, 2), torch.diff(x, dim=1)),
    "glu": lambda x: F.glu(x, 2),
    "unfold": lambda x: x.unfold(2, 2, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name):
    check(SHAPES[name], r(2, 3, 4))


REDUCTIONS = {
    "sum": lambda x: (x.sum(), x.sum(1), x.sum((0, 2), keepdim=True), (x > 0).sum(1)),
    "mean": lambda x: (x.mean(), x.mean(-1), x.mean((0, 1), keepdim=True)),
    "max": lambda x: (x.amax(1), x.amin((0, 2)), x.max(), x.min(), *x.max(1), *x.min(2, True)),
    "arg": lambda x: (x.argmax(1), x.argmin(), x.argmax(2, keepdim=True)),
    "prod": lambda x: (x.prod(), x.prod(1), (x > 0).any(), (x > 0).all(1), (x > 9).any(2)),
    "var": lambda x: (x.var(), x.std(1), x.var(2, unbiased=False), *torch.var_mean(x, 1)),
    "norm": lambda x: (x.norm(), x.norm(dim=1), x.norm(1, 2), x.norm(3, 1), x.norm(torch.inf, 0)),
    "logsumexp": lambda x: (x.logsumexp(1), torch.logsumexp(x, (0, 2), keepdim=True)),
    "cumsum": lambda x: (x.cumsum(1), (x > 0).cumsum(-1), x.cumprod(2)),
    "softmax": lambda x: (x.softmax(1), F.log_softmax(x, -1), F.softmin(x, 0)),
    "normalize": lambda x: (F.normalize(x, dim=1), F.cosine_similarity(x, x + 1, dim=2)),
    "count": lambda x: torch.count_nonzero(x > 0, dim=1),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    check(REDUCTIONS[name], r(2, 3, 4), atol=1e-5)


def test_sorting_with_ties_and_nan():
    x = torch.tensor([[3.0, 1.0, 3.0, -2.0, 0.0], [torch.nan, 1.0, -torch.inf, 1.0, 2.0]])
    check(lambda x: (*x.sort(stable=True), *x.sort(dim=0, descending=True, stable=True)), x)
    check(lambda x: x.argsort(dim=0, stable=True), x)
    check(lambda x: (*x.topk(4), *x.topk(2, dim=0, largest=False)), r(4, 6))


PRODUCTS = {
    "matmul": lambda x, y: (x @ y.mT, x[0] @ y[1].T, x @ y[0, 0], x[0, 0] @ y[1].T),
    "mm": lambda x, y: (torch.mm(x[0], y[0].T), torch.bmm(x, y.mT), torch.mv(x[0], y[0, 0])),
    "addmm": lambda x, y: (
        torch.addmm(x[0, :, :3], x[0], y[0].T, alpha=2, beta=0.5),
        torch.baddbmm(x[:, :, :3], x, y.mT),
        torch.dot(x[0, 0], y[0, 0]),
    ),
    "einsum": lambda x, y: (
        torch.einsum("bij,bkj->bik", x, y), torch.einsum("bij,bkj", x, y),
        torch.einsum("...j,kj->...k", x, y[0]), torch.einsum("bii->b", x[:, :, :3]),
        torch.einsum("ij,kj,kl->il", x[0], y[0], y[1]),
    ),
    "tensordot": lambda x, y: (
        torch.tensordot(x, y, dims=([2], [2])), torch.tensordot(x[0], y[0].T, 1),
    ),
    "linear": lambda x, y: (F.linear(x, y[0]), F.linear(x, y[0], y[0, :, 0])),
    "squared_distance": lambda x, y: ((x.unsqueeze(2) - y.unsqueeze(1)) ** 2).sum(-1),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name):
    check(PRODUCTS[name], r(2, 3, 4), r(2, 3, 4, seed=1), atol=1e-5)


INDEXING = {
    "embedding": lambda x, k: (F.embedding(k, x[0]), F.embedding(k, x[0], padding_idx=0)),
    "select": lambda x, k: (x.index_select(1, k[0]), x[:, k[0]], x[k % 2], x[k % 2, k]),
    "negative": lambda x, k: (x[:, k[0] - 3], x[[0, 1], [-1, 2]]),
    "apart": lambda x, k: (x[k[0] % 2, :, k[0]], x[:, :, k], x[torch.arange(2), k[:, 0]]),
    "gather": lambda x, k: (x[0].gather(0, k), x[0].gather(1, k), x[1].take_along_dim(k[:, :1], 0)),
    "one_hot": lambda x, k: (F.one_hot(k, 5), x),
    "scatter_add": lambda x, k: (
        x[0].scatter_add(0, k, x[1]), torch.zeros(4, 4).scatter_add(1, k, x[1]),
    ),
    "scatter": lambda x, k: (
        torch.zeros(2, 4).scatter(1, k[:, :1], 1.0), x[0].scatter(0, k[:1], x[1]),
    ),
    "index_add": lambda x, k: (
        x[0].index_add(0, k[0], x[1].repeat(2, 1)[:3], alpha=2), x[0].index_fill(0, k[0, :1], 7.0),
    ),
    "index_put": lambda x, k: (
        torch.index_put(x[0], (k[0],), x[1, 0], accumulate=True),
        torch.index_put(x[0], (k[0, :1], k[0, :1]), torch.tensor(5.0)),
        x.masked_fill(x > 0, 0.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", INDEXING)
def test_indexing(name):
    check(INDEXING[name], r(2, 3, 4), i(3, 2, 3))


def test_writing_in_place_is_made_functional():
    def written(x):
        y = x.clone()
        y[:, 1:3] += 1
        y[0] = 5
        y[y > 2] = 0
        return y, torch.slice_scatter(x, x[:, :2] * 2, 1, 1, 3)

    check(written, r(3, 4))

    def at_indices(x, k):
        y = x.clone()
        y[:, k] = y[:, k] * 2
        y[k, :, k] = 7
        y[:, k, k] = x[:, 0, 0][:, None]
        y[:, :, k] += 1
        return y

    check(at_indices, r(5, 4, 4), torch.tensor([0, 2, -1]))


NORMS = {
    "layer": nn.LayerNorm(8), "layer_plain": nn.LayerNorm((4, 8), elementwise_affine=False),
    "rms": nn.RMSNorm(8, eps=1e-5), "group": nn.GroupNorm(3, 6), "instance": nn.InstanceNorm1d(6),
    "batch": nn.BatchNorm1d(6), "softmax": nn.Softmax(1), "pool": nn.AdaptiveAvgPool1d(2),
    "prelu": nn.PReLU(6), "dropout": nn.Dropout(0.5),
}  # fmt: skip


@pytest.mark.parametrize("name", NORMS)
def test_normalizations(name):
    x = r(2, 6, 4, 8) if name.startswith("layer") or name == "rms" else r(2, 6, 8)
    check(NORMS[name], x, atol=1e-5)


@pytest.mark.parametrize("name", ["layer", "rms", "softmax"])
def test_low_precision_is_summed_in_float32(name):
    module = {"layer": nn.LayerNorm(64), "rms": nn.RMSNorm(64), "softmax": nn.Softmax(-1)}[name]
    check(module.to(torch.bfloat16), r(3, 64).to(torch.bfloat16), rtol=1e-2, atol=1e-2)


CONVOLUTIONS = [
    (nn.Conv2d(3, 4, 2, stride=2), (2, 3, 4, 6)),
    (nn.Conv2d(3, 4, 3, padding=1), (2, 3, 5, 6)),
    (nn.Conv2d(4, 6, (1, 3), stride=(2, 1), dilation=(1, 2), groups=2), (2, 4, 5, 7)),
    (nn.Conv2d(3, 4, 3, padding="same", bias=False), (3, 5, 5)),
    (nn.Conv1d(4, 4, 3, groups=4, padding=2), (2, 4, 7)),
    (nn.Conv3d(2, 3, 2), (1, 2, 3, 3, 4)),
    (nn.MaxPool2d(2), (2, 3, 5, 6)),
    (nn.MaxPool2d(3, stride=2, padding=1), (2, 3, 5, 6)),
    (nn.AvgPool2d(3, stride=1, padding=1), (2, 3, 5, 6)),
    (nn.AvgPool2d(2, padding=1, count_include_pad=False), (2, 3, 4, 6)),
    (nn.AdaptiveAvgPool2d(1), (2, 3, 4, 6)),
    (nn.AdaptiveAvgPool2d((3, 2)), (2, 3, 4, 6)),
    (nn.Upsample(scale_factor=2), (1, 2, 3, 4)),
    (nn.PixelShuffle(2), (1, 8, 3, 3)),
]


@pytest.mark.parametrize(("module", "shape"), CONVOLUTIONS, ids=lambda x: type(x).__name__)
def test_convolutions_and_pools(module, shape):
    check(module, r(*shape), atol=1e-5)


LOSSES = {
    "mse": lambda x, y, _: (F.mse_loss(x, y), F.mse_loss(x, y, reduction="sum"), F.l1_loss(x, y)),
    "cross_entropy": lambda x, y, k: (
        F.cross_entropy(x, k), F.cross_entropy(x, k, reduction="none"),
        F.cross_entropy(x, k, ignore_index=1), F.cross_entropy(x, k, label_smoothing=0.1),
        F.cross_entropy(x, k, y[0].exp()), F.cross_entropy(x, y.softmax(1), reduction="sum"),
    ),
    "nll": lambda x, y, k: (
        F.nll_loss(x.log_softmax(1), k), F.nll_loss(x, k, y[0].exp(), ignore_index=2),
    ),
    "others": lambda x, y, _: (
        F.binary_cross_entropy_with_logits(x, y.sigmoid()), F.smooth_l1_loss(x, y),
        F.binary_cross_entropy_with_logits(90 * x, y.sigmoid(), y[0].exp(), pos_weight=x[1].exp()),
        F.huber_loss(x, y), F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    check(LOSSES[name], r(5, 4), r(5, 4, seed=1), i(4, 5), atol=1e-5)


def test_losses_of_sequences():
    check(lambda x, k: F.cross_entropy(x, k), r(2, 4, 5), i(4, 2, 5))
    target = torch.tensor([1, -100, 3, -100])
    check(lambda x, k: F.cross_entropy(x, k), r(4, 6), target)


def attend(**options):
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options)


ATTENTION = {
    "plain": attend(),
    "causal": attend(is_causal=True),
    "scale": attend(scale=0.3),
    "bool": lambda q, k, v: attend(attn_mask=q[0, 0] @ k[0, 0].T > -9)(q, k, v),
    "float": lambda q, k, v: attend(attn_mask=q[:, :1] @ k[:, :1].mT)(q, k, v),
    "by_hand": lambda q, k, v: ((q @ k.mT) / 2 + torch.ones(5, 5).triu(1) * -1e9).softmax(-1) @ v,
    "filled": lambda q, k, v: (
        (q @ k.mT).masked_fill(torch.ones(5, 5).tril() == 0, -torch.inf).softmax(-1) @ v
    ),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_found(name):
    from eindecomp.graph.patterns.attention import find_attention

    q, k, v = (r(2, 3, 5, 4, seed=n) for n in range(3))
    graph = check(ATTENTION[name], q, k, v, atol=1e-5)
    assert len(find_attention(graph)) == 1
    assert len(find_attention(ed.rewrite(graph))) == 1


def test_grouped_queries():
    function = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True)  # noqa: E731
    graph = check(function, r(2, 6, 5, 4), r(2, 2, 5, 4, seed=1), r(2, 2, 5, 4, seed=2), atol=1e-5)
    assert all(v.elements <= 2 * 6 * 5 * 5 for v in graph.vertices.values())


BLIND = torch.ones(5, 5).tril().bool() & (torch.arange(5) != 2)[:, None]
MASKS = {
    "truth": BLIND,
    "shares": torch.zeros(2, 1, 5, 5).masked_fill(~BLIND, -torch.inf),
    "keys": torch.tensor([[True] * 5, [False] * 5])[:, None, None],
}


@pytest.mark.parametrize("name", MASKS)
def test_queries_that_see_no_key_give_zeros(name):
    from eindecomp.graph.patterns.attention import find_attention

    function = lambda q, k, v, mask: q + attend(attn_mask=mask)(q, k, v)  # noqa: E731
    inputs = [*(r(2, 3, 5, 4, seed=n) for n in range(3)), MASKS[name]]
    graph = check(function, *inputs, atol=1e-5)
    assert len(find_attention(ed.rewrite(graph))) == 1
    result = ed.run(
        ed.plan(graph, devices=4), dict(zip("qkv", inputs, strict=False)) | {"mask": MASKS[name]}
    )
    np.testing.assert_allclose(result["out"], function(*inputs), rtol=1e-5, atol=1e-5)


def test_masks_of_indices_alone_are_known_to_let_queries_see():
    places = torch.arange(5)
    inputs = [r(2, 3, 5, 4, seed=n) for n in range(3)]
    seeing = check(lambda q, k, v: attend(attn_mask=places[:, None] >= places)(q, k, v), *inputs)
    blind = check(lambda q, k, v: attend(attn_mask=places[:, None] > places)(q, k, v), *inputs)
    assert len(seeing) < len(blind)


def test_softmax_that_is_safe():
    x = torch.tensor([[0.0, 1.0], [-torch.inf, 2.0], [-torch.inf, -torch.inf]])
    check(lambda x: torch.ops.aten._safe_softmax(x, -1), x)


MODULES = {
    "lstm": (nn.LSTM(3, 4, 2, batch_first=True), (2, 5, 3)),
    "gru": (nn.GRU(3, 4), (5, 2, 3)),
    "rnn": (nn.RNN(3, 4, bidirectional=True), (5, 2, 3)),
    "heads": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    module, shape = MODULES[name]

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = module

        def forward(self, x):
            found = self.inner(x)
            return found[0] if isinstance(found, tuple) else found

    check(Whole(), r(*shape), atol=1e-5)


def test_constants_are_formulas():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]), persistent=False)
            self.register_buffer("kept", torch.tensor([1.0, 2.0, 3.0]))

        def forward(self, x):
            ranges = torch.arange(3) * 2 + torch.tensor([1, 5, 2])
            return (x - self.mean) * self.kept + ranges

    graph = check(Scaled(), r(4, 3))
    assert [v.name for v in graph.inputs] == ["kept", "x"]


@pytest.mark.filterwarnings("ignore:var")
def test_no_elements():
    none = torch.zeros(0, 3)
    check(lambda x: (x.sum(0), x.mean(0), x.mean(), x.var(0), x.prod(), x.flip(0)), none)
    check(lambda x: (x.flip(0), torch.tril_indices(3, 3) + x), torch.tensor(2.5))


def test_float64_keeps_its_precision():
    large = torch.tensor([1e10 + 0.5, -1e10 - 0.5, 8388608.5, 2.0**52 - 0.5], dtype=torch.float64)
    check(lambda x: torch.div(x, 1.0, rounding_mode="trunc"), large, rtol=0, atol=0)
    small = torch.full((3, 8), 1e-12, dtype=torch.float64)
    check(nn.RMSNorm(8).double(), small, rtol=1e-12, atol=0)


def test_grids():
    x, y = r(3), r(2, seed=1)
    check(lambda x, y: (*torch.meshgrid(x, y, indexing="ij"), x), x, y)
    check(lambda x, y: torch.meshgrid(x, y, x, indexing="xy"), x, y)


def test_creation():
    check(
        lambda x: (
            torch.zeros(2, 3) + x,
            torch.full((3,), 2.5) * x, torch.ones_like(x), torch.eye(3) @ x.T,
            torch.arange(1, 7, 2), torch.linspace(0, 1, 5), x.new_full((2,), 3), torch.arange(3.0),
        ),
        r(2, 3),
    )  # fmt: skip
