"""One expression, four backends: NumPy, torch, numba and plain Python agree."""

from __future__ import annotations

import math
import operator
from typing import Any

import numba
import numpy as np
import pytest
import torch
from hypothesis import given

from eindecomp.lang.compile import compile_scalar
from eindecomp.lang.dtypes import dtype
from eindecomp.lang.numpy_backend import NUMPY
from eindecomp.lang.scalar import DEFINITIONS, FUNCTIONS, Arg, Expr, call
from eindecomp.lang.scalar_types import with_casts
from strategies import exprs

NAMES = ("add", "sub", "mul", "sin", "exp", "tanh", "max", "where", "lt", "erf")
TORCH: dict[str, Any] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "neg": torch.neg, "abs": torch.abs,
    "sin": torch.sin, "exp": torch.exp, "tanh": torch.tanh, "max": torch.maximum,
    "where": torch.where, "lt": torch.lt, "erf": torch.erf,
    "float64": lambda x: torch.as_tensor(x).double(), "bool": lambda x: torch.as_tensor(x).bool(),
    "int64": lambda x: torch.as_tensor(x).long(), "float32": lambda x: torch.as_tensor(x).float(),
}  # fmt: skip
PYTHON: dict[str, Any] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg, "abs": abs,
    "sin": math.sin, "exp": math.exp, "tanh": math.tanh, "max": max, "lt": operator.lt,
    "where": lambda c, x, y: x if c else y, "erf": math.erf, "float64": float, "bool": bool,
    "int64": int, "float32": float,
}  # fmt: skip


@given(exprs(2, NAMES))
def test_numpy_torch_and_python_agree(expr: Expr) -> None:
    explicit, _ = with_casts(expr, [dtype("float64")] * 2, {})
    x, y = np.array([0.3, -1.2, 0.0]), np.array([1.5, -1.2, 0.4])
    with np.errstate(all="ignore"):
        expected = np.broadcast_to(compile_scalar(explicit, 2, NUMPY)(x, y), 3)
    tensors = [torch.tensor(x), torch.tensor(y)]
    wrapped = {op: _tensors(f) for op, f in TORCH.items()}
    found = torch.as_tensor(compile_scalar(explicit, 2, wrapped)(*tensors)).expand(3)
    np.testing.assert_allclose(found.double().numpy(), expected.astype(float), rtol=1e-5, atol=1e-7)
    if np.all(np.abs(expected.astype(float)) < 1e30):
        scalar = compile_scalar(explicit, 2, PYTHON)
        by_hand = [float(scalar(float(a), float(b))) for a, b in zip(x, y, strict=True)]
        np.testing.assert_allclose(by_hand, expected.astype(float), rtol=1e-5, atol=1e-7)


def _tensors(function: Any) -> Any:
    """torch's functions take no bare numbers; ours get literals."""
    return lambda *args: function(*(torch.as_tensor(a) for a in args))


def test_numba_compiles_what_comes_out() -> None:
    table = {
        name: numba.njit(f) if type(f).__name__ == "function" else f for name, f in PYTHON.items()
    }
    expr = call("where", call("lt", Arg(0), Arg(1)), call("exp", Arg(0)), call("mul", Arg(1), 2.0))
    compiled = numba.njit(compile_scalar(expr, 2, table))
    assert compiled(1.0, 2.0) == math.exp(1.0)
    assert compiled(2.0, 1.0) == 2.0


def test_numpy_has_every_function() -> None:
    assert set(NUMPY) == set(FUNCTIONS)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_form_of_its_own_computes_what_the_definition_does(name: str) -> None:
    x = np.array([-np.inf, -800.0, -3.5, -0.0, 0.0, 1e-9, 0.7, 90.0, 800.0, np.inf, np.nan])
    with np.errstate(all="ignore"):
        defined = compile_scalar(DEFINITIONS[name], 1, NUMPY)(x)
        np.testing.assert_allclose(NUMPY[name](x), defined, rtol=1e-15)


def test_run_time_scalars_come_after_the_inputs() -> None:
    from eindecomp.lang.scalar import Scalar

    expr = call("add", Arg(0), call("mul", Scalar("lr"), Scalar("decay")))
    assert compile_scalar(expr, 1, NUMPY, ["decay", "lr"])(1.0, 2.0, 3.0) == 7.0
