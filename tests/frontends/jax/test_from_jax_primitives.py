"""Every primitive that is imported: the graph computes what JAX does."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core.primitives import eq_to_p, le_to_p, lt_to_p

import eindecomp as ed
from eindecomp.graph.ops import Concat, Gather


def array(*shape, dtype="float32", low=-2.0, high=2.0):
    rng = np.random.default_rng(sum(shape) + len(shape))
    if np.dtype(dtype).kind in "iu":
        return jnp.asarray(rng.integers(int(low), int(high), shape), dtype)
    if dtype == "bool":
        return jnp.asarray(rng.random(shape) < 0.5)
    return jnp.asarray(rng.uniform(low, high, shape), dtype)


def same(fn, *args, rtol=2e-5, atol=2e-6):
    """Check a function's graph against the function itself."""
    graph = ed.from_jax(fn, *args)
    assert ed.parse(str(graph)) == graph
    found = ed.evaluate(graph, ed.jax_inputs(fn, *args))
    expected = jax.tree.leaves(jax.jit(fn)(*args))
    assert len(found) == len(expected)
    for name, wanted in zip((v.name for v in graph.outputs), expected, strict=True):
        value = found[name]
        assert (value.shape, str(value.dtype)) == (wanted.shape, str(wanted.dtype)), name
        close = np.asarray(value, "complex128"), np.asarray(wanted, "complex128")
        np.testing.assert_allclose(*close, rtol=rtol, atol=atol, err_msg=name)
    return graph


SPECIAL = jnp.array([-jnp.inf, -3.5, -2.5, -1.0, -1e-6, 0.0, 1e-6, 0.5, 1.5, 2.5, 1e9, jnp.inf])
POSITIVE = jnp.array([1e-6, 0.1, 1.0, 2.5, 30.0])

OF_ONE = {
    "neg": lambda x: -x,
    "abs": jnp.abs,
    "sign": jnp.sign,
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "round": jnp.round,
    "round away": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "is_finite": jnp.isfinite,
    "exp": jnp.exp,
    "exp2": lambda x: jnp.exp2(jnp.clip(x, -9, 9)),
    "expm1": lambda x: jnp.expm1(jnp.minimum(x, 50)),
    "tanh": jnp.tanh,
    "logistic": jax.nn.sigmoid,
    "erf": lax.erf,
    "erfc": lax.erfc,
    "square": jnp.square,
    "cbrt": jnp.cbrt,
    "relu": jax.nn.relu,
    "silu": lambda x: jax.nn.silu(jnp.clip(x, -9, 9)),
    "gelu": lambda x: jax.nn.gelu(jnp.clip(x, -9, 9)),
    "exact gelu": lambda x: jax.nn.gelu(jnp.clip(x, -9, 9), approximate=False),
    "softplus": jax.nn.softplus,
    "elu": jax.nn.elu,
    "asinh": jnp.arcsinh,
    "cosh": lambda x: jnp.cosh(jnp.clip(x, -9, 9)),
    "sinh": lambda x: jnp.sinh(jnp.clip(x, -9, 9)),
    "sin and cos": lambda x: (jnp.sin(jnp.clip(x, -9, 9)), jnp.cos(jnp.clip(x, -9, 9))),
    "tan": lambda x: jnp.tan(jnp.clip(x, -1, 1)),
    "atanh": lambda x: jnp.arctanh(jnp.clip(x, -0.9, 0.9)),
    "clip": lambda x: jnp.clip(x, -1, 2),
    "cube": lambda x: jnp.clip(x, -9, 9) ** 3,
    "inverse": lambda x: lax.integer_pow(jnp.where(x == 0, 1, x), -2),
    "to int": lambda x: jnp.clip(x, -99, 99).astype("int32"),
    "to bool": lambda x: x.astype(bool),
    "to bfloat16": lambda x: x.astype("bfloat16"),
    "rounded": lambda x: lax.reduce_precision(jnp.clip(x, -9, 9), 8, 7),
    "nan to num": lambda x: jnp.nan_to_num(x, posinf=7, neginf=3),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", OF_ONE)
def test_functions_of_one_element(name):
    same(OF_ONE[name], SPECIAL)


@pytest.mark.parametrize("fn", [jnp.log, jnp.log1p, jnp.sqrt, lax.rsqrt, jnp.log2, jnp.arccosh])
def test_functions_of_positive_elements(fn):
    same(fn, POSITIVE + 1 if fn is jnp.arccosh else POSITIVE, rtol=1e-6)


def test_small_arguments_keep_their_precision():
    tiny = jnp.array([-1e-9, 1e-12, 3e-8, 1e-4])
    for fn in (jnp.log1p, jnp.expm1, jnp.sinh, jnp.arctanh, jnp.arcsinh):
        same(fn, tiny, rtol=1e-6, atol=0)


OF_TWO = {
    "add": lambda x, y: x + y,
    "div": lambda x, y: x / y,
    "pow": lambda x, y: jnp.abs(x) ** y,
    "rem": lax.rem,
    "mod": jnp.mod,
    "floor_divide": jnp.floor_divide,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "compare": lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y),
    "total order": lambda x, y: tuple(p.bind(x, y) for p in (eq_to_p, le_to_p, lt_to_p)),
    "where": lambda x, y: jnp.where(x < y, x, y),
    "select": lambda x, y: lax.select_n((x > 0).astype("int32") + (y > 0), x, y, x * y),
    "logaddexp": jnp.logaddexp,
    "logical": lambda x, y: ((x > 0) & (y > 0), (x > 0) | (y > 0), (x > 0) ^ (y > 0), ~(x > 0)),
    "hypot": jnp.hypot,
}


