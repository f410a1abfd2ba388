"""Inputs for graphs of every kind, and how far results of different types may be apart."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from importlib.metadata import packages_distributions

import numpy as np
import pytest
import random_graphs

from eindecomp.engines.apart.engine import ApartEngine
from eindecomp.engines.engine import find_engine
from eindecomp.engines.threads.engine import ThreadsEngine

# Not by its import: a folder of our tests goes by the same name.
without_ray = pytest.mark.skipif(
    "ray" not in packages_distributions(), reason="Ray is not installed"
)
RAY = pytest.param("ray", marks=without_ray)
without_torch = pytest.mark.skipif(
    "torch" not in packages_distributions(), reason="torch is not installed"
)
TORCH = pytest.param("torch", marks=without_torch)
without_jax = pytest.mark.skipif(
    "jax" not in packages_distributions(), reason="JAX is not installed"
)
JAX = pytest.param("jax", marks=without_jax)


@cache
def engine_of(name):
    """An engine as laws run it; torch compiles nothing, which takes seconds a region on a GPU."""
    match name:
        case "threads":
            return ThreadsEngine(workers=4)
        case "apart":
            return ApartEngine()
        case _:
            return find_engine(name, {"fuse": False} if name == "torch" else {})


def arrays_for(graph, seed=0):
    """Numbers for every input and scalar; whole ones are 0 or 1, which index any table of two."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for vertex in graph.inputs:
        if vertex.dtype.kind in "iu":
            arrays[vertex.name] = rng.integers(0, 2, vertex.shape).astype(vertex.dtype)
        else:
            arrays[vertex.name] = rng.uniform(-1, 1, vertex.shape).astype(vertex.dtype)
    return arrays | dict.fromkeys(graph.scalars, 0.5)


def agree(found, wanted, tolerance):
    """Fail unless shapes, types and, within a tolerance, numbers are the same."""
    for name, right in wanted.items():
        left = found[name]
        assert (left.shape, left.dtype) == (right.shape, right.dtype)
        wide = np.complex128 if right.dtype.kind == "c" else np.float64
        left, right = left.astype(wide), right.astype(wide)
        scale = np.abs(right[np.isfinite(right)]).max(initial=1e-3)
        # Graphs of float64 have results of other types as well.
        real = wanted[name].dtype.itemsize // (2 if wide is np.complex128 else 1)
        most = max(tolerance, {2: 2e-2, 4: 1e-5}.get(real, 0))
        np.testing.assert_allclose(left, right, rtol=most, atol=most * scale)


@contextmanager
def precise():
    """Random graphs of float64, in which orders of summation make no difference to speak of."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(random_graphs, "DTYPES", ("float64",))
        yield
