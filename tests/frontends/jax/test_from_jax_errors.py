"""What cannot be imported is refused, with its name, its place and what to do."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eindecomp as ed
from eindecomp.frontends.jax.registry import RULES, primitive

X = jax.ShapeDtypeStruct((4, 4), "float32")


def refused(fn, *args, match):
    with pytest.raises(ed.GraphError, match=match) as error:
        ed.from_jax(fn, *(args or (X,)))
    return str(error.value)


def test_an_unknown_primitive_is_named_with_its_place_and_how_to_add_it():
    def decompose(x):
        return jnp.linalg.cholesky(x)

    message = refused(decompose, match="cholesky")
    assert __file__ in message
    assert "(test_an_unknown" in message
    assert "decompose" in message
    assert "@eindecomp.frontends.jax.registry.primitive('cholesky')" in message


def test_a_user_adds_a_primitive():
    @primitive("igamma")
    def _igamma(op, a, x):
        return op.map("x + y", a, x)

    try:
        graph = ed.from_jax(lax.igamma, X, X)
    finally:
        del RULES["igamma"]
    x = np.ones((4, 4), "float32")
    assert (ed.evaluate(graph, {v.name: x for v in graph.inputs})["out"] == 2).all()


REFUSED = {
    "arc tangent": (lambda x: jnp.arctan(x), "scalar functions of a join"),
    "atan2": (lambda x: jnp.arctan2(x, x + 1), "scalar functions of a join"),
    "erf_inv": (lambda x: lax.erf_inv(x), "scalar functions of a join"),
    "bits": (lambda x: x.astype("int32") ^ 5, "truth values"),
    "function at indices": (
        lambda x: x.at[jnp.array([0, 2])].apply(jnp.sin),
        "applies a function to elements",
    ),
    "sign of unsigned": (
        lambda x: lax.shift_right_arithmetic(x.astype("uint8"), jnp.uint8(1)),
        "sign bit",
    ),
    "precision": (lambda x: lax.reduce_precision(x, 4, 3), "4 bits of exponent and 3"),
    "loop": (
        lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, x),
        "how often it runs depends on values",
    ),
    "fixed index": (lambda x: x.at[jnp.array([7])].get(mode="promise_in_bounds"), "out of range"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_expressed_is_refused(name):
    fn, match = REFUSED[name]
    assert __file__ in refused(fn, match=match)


def test_random_numbers_by_a_key_that_is_given_are_refused():
    def noisy(x, key):
        return x + jax.random.normal(key, x.shape)

    refused(noisy, X, jax.random.key(0), match="argument key is a random key")
    raw = jax.ShapeDtypeStruct((2,), "uint32")
    refused(noisy, X, raw, match="pass them as an argument")


def test_types_that_are_unknown_are_refused():
    refused(lambda x: x.astype("float8_e4m3fn"), match="float8_e4m3fn is not supported")


def test_inputs_must_have_values():
    with pytest.raises(ed.GraphError, match="argument x is only a shape"):
        ed.jax_inputs(lambda x: x + 1, X)


def test_a_function_without_arrays_is_refused():
    refused(lambda _: None, match="returns no array")


def test_an_index_out_of_range_is_an_error_when_it_runs():
    graph = ed.from_jax(lambda x, i: x[i], X, np.array([1, 2]))
    with pytest.raises(ed.EinDecompError):
        ed.evaluate(graph, {"x": np.ones((4, 4), "float32"), "i": np.array([1, 9], "int32")})
