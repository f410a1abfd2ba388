"""The gradient of attention by every kernel that a GPU has for it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attention_cases import FORMS
from test_attention_gradient import calls_in, gradient_graph, numbers_for

import eindecomp as ed
from eindecomp.kernels.torch import attention_gradient as kernels
from eindecomp.kernels.torch.attention import Backend, choices_for

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("backend", [Backend.CUDNN, Backend.FLASH, Backend.EFFICIENT])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize("size", [64, 20])
def test_every_kernel(form, dtype, backend, size, monkeypatch):
    """Where a kernel takes the form and the type."""

    def only(*asked):
        return [each for each in choices_for(*asked) if each is backend] or choices_for(*asked)

    monkeypatch.setattr(kernels, "choices_for", only)
    rows = {"s": 72, "t": 72 if form == "causal" else 96}
    sizes = rows | {"e": size // 2, "d": size, "offset": 0}
    exact = gradient_graph(form, "float64", **sizes)
    arrays = numbers_for(exact, dtype, 0)
    wide = {n: x.astype("float64") if x.dtype.kind not in "bi" else x for n, x in arrays.items()}
    wanted = ed.evaluate(exact, wide)
    plan = ed.plan(gradient_graph(form, dtype, **sizes), 1)
    with ed.compile(plan, "torch", device="cuda") as executable:
        found = executable(arrays)
        assert len(calls_in(executable)) == 2
    most = {"float32": 2e-3, "float16": 2e-2, "bfloat16": 1e-1}[dtype]
    for name in "QKV":
        own, other = found[f"grad_{name}"].astype("float64"), wanted[f"grad_{name}"]
        np.testing.assert_allclose(own, other, rtol=most, atol=most * max(1, abs(other).max()))
