"""Random programs of jax.numpy, against JAX itself."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

import eindecomp as ed

SHAPES = [(2, 6), (4, 3), (12,), (2, 3, 2), (1, 4), (3, 1, 2), ()]


def _split(draw, shape):
    size = int(np.prod(shape))
    first = draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
    second = draw(
        st.sampled_from([n for n in range(1, size // first + 1) if size // first % n == 0])
    )
    return first, second, size // first // second


def step(draw, shape):
    """A random function of one array of a shape."""
    rank = len(shape)
    steps = [
        lambda x: jnp.tanh(x) * 2 - x,
        lambda x: jnp.where(x > 0, x, -0.5 * x),
        lambda x: jnp.round(x * 4) / 4,
        lambda x: jnp.broadcast_to(x, (2, *x.shape)) * jnp.arange(2.0).reshape(2, *[1] * x.ndim),
        lambda x: x.sum() - x.mean() * x,
    ]
    new, order = _split(draw, shape), draw(st.permutations(range(rank)))
    steps += [lambda x: x.reshape(new), lambda x: jnp.transpose(x, order)]
    if not rank:
        return draw(st.sampled_from(steps))
    axis = draw(st.integers(0, rank - 1))
    size = shape[axis]
    at, step = draw(st.integers(0, size - 1)), draw(st.integers(1, 3))
    which = np.array(draw(st.lists(st.integers(-size, size - 1), min_size=1, max_size=4)))
    steps += [
        lambda x: x.max(axis, keepdims=True) - x,
        lambda x: jax.nn.softmax(x, axis=axis),
        lambda x: jnp.cumsum(x, axis) / size,
        lambda x: jnp.sort(x, axis),
        lambda x: jnp.argmax(jnp.round(x), axis).astype("float32"),
        lambda x: lax.slice_in_dim(x, at, size, step, axis),
        lambda x: jnp.flip(x, axis),
        lambda x: jnp.concatenate([x, -x], axis),
        lambda x: jnp.pad(x, [(1, 2) if k == axis else (0, 0) for k in range(rank)]),
        lambda x: jnp.take(x, jnp.asarray(which), axis=axis),
        lambda x: lax.dynamic_slice_in_dim(
            x, jnp.int32(jnp.floor(jnp.abs(x).sum())) % size, 1, axis
        ),
        lambda x: jnp.moveaxis(x, axis, 0).at[at].add(1.0),
        lambda x: jnp.tensordot(x, jnp.moveaxis(x, axis, 0), (axis, 0)) / size,
        lambda x: lax.scan(lambda c, v: (c + v, c * v), 0.0, x.reshape(-1)[:4])[1],
    ]
    return draw(st.sampled_from(steps))


@given(st.data())
def test_a_random_program_computes_what_jax_does(data):
    shape = data.draw(st.sampled_from(SHAPES))
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    value, steps = jnp.asarray(x), []
    for _ in range(data.draw(st.integers(1, 4))):
        chosen = step(data.draw, value.shape)
        after = chosen(value)
        if not 0 < after.size <= 300:
            break
        value = after
        steps.append(chosen)

    def program(x):
        for each in steps:
            x = each(x)
        return x + 0

    graph = ed.from_jax(program, x)
    assert ed.parse(str(graph)) == graph
    found = ed.evaluate(graph, ed.jax_inputs(program, x))["out"]
    assert found.shape == value.shape
    np.testing.assert_allclose(found, value, rtol=1e-3, atol=1e-4)
