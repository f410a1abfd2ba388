"""Large joins by generated kernels: what the library asks of them, on a GPU or interpreted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from random_tiles import LOGSUMEXP, assert_close, values_of

pytest.importorskip("torch.nn", reason="torch is not installed")
pytest.importorskip("triton", reason="generated kernels need Triton")

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from eindecomp.graph.evaluate import EinSumSteps
from eindecomp.kernels.torch import einsum
from eindecomp.kernels.torch.einsum import einsum_kernel
from eindecomp.kernels.torch.library import TorchLibrary
from eindecomp.lang.dtypes import dtype
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import MAX, SUM
from eindecomp.lang.scalar import Arg, Const, Scalar, Tuple, call

F4 = dtype("float32")
x, y = Arg(0), Arg(1)
ROWS = (("i", "k"), ("j", "k"))
NAMES = (("unread", dtype("int32")), ("a", dtype("float64")))
GIVEN = {"unread": 1, "a": 0.5}
SIZES = {"i": 9, "j": 10, "k": 11, "w": 2}
JOINS = [
    EinSum(ROWS, ("i", "j"), call("abs", call("sub", x, y)), MAX),
    EinSum(ROWS, ("j", "w", "i"), call("pow", call("sub", x, y), 2), SUM),
    EinSum(ROWS, ("i", "j"), call("abs", call("sub", x, call("mul", y, Scalar("a")))), MAX),
    EinSum(ROWS, ("i", "j"), Tuple((call("mul", x, y), Const(1.0))), LOGSUMEXP),
]


@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize("op", JOINS, ids=str)
@pytest.mark.parametrize("is_traced", [False, True])
def test_a_generated_kernel_gives_the_references_result(
    op: EinSum, is_traced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    own = einsum.fused_join

    def as_on_a_gpu(*of: Any) -> Any:
        asked.append(own(*of[:-1], torch.device("cuda")))
        return asked[-1]

    device = "cuda" if torch.cuda.is_available() else "cpu"
    monkeypatch.setattr(einsum, "fused_join", as_on_a_gpu)
    monkeypatch.setattr(einsum, "_FUSED", 0)
    monkeypatch.setattr(einsum, "_MUCH_LARGER", 0)
    arrays = [values_of(tuple(SIZES[k] for k in own), F4, n) for n, own in enumerate(op.inputs)]
    kernel = einsum_kernel(op, (F4, F4), F4, NAMES, device=torch.device(device))
    shape = [SIZES[label] for label in op.output]

    def compute(*operands: Any) -> Any:
        return kernel.result(operands, list(GIVEN.values()), shape)

    operands = [torch.from_numpy(array).to(device) for array in arrays]
    function = make_fx(compute)(*operands) if is_traced else compute
    with np.errstate(all="ignore"):
        found = TorchLibrary().to_numpy(function(*operands))
        steps = EinSumSteps(op, (F4, F4), GIVEN, dict(NAMES))
        expected = steps.finish(steps.partial(arrays, SIZES))
    assert asked
    assert None not in asked
    assert_close(found, expected, F4)


def test_only_gpus_are_given_generated_kernels() -> None:
    assert einsum.fused_join(JOINS[0], (F4, F4), F4, (), torch.device("cpu")) is None
