"""Every kernel for attention that a GPU has equals what the graph's own vertices say."""

from __future__ import annotations

import pytest
from attention_cases import FORMS, WIDE, Backend, check_step, kernels, make_case, torch, trace

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    ("form", "offset"),
    [*((form, 0) for form in FORMS), *(("causal", offset) for offset in (-3, 24, 100))],
)
@pytest.mark.parametrize("size", [64, 20])
def test_every_backend_on_cuda(form: str, offset: int, dtype: str, size: int) -> None:
    sizes = WIDE | {"s": 72, "t": 96, "e": size // 2, "d": size, "offset": offset}
    case = make_case(form, dtype, 0, **sizes).to("cuda")
    for backend in kernels.backends(case.attention, case.q, [case.tile]):
        case.check(kernels.attend(case.attention, case.q, [case.tile], backend=backend)[0])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize(("latest", "length", "size"), [(0, 0, 8), (3, 13, 5), (5, 21, 8)])
def test_decoding_on_cuda(dtype: str, latest: int, length: int, size: int) -> None:
    check_step(dtype, latest, length, size, [None, Backend.DECODE, Backend.MATH], "cuda")


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("form", ["plain", "length"])
def test_long_decoding_on_cuda(form: str, dtype: str) -> None:
    case = make_case(form, dtype, 0, **(WIDE | {"s": 1, "t": 3000})).to("cuda")
    assert Backend.DECODE in kernels.backends(case.attention, case.q, [case.tile])
    case.check(kernels.attend(case.attention, case.q, [case.tile], backend=Backend.DECODE)[0])
    traced, names = trace(case, case.q, case.tile, Backend.DECODE)
    given = [getattr(case.tile, name) for name in names]
    case.check(torch.compile(traced)(case.q, *given))
