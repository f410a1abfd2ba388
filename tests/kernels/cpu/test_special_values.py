"""Kernels where arithmetic has edges: complex truth and zeros, neutral states, infinities."""

from __future__ import annotations

import numpy as np
import pytest

import eindecomp as ed

INF, NAN = np.inf, np.nan
COMPLEX = np.array(
    [0, 1, -1, 1j, -2j, 3 + 4j, complex(-0.0, 1e-30), 1e30, 1e30j, complex(INF, 0), complex(NAN, 1)]
)


def both(spec, *arrays, **how):
    """What kernels give, and what the reference gives."""
    graph = ed.Graph()
    for k, array in enumerate(arrays):
        graph.input(f"x{k}", {f"d{n}": size for n, size in enumerate(array.shape)}, array.dtype)
    names = [f"x{k}" for k in range(len(arrays))]
    graph.output(graph.einsum(spec, *names, name="z", **how))
    expected = ed.evaluate(graph, dict(zip(names, arrays, strict=True)))["z"]
    return ed.einsum(spec, *arrays, **how), expected


@pytest.mark.parametrize("agg", ["any", "all"])
def test_a_complex_number_is_true_unless_it_is_zero(agg):
    table = np.array([[1j, 2j], [0, 1j], [0, 0], [1, 2]])
    found, expected = both("ij->i", table, agg=agg)
    assert found.tolist() == expected.tolist() == getattr(table, agg)(axis=1).tolist()
    assert np.array_equal(*both("ij->ij", table, join="bool(x)"))


@pytest.mark.parametrize("of", ["complex64", "complex128"])
def test_complex_quotients_are_numpys(of):
    found, expected = both("i,j->ij", COMPLEX.astype(of), COMPLEX.astype(of), join="x / y")
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    guarded = both("i->i", np.array([0, 1, 1j], of), join="where(x == 0, 0, 1 / x)")
    assert np.array_equal(*guarded)


def test_complex_powers_of_zero_are_numpys():
    powers = np.array([0, 1, 2, -1, 0.5, 1j, 1 + 1j, -1 + 1j, complex(NAN, 0), complex(1, NAN)])
    found, expected = both("i,j->ij", np.array([0, -0.0, 2j]), powers, join="x ** y")
    np.testing.assert_allclose(found, expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_neutral_state_is_aggregated_with_one_value_as_with_more(size):
    hypot = ed.monoid("hypot", "sqrt(x**2 + y**2)", identity=0)
    found, expected = both("ij->i", np.full((2, size), -0.25), agg=hypot)
    np.testing.assert_allclose(found, expected)
    np.testing.assert_allclose(found, np.full(2, 0.25 * np.sqrt(size)))


@pytest.mark.parametrize("of", ["float32", "float64"])
def test_a_power_of_a_half_is_the_same_however_it_is_written(of):
    values = np.array([-INF, -1, -0.0, 0, 4, INF, NAN], of)
    expected = np.array([INF, NAN, 0, 0, 2, INF, NAN])
    half = np.array(0.5, of)
    for found in (
        *both("i->i", values, join="x ** 0.5"),
        *both("i,->i", values, half, join="x ** y"),
    ):
        np.testing.assert_array_equal(found, expected)
        assert not np.signbit(found[2])
