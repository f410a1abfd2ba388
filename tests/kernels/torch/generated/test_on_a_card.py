"""Generated kernels on a CUDA device, each kind of configuration, against float64 in torch."""

from __future__ import annotations

from typing import Any

import pytest

from eindecomp.lang.dtypes import dtype
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import MAX, SUM
from eindecomp.lang.scalar import Arg, call

torch = pytest.importorskip("torch", reason="kernels over torch's tensors need torch")
pytest.importorskip("triton", reason="generated kernels need Triton")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

from eindecomp.kernels.torch.generated.form import LARGE, Tuning  # noqa: E402
from eindecomp.kernels.torch.generated.launch import FusedJoin  # noqa: E402

GAP = call("sub", Arg(0), Arg(1))
SHAPES = [(2, 256, 512, 64), (1, 201, 333, 37), (1, 130, 140, 0)]
# Each has to be compiled: one of each kind.
KINDS = [None, *{way.packed: way for way in LARGE}.values()]
CASES = [*((way, "float32") for way in KINDS), *((LARGE[0], n) for n in ("bfloat16", "int32"))]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("config", "name"), CASES)
def test_distances(shape: tuple[int, ...], config: Tuning | None, name: str) -> None:
    b, i, j, k = shape
    of, t = getattr(torch, name), dtype(name)
    draw = torch.Generator(device="cuda").manual_seed(0)
    x, y = (
        (8 * torch.randn(n, device="cuda", generator=draw)).to(of) for n in ((b, i, k), (b, j, k))
    )
    gap: Any = x.double()[:, :, None] - y.double()[:, None]
    expected = {"max": gap.abs(), "sum": gap.square().sum(3)}
    for agg, join in ((MAX, call("abs", GAP)), (SUM, call("pow", GAP, 2))):
        if agg == MAX and not k:
            continue  # torch has no maximum of nothing
        exact = expected[agg.name].amax(3) if agg == MAX else expected[agg.name]
        op = EinSum((("b", "i", "k"), ("b", "j", "k")), ("b", "i", "j"), join, agg)
        fused = FusedJoin(op, (t, t), t)
        held = getattr(torch, fused.state[0].name)
        found = torch.empty((b, i, j), device="cuda", dtype=held)
        fused.run([x, y], [found], {"b": b, "i": i, "j": j, "k": k}, config=config)
        rough = {"bfloat16": 2e-2, "float32": 2e-5}.get(name, 1e-10)
        torch.testing.assert_close(found.double(), exact, rtol=rough, atol=rough)
