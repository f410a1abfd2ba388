"""Other people's functions for JAX, with arguments: of flax, equinox and haiku, and plain ones.

An entry makes a function and its arguments; a library is imported only where an entry needs it.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

KEY = 7  # of the weights


@dataclass(frozen=True)
class Function:
    """How a function and its arguments are made, what they need, and why it is refused, if so."""

    make: object
    library: str = ""
    refused: str = ""


def array(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("float32")


def whole(high, *shape):
    return np.random.default_rng(1).integers(0, high, shape).astype("int32")


def plain(fn, *args, refused=""):
    return Function(lambda: (fn, args), refused=refused)


def flax_linen(block, *shape):
    def make():
        from flax import linen

        module = block(linen)
        x = array(*shape)
        params = module.init(jax.random.key(KEY), x)
        return lambda params, x: module.apply(params, x), (params, x)

    return Function(make, "flax")


def flax_attention(linen):
    class Block(linen.Module):
        @linen.compact
        def __call__(self, x):
            y = linen.LayerNorm()(x)
            x = x + linen.MultiHeadDotProductAttention(num_heads=2)(y, y)
            y = linen.Dense(24)(linen.LayerNorm()(x))
            return x + linen.Dense(8)(linen.gelu(y))

    return Block()


def flax_convolutions(linen):
    class Network(linen.Module):
        @linen.compact
        def __call__(self, x):
            x = linen.relu(linen.Conv(4, (3, 3))(x))
            x = linen.avg_pool(x, (2, 2), (2, 2))
            x = linen.GroupNorm(num_groups=2)(x)
            return linen.Dense(5)(x.reshape(x.shape[0], -1))

    return Network()


def flax_nnx():
    from flax import nnx

    class Network(nnx.Module):
        def __init__(self, rngs):
            self.first, self.second = nnx.Linear(8, 16, rngs=rngs), nnx.Linear(16, 4, rngs=rngs)
            self.norm = nnx.LayerNorm(16, rngs=rngs)

        def __call__(self, x):
            return self.second(nnx.silu(self.norm(self.first(x))))

    definition, state = nnx.split(Network(nnx.Rngs(KEY)))
    return lambda state, x: nnx.merge(definition, state)(x), (nnx.to_pure_dict(state), array(6, 8))


def flax_recurrent(linen):
    return linen.RNN(linen.OptimizedLSTMCell(8))


def equinox_network():
    import equinox

    network = equinox.nn.MLP(8, 4, 16, 2, key=jax.random.key(KEY))
    params, rest = equinox.partition(network, equinox.is_array)

    def run(params, x):
        return jax.vmap(equinox.combine(params, rest))(x)

    return run, (params, array(6, 8))


def equinox_attention():
    import equinox

    layer = equinox.nn.MultiheadAttention(2, 8, key=jax.random.key(KEY))
    params, rest = equinox.partition(layer, equinox.is_array)

    def run(params, x):
        return equinox.combine(params, rest)(x, x, x, mask=jnp.tril(jnp.ones((6, 6), bool)))

    return run, (params, array(6, 8))


def equinox_recurrent():
    import equinox

    cell = equinox.nn.GRUCell(4, 8, key=jax.random.key(KEY))
    params, rest = equinox.partition(cell, equinox.is_array)

    def run(params, x):
        own = equinox.combine(params, rest)
        return jax.lax.scan(lambda h, x: (own(x, h),) * 2, jnp.zeros(8), x)

    return run, (params, array(5, 4))


def haiku(build, *shape):
    def make():
        import haiku as hk

        model = hk.without_apply_rng(hk.transform(lambda x: build(hk)(x)))
        x = array(*shape)
        return model.apply, (model.init(jax.random.key(KEY), x), x)

    return Function(make, "haiku")


def haiku_attention(hk):
    def run(x):
        init = hk.initializers.VarianceScaling(1.0)
        y = hk.LayerNorm(-1, True, True)(x)
        x = x + hk.MultiHeadAttention(2, 4, w_init=init, model_size=8)(y, y, y)
        return x + hk.nets.MLP([16, 8])(x)

    return run


def haiku_recurrent(hk):
    return lambda x: hk.dynamic_unroll(hk.LSTM(8), x, hk.LSTM(8).initial_state(2))[0]


def network(weights, x):
    for w in weights[:-1]:
        x = jnp.tanh(x @ w)
    return x @ weights[-1]


def loss(weights, x, y):
    return jnp.mean((network(weights, x) - y) ** 2)


WEIGHTS = [array(4, 6) / 2, array(6, 3) / 2]


def newton(w, x):
    return jax.hessian(lambda w: jnp.sum(jnp.tanh(x @ w) ** 2))(w)


def graph_network(nodes, w, source, target):
    count = jax.ops.segment_sum(jnp.ones(len(target)), target, 6)
    mean = jax.ops.segment_sum((nodes @ w)[source], target, 6) / jnp.maximum(count, 1)[:, None]
    most = jax.ops.segment_max((nodes @ w)[source], target, 6)
    return jnp.where(jnp.isinf(most), 0, most) + mean


def graph_attention(scores, target):
    most = jax.ops.segment_max(scores, target, 6)
    weights = jnp.exp(scores - most[target])
    return weights / jax.ops.segment_sum(weights, target, 6)[target]


def routed(x, gate, w):
    weights, experts = jax.lax.top_k(jax.nn.softmax(x @ gate), 2)
    flat = experts.reshape(-1)
    order = jnp.argsort(flat)
    rows = jnp.repeat(x, 2, 0)[order]
    made = jax.lax.ragged_dot(rows, w, jnp.bincount(flat, length=4))
    back = jnp.zeros_like(made).at[order].set(made).reshape(*weights.shape, -1)
    return jnp.einsum("tk,tkd->td", weights, back)


def recurrent(w, u, x):
    def step(h, x):
        h = jnp.tanh(h @ w + x @ u)
        return h, h.sum()

    return jax.lax.scan(step, jnp.zeros((2, 6)), x)


def linear_recurrence(a, b):
    def combine(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    return jax.lax.associative_scan(combine, (a, b))[1]


def adam(weights, first, second, x, y):
    grads = jax.grad(loss)(weights, x, y)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, grads)
    new = jax.tree.map(lambda w, m, v: w - m / (jnp.sqrt(v) + 1e-3), weights, first, second)
    return new, first, second


def normalised(x, w):
    x = jax.checkpoint(lambda x: jax.nn.standardize(x))(x)
    return jax.nn.log_softmax(x @ w)


def convolved(x, w):
    y = jax.lax.conv_general_dilated(
        x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def until(x):
    return jax.lax.while_loop(lambda x: jnp.sum(x) < 100, lambda x: x * 2, x)


SOURCE, TARGET = whole(6, 9), whole(5, 9)[::-1].copy()

FUNCTIONS = {
    "flax attention": flax_linen(flax_attention, 2, 5, 8),
    "flax convolutions": flax_linen(flax_convolutions, 2, 8, 8, 3),
    "flax LSTM": flax_linen(flax_recurrent, 2, 5, 4),
    "flax nnx": Function(flax_nnx, "flax"),
    "equinox MLP": Function(equinox_network, "equinox"),
    "equinox attention": Function(equinox_attention, "equinox"),
    "equinox GRU": Function(equinox_recurrent, "equinox"),
    "haiku attention": haiku(haiku_attention, 2, 5, 8),
    "haiku LSTM": haiku(haiku_recurrent, 5, 2, 4),
    "gradients": plain(jax.value_and_grad(loss), WEIGHTS, array(5, 4), array(5, 3)),
    "gradients of each": plain(
        jax.vmap(jax.grad(loss), (None, 0, 0)), WEIGHTS, array(5, 4), array(5, 3)
    ),
    "adam": plain(adam, WEIGHTS, WEIGHTS, [w**2 for w in WEIGHTS], array(5, 4), array(5, 3)),
    "hessian": plain(newton, array(4), array(5, 4)),
    "jacobian": plain(jax.jacfwd(network, 1), WEIGHTS, array(5, 4)),
    "scan": plain(recurrent, array(6, 6) / 3, array(4, 6), array(5, 2, 4)),
    "gradients of a scan": plain(
        jax.grad(lambda *a: recurrent(*a)[1].sum()), array(6, 6) / 3, array(4, 6), array(5, 2, 4)
    ),
    "associative scan": plain(linear_recurrence, array(8, 3), array(8, 3) * 2),
    "segments": plain(graph_network, array(6, 4), array(4, 3), SOURCE, TARGET),
    "graph attention": plain(graph_attention, array(9), TARGET),
    "experts": plain(routed, array(6, 4), array(4, 4) * 2, array(4, 4, 3)),
    "checkpointed": plain(normalised, array(5, 4), array(4, 3)),
    "convolution": plain(convolved, array(1, 8, 8, 3), array(3, 3, 3, 4)),
    "fori loop": plain(lambda x: jax.lax.fori_loop(0, 3, lambda k, x: x * 0.5 + k, x), array(4)),
    "sort": plain(lambda x: (jnp.sort(x, 0), jnp.argsort(x), jnp.cumsum(x, 1)), array(4, 5)),
    "while loop": plain(until, abs(array(4)), refused="while"),
    "Fourier": plain(lambda x: jnp.fft.rfft(x).real, array(8), refused="fft"),
}