@pytest.mark.parametrize("name", OF_TWO)
def test_functions_of_two_elements(name):
    x = jnp.array([-3.0, -2.5, 0.0, 1.0, 2.5, 7.25])
    y = jnp.array([2.0, -1.5, 4.0, 1.0, 2.5, -0.5])
    same(OF_TWO[name], x, y)


def test_integers_divide_and_shift_as_in_c():
    x, y = jnp.array([-7, -6, 0, 5, 9]), jnp.array([2, -4, 3, -2, 4])
    same(lambda x, y: (lax.div(x, y), lax.rem(x, y), x // y, x % y, x**2, ~x), x, y)
    u = jnp.array([1, 7, 200], "uint8")
    same(lambda u: (lax.div(u, jnp.uint8(3)), u >> 2, u << 1, ~u, u % 5), u)
    same(lambda x: (x >> 1, x << 2, x.astype("float32") / 2, jnp.sign(x)), x)


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8"])
def test_integers_at_the_ends_of_their_range(dtype):
    ends = np.iinfo(dtype)
    x = jnp.array([ends.min, ends.max, ends.max - 6, 7, 0, 1], dtype)[:, None]
    y = jnp.array([3, 1, 2, 0, ends.max, 5], dtype)[None]
    same(lambda x, y: (lax.div(*jnp.broadcast_arrays(x, y)), x // y, x % y), x, y)
    same(lambda x, y: lax.rem(*jnp.broadcast_arrays(x, y)), x, y)
    same(lambda x: (x // 3, x % 3, x >> (ends.bits - 1), x >> 1), x)
    if ends.min:
        y = -y
        same(lambda x, y: (lax.div(*jnp.broadcast_arrays(x, y)), x // y, x % y), x, y)
        by = jnp.array([0, 1, ends.bits - 2, ends.bits - 1, ends.bits, -1], dtype)[None]
        same(lambda x, y: lax.shift_right_arithmetic(*jnp.broadcast_arrays(x, y)), x, by)


def test_acosh_of_the_largest_numbers():
    same(jnp.arccosh, jnp.array([1.0, 1.5, 1e10, 3e38]))


def test_complex_numbers():
    x, y = array(3, 4), array(4, 3)
    same(lambda x, y: jnp.abs(lax.complex(x, x + 1) @ lax.complex(y, y * 2)), x, y)
    same(lambda x: (jnp.real(lax.complex(x, x) ** 2), jnp.conj(lax.complex(x, 2 * x))), x)


DOTS = [
    (([1], [0]), ([], []), (3, 4), (4, 5)),
    (([0], [1]), ([], []), (4, 3), (5, 4)),
    (([2], [1]), ([0], [2]), (2, 3, 4), (5, 4, 2)),
    (([1, 3], [0, 2]), ([], []), (2, 3, 4, 5), (3, 2, 5)),
    (([], []), ([], []), (2,), (3,)),
    (([2], [2]), ([0, 1], [1, 0]), (2, 3, 4), (3, 2, 4)),
    (([0], [0]), ([], []), (4,), (4,)),
]


@pytest.mark.parametrize(("contracted", "batch", "first", "second"), DOTS)
def test_dot_general(contracted, batch, first, second):
    same(lambda x, y: lax.dot_general(x, y, (contracted, batch)), array(*first), array(*second))


@pytest.mark.parametrize(("dtype", "wide"), [("bfloat16", "float32"), ("int8", "int32")])
def test_dot_general_sums_in_the_type_preferred(dtype, wide):
    x, y = array(3, 40, dtype=dtype, high=3), array(40, 2, dtype=dtype, high=3)
    same(lambda x, y: jnp.matmul(x, y, preferred_element_type=wide), x, y)


SHAPES = {
    "reshape": lambda x: x.reshape(6, 4).reshape(2, 12),
    "merge after transpose": lambda x: x.transpose(1, 0, 2).reshape(6, 4),
    "expand and squeeze": lambda x: jnp.squeeze(x[:, None] * 2, 1),
    "broadcast": lambda x: jnp.broadcast_to(x[:1], (5, 3, 4)),
    "swap": lambda x: jnp.swapaxes(x, 0, 2),
    "reverse": lambda x: (x[::-1], jnp.flip(x, (0, 2))),
    "slice": lambda x: (x[1:, :2], x[:, ::2], x[..., 1::2], x[-1], x[0, 1:3, ::-1]),
    "concatenate": lambda x: jnp.concatenate([x, x * 2, x[:1]]),
    "stack": lambda x: jnp.stack([x, x + 1], 1),
    "tile": lambda x: jnp.tile(x, (2, 1, 3)),
    "repeat": lambda x: jnp.repeat(x, 3, axis=1),
    "pad": lambda x: jnp.pad(x, ((1, 0), (0, 2), (1, 1)), constant_values=5.0),
    "pad inside": lambda x: lax.pad(x, 1.0, ((0, 0, 1), (-1, 2, 0), (1, -2, 2))),
    "roll": lambda x: jnp.roll(x, 1, axis=1),
    "split": lambda x: jnp.split(x, 2, axis=2),
    "iota": lambda x: x + jnp.arange(4) * 2 - lax.broadcasted_iota("float32", (3, 4), 0),
    "triangle": lambda x: (jnp.tril(x), jnp.triu(x, 1)),
    "eye": lambda x: x @ jnp.eye(4),
    "linspace": lambda x: x * jnp.linspace(0, 1, 4),
    "einsum": lambda x: jnp.einsum("ijk,ilk->jl", x, x + 1),
    "trace": lambda x: jnp.einsum("ijk->k", x),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name):
    same(SHAPES[name], array(2, 3, 4))


def test_shapes_of_nothing():
    same(lambda x: x.reshape(4, 0, 3), array(0, 3, 4))
    same(lambda x: lax.scan(lambda c, a: (c + a, c), x[0], x[:0]), array(2, 3))


REDUCTIONS = {
    "sum": lambda x: (x.sum(), x.sum(1), x.sum((0, 2), keepdims=True)),
    "max and min": lambda x: (x.max(0), x.min(-1), jnp.ptp(x)),
    "prod": lambda x: x.prod(2),
    "any and all": lambda x: ((x > 0).any(1), (x > -1).all(), (x > 0).sum(0)),
    "mean and variance": lambda x: (x.mean(1), x.var(), x.std(0)),
    "argmax": lambda x: (jnp.argmax(x, 1), jnp.argmin(x, -1), jnp.argmax(x)),
    "argmax of equals": lambda x: jnp.argmax(jnp.round(x), 0),
    "logsumexp": lambda x: jax.nn.logsumexp(x, axis=1),
    "softmax": lambda x: (jax.nn.softmax(x, axis=0), jax.nn.log_softmax(x)),
    "masked softmax": lambda x: jax.nn.softmax(x, where=x > 0, axis=-1),
    "norm": lambda x: jnp.linalg.norm(x, axis=2),
    "of what repeats": lambda x: jnp.broadcast_to(x[:1], (5, 3, 4)).sum((0, 2)),
    "of a number": lambda x: x + jnp.ones((3, 4)).sum(),
    "xor": lambda x: lax.reduce_xor((x > 0), (0,)),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    same(REDUCTIONS[name], array(2, 3, 4))


RUNNING = {
    "cumsum": lambda x: (jnp.cumsum(x, 1), jnp.cumsum(x.astype("int32"), 0)),
    "cumprod": lambda x: jnp.cumprod(x, 0),
    "cummax": lambda x: (lax.cummax(x, 1), lax.cummin(x, 0), lax.cummax(x.astype("int32"), 1)),
    "reverse": lambda x: lax.cumsum(x, 1, reverse=True),
    "cumlogsumexp": lambda x: lax.cumlogsumexp(x, 1),
    "sort": lambda x: (jnp.sort(x, 0), jnp.sort(x.astype("int32")), jnp.sort(x, descending=True)),
    "argsort": lambda x: (jnp.argsort(x, 1), jnp.argsort(jnp.round(x), 1)),
    "two keys": lambda x: lax.sort((jnp.round(x), x * x, x), num_keys=2),
    "top_k": lambda x: (*lax.top_k(x, 2), *lax.top_k(x.astype("int32"), 3)),
    "median": lambda x: jnp.median(x, axis=1),
}


@pytest.mark.parametrize("name", RUNNING)
def test_running_aggregations_and_orders(name):
    same(RUNNING[name], array(4, 5))


WHICH = jnp.array([2, 0, 3, 2])
INDEXING = {
    "row": lambda x, i: x[i[0]],
    "rows": lambda x, i: x[i],
    "take": lambda x, i: (jnp.take(x, i, axis=0), jnp.take(x, i, axis=1)),
    "negative": lambda x, i: x[i - 4],
    "matrix": lambda x, i: x[i.reshape(2, 2)],
    "clipped": lambda x, i: jnp.take(x, i + 2, axis=1, mode="clip"),
    "along": lambda x, i: jnp.take_along_axis(x, i[:, None] % 3, axis=1),
    "pairs": lambda x, i: x[i, (i + 1) % 3],
    "count and column": lambda x, i: x[jnp.arange(4), i],
    "outer": lambda x, i: x[i[:, None], i[None, :2]],
    "part": lambda x, i: x[i, 1:3],
    "middle": lambda x, i: x.reshape(2, 2, 6)[:, i % 2],
    "one hot": lambda x, i: jax.nn.one_hot(i, 6) @ x.T,
    "dynamic slice": lambda x, i: lax.dynamic_slice(x, (i[0], i[1]), (2, 3)),
    "dynamic slice in dim": lambda x, i: lax.dynamic_slice_in_dim(x, i[0], 3, axis=1),
    "dynamic index": lambda x, i: lax.dynamic_index_in_dim(x, i[2], 0, keepdims=False),
    "windows": lambda x, i: jax.vmap(lambda k: lax.dynamic_slice_in_dim(x, k, 2, 0))(i),
    "update": lambda x, i: lax.dynamic_update_slice(x, x[:2, :3] * 0, (i[0], i[1])),
    "fixed update": lambda x, _: lax.dynamic_update_slice(x, x[:2, :3] * 0, (1, 2)),
    "set row": lambda x, i: x.at[i[0]].set(7.0),
    "set fixed": lambda x, _: (x.at[1].set(0.0), x.at[:, 2:4].set(1.0), x.at[0, 1].add(3.0)),
    "set rows": lambda x, i: x.at[i].set(jnp.arange(24.0).reshape(4, 6)),
    "add rows": lambda x, i: x.at[i].add(jnp.arange(24.0).reshape(4, 6)),
    "add pairs": lambda x, i: x.at[i, i].add(jnp.arange(4.0)),
    "set pairs": lambda x, i: x.at[i, (i + 1) % 4].set(jnp.arange(4.0)),
    "subtract": lambda x, i: (x.at[i].subtract(x[:1]), x.at[i[0]].subtract(2.0)),
    "multiply": lambda x, i: x.at[i].multiply(2.0),
    "larger": lambda x, i: (x.at[i].max(0.5), x.at[:, i].min(0.1)),
    "add columns": lambda x, i: x.at[:, i].add(1.0),
    "add one each": lambda x, i: x.at[jnp.arange(4), i].add(1.0),
    "set one each": lambda x, i: x.at[jnp.arange(4), i].set(9.0),
    "segments": lambda x, i: jax.ops.segment_sum(x, i, num_segments=5),
    "bincount": lambda x, i: jnp.bincount(i, length=5) + x[0, 0].astype("int32"),
    "gradient of along": lambda x, i: jax.grad(
        lambda x: (jnp.take_along_axis(x, i[:, None], axis=1) ** 2).sum()
    )(x),
    "gradient of rows": lambda x, i: jax.grad(lambda x: (x[i] ** 2).sum())(x),
    "gradient of a slice": lambda x, i: jax.grad(
        lambda x: (lax.dynamic_slice(x, (i[0], 1), (2, 3)) ** 2).sum()
    )(x),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", INDEXING)
def test_indexing(name):
    same(INDEXING[name], array(4, 6), WHICH)


CONVOLUTIONS = {
    "same": lambda x, w: lax.conv(x, w, (1, 1), "SAME"),
    "valid, strides": lambda x, w: lax.conv(x, w, (2, 1), "VALID"),
    "spread": lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "VALID", rhs_dilation=(2, 1)),
    "transposed": lambda x, w: lax.conv_general_dilated(
        x, w, (1, 1), ((1, 2), (2, 0)), lhs_dilation=(2, 3)
    ),
    "groups": lambda x, w: lax.conv_general_dilated(
        x, w[:, :2], (1, 1), "SAME", feature_group_count=2
    ),
    "channels last": lambda x, w: lax.conv_general_dilated(
        x.transpose(0, 2, 3, 1),
        w.transpose(2, 3, 1, 0),
        (3, 3),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    ),
    "gradient": lambda x, w: jax.grad(
        lambda x, w: (lax.conv(x, w, (1, 2), "SAME") ** 2).sum(), (0, 1)
    )(x, w),
    "largest": lambda x, _: lax.reduce_window(
        x, -jnp.inf, lax.max, (1, 1, 2, 3), (1, 1, 2, 2), "SAME"
    ),
    "mean": lambda x, _: (
        lax.reduce_window(x, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") / 4
    ),
    "spread pool": lambda x, _: lax.reduce_window(
        x, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 1, 2), ((0, 0), (0, 0), (1, 2), (-1, 1)),
        base_dilation=(1, 1, 2, 1), window_dilation=(1, 1, 1, 2),
    ),
    "cropped": lambda x, w: lax.conv_general_dilated(x, w, (1, 1), ((-1, 1), (2, -2))),
    "groups of the batch": lambda x, w: lax.conv_general_dilated(
        x.reshape(2, 2, 5, 6), w[:, :2], (1, 1), "SAME", batch_group_count=2
    ),
    "transposed by name": lambda x, w: lax.conv_transpose(
        x, w, (2, 2), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")
    ),
    "gradient of a pool": lambda x, _: jax.grad(_pooled)(x),
    "tangent of a pool": lambda x, _: jax.jvp(_pooled, (x,), (x**2,)),
    "gradients of a network": lambda x, w: jax.grad(_network, (0, 1))(x, w),
}  # fmt: skip


def _pooled(x):
    most = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 2), (1, 1, 2, 2), "SAME")
    least = lax.reduce_window(x, jnp.inf, lax.min, (1, 1, 2, 2), (1, 1, 1, 2), "VALID")
    return (most**3).sum() + (least**2).sum()


def _network(x, w):
    """Convolutions with a stride and of each channel by itself, and both kinds of pool."""
    x = jnp.tanh(0.05 * lax.conv(x, w, (1, 1), "SAME"))  # where no two are as large
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), "SAME")
    x = lax.conv_general_dilated(x, w[:, :1], (2, 1), "SAME", feature_group_count=2)
    x = lax.reduce_window(x, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 1, 2), "VALID")
    x = lax.conv_general_dilated(x, w[:, :2], (1, 1), ((2, 1), (1, 2)), lhs_dilation=(2, 2))
    return (x**2).sum()


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_and_pools(name):
    x, w = array(1, 4, 5, 6), array(2, 4, 3, 3)
    graph = same(CONVOLUTIONS[name], x, w, rtol=1e-4, atol=1e-4)
    moved = [v for v in graph.vertices.values() if isinstance(v.op, Gather | Concat)]
    assert not moved


SHIFTED = {
    "steps": lambda x: (x[::2], x[:, 1::2, ::-1], lax.slice(x, (0, 1, 0), (3, 4, 5), (2, 1, 3))),
    "constant starts": lambda x: lax.dynamic_slice(x, (1, 0, 3), (2, 4, 2)),
    "inside": lambda x: x.at[1:3, 1:-1].set(2 * x[:2, 1:-1]),
    "a value": lambda x: lax.pad(x, x[0, 0, 0], ((1, 0, 1), (0, 2, 0), (-1, 1, 0))),
    "stencil": lambda x: x[:, :, :-2] + x[:, :, 2:] - 2 * x[:, :, 1:-1],
}


@pytest.mark.parametrize("name", SHIFTED)
def test_shifts_steps_and_padding_are_windows(name):
    graph = same(SHIFTED[name], array(3, 4, 5))
    assert not [v for v in graph.vertices.values() if isinstance(v.op, Gather | Concat)]


def _layer(carry, weights):
    carry = jnp.tanh(carry @ weights["w"] + weights["b"])
    return carry, carry.sum()


CONTROL = {
    "scan": lambda x, w: lax.scan(_layer, x, {"w": w, "b": w[:, 0]}),
    "backwards": lambda x, w: lax.scan(lambda c, v: (c + v.sum(), c * 1), x, w, reverse=True),
    "fori": lambda x, w: lax.fori_loop(0, 3, lambda k, c: c @ w[k], x),
    "while": lambda x, w: lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] @ w[0]), (0, x)
    ),
    "map": lambda _, w: lax.map(lambda v: v @ v, w),
    "cond": lambda x, _: lax.cond(x[0, 0] > 0, lambda a: a * 2, lambda a: a - 1, x),
    "switch": lambda x, w: lax.switch(w[0, 0, 0].astype("int32"), [jnp.sin, jnp.cos, jnp.abs], x),
    "jit": lambda x, _: jax.jit(lambda a: jax.jit(jnp.sin)(a) + 1)(x),
    "checkpoint": lambda x, w: jax.grad(jax.checkpoint(lambda a: jnp.sin(a @ w[0]).sum()))(x),
    "vmap": lambda x, w: jax.vmap(lambda a, b: a @ b, (None, 0))(x, w),
    "stop": lambda x, _: lax.stop_gradient(x) * 2,
    "associative scan": lambda x, _: lax.associative_scan(jnp.add, x, axis=1),
    "drawn by a fixed key": lambda x, _: x * jax.random.normal(jax.random.key(1), x.shape),
    "constant": lambda x, _: x * np.arange(12.0, dtype="float32").reshape(3, 4) ** 2,
    "jvp": lambda x, w: jax.jvp(lambda a: jax.nn.relu(a) @ w[0], (x,), (x,)),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CONTROL)
def test_control_flow_and_calls(name):
    same(CONTROL[name], array(3, 4), array(3, 4, 4))
