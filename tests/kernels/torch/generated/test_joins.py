"""Generated kernels against the reference: states of a whole and of parts, in every way.

They run on the GPU if there is one, otherwise in Triton's interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from random_tiles import (
    LOGSUMEXP,
    SIZES,
    TYPES,
    assert_close,
    einsums,
    layouts,
    out_type,
    reference,
    values_of,
)

from eindecomp.errors import EinDecompError, InputError
from eindecomp.graph.evaluate import EinSumSteps
from eindecomp.lang.dtypes import DType, Kind, concrete, dtype, kind
from eindecomp.lang.einsum import EinSum, product
from eindecomp.lang.monoid import ALL, MAX, MIN, PROD, SUM
from eindecomp.lang.scalar import FUNCTIONS, Arg, Call, Const, Expr, Scalar, Tuple, call
from eindecomp.lang.scalar_types import type_of

torch = pytest.importorskip("torch", reason="kernels over torch's tensors need torch")
pytest.importorskip("triton", reason="generated kernels need Triton")

from eindecomp.kernels.torch.generated.emit import Unsuited  # noqa: E402
from eindecomp.kernels.torch.generated.form import Tuning  # noqa: E402
from eindecomp.kernels.torch.generated.launch import (  # noqa: E402
    FusedJoin,
    fused_join,
    fused_states,
)
from eindecomp.kernels.torch.library import TorchLibrary  # noqa: E402

Array = np.ndarray[Any, Any]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
F4 = dtype("float32")
x, y, z = (Arg(k) for k in range(3))
WAYS = [
    Tuning(4, 8, 2, 2, unroll=2),
    Tuning(8, 4, 1, 2, unroll=3, packed=True),
    Tuning(2, 8, 2, 1, unroll=1, packed=True),
]
few = settings(
    max_examples=settings().max_examples // 4, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)


pytestmark = pytest.mark.usefixtures("interpreter")


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def tensor(array: Array) -> Any:
    """A tensor of the same values, types and strides."""
    own = TorchLibrary().from_numpy(np.asarray(array))
    if DEVICE == "cpu":
        return own
    return torch.empty_strided(own.shape, own.stride(), dtype=own.dtype, device=DEVICE).copy_(own)


def array(of: Any) -> Array:
    return TorchLibrary().to_numpy(of)


def empty(shape: tuple[int, ...], of: DType, how: int = 0) -> Any:
    return tensor(layouts(np.zeros(shape, of), how))


def inputs_of(op: EinSum, types: tuple[DType, ...], sizes: dict[str, int]) -> list[Array]:
    return [
        values_of(tuple(sizes[label] for label in own), t, k)
        for k, (own, t) in enumerate(zip(op.inputs, types, strict=True))
    ]


def made(draw: st.DrawFn, op: EinSum) -> tuple[FusedJoin, list[Array], DType]:
    types = tuple(dtype(draw(st.sampled_from(TYPES))) for _ in op.inputs)
    try:
        out = out_type(op, types)
        join = FusedJoin(op, types, out)
    except (EinDecompError, Unsuited):
        assume(False)
        raise
    # A long product overflows on the way or not, by the order it is taken in.
    many = math.prod(SIZES[label] for label in op.aggregated) > 20
    assume(op.agg != PROD or out.kind in "biu" or not many)
    return join, inputs_of(op, types, SIZES), out


def computed(
    join: FusedJoin,
    operands: list[Any],
    shape: tuple[int, ...],
    sizes: dict[str, int],
    out: DType,
    *,
    scalars: Any = (),
    way: Tuning | None = None,
    how: int = 0,
) -> Array:
    """The result that a kernel's states stand for."""
    states = [empty(shape, t, how) for t in join.state]
    join.run(operands, states, sizes, scalars, way)
    given = dict.fromkeys(dict(join.scalar_types), 0)  # only joins read them
    steps = EinSumSteps(join.op, join.dtypes, given, dict(join.scalar_types))
    return steps.finish([array(state) for state in states]).astype(out)


@few
@given(einsums(), st.data())
def test_a_whole_tile_is_the_references(op: EinSum, data: st.DataObject) -> None:
    join, arrays, out = made(data.draw, op)
    expected = reference(op, arrays, out, SIZES)
    operands = [tensor(layouts(a, data.draw(st.integers(0, 2)))) for a in arrays]
    way, how = data.draw(st.sampled_from([None, *WAYS])), data.draw(st.integers(0, 2))
    found = computed(join, operands, expected.shape, SIZES, out, way=way, how=how)
    assert_close(found, expected, out)


@few
@given(einsums(), st.data())
def test_states_of_parts_combine_to_the_whole(op: EinSum, data: st.DataObject) -> None:
    cut = [label for label in op.aggregated if SIZES[label] > 1]
    assume(cut)
    join, arrays, out = made(data.draw, op)
    label = data.draw(st.sampled_from(cut))
    at = data.draw(st.integers(0, SIZES[label]))
    steps = EinSumSteps(op, join.dtypes, {}, {})
    expected = reference(op, arrays, out, SIZES)
    states: list[list[Array]] = []
    for window, size in ((slice(0, at), at), (slice(at, None), SIZES[label] - at)):
        parts = [
            tensor(a[tuple(window if own_label == label else slice(None) for own_label in own)])
            for a, own in zip(arrays, op.inputs, strict=True)
        ]
        state = [empty(expected.shape, t) for t in join.state]
        join.run(parts, state, {**SIZES, label: size})
        states.append([array(value) for value in state])
    assert_close(steps.finish(steps.combine(*states)).astype(out), expected, out)


def of_spec(spec: str, join: Expr, agg: Any) -> EinSum:
    inputs, output = spec.split("->")
    return EinSum(tuple(tuple(part) for part in inputs.split(",")), tuple(output), join, agg)


DISTANCE = call("abs", call("sub", x, y))
SHAPES = [
    ("ik,kj->ij", {"i": 33, "j": 17, "k": 7}),
    ("ki,jk->ji", {"i": 1, "j": 5, "k": 1}),
    ("bik,bjk->bij", {"b": 3, "i": 9, "j": 10, "k": 5}),
    ("ik,kj->ij", {"i": 4, "j": 5, "k": 0}),
    ("ik,kj->ij", {"i": 0, "j": 5, "k": 3}),
    ("iakb,bjka->iaj", {"i": 3, "a": 4, "j": 5, "k": 2, "b": 3}),
    ("iik,kj->ij", {"i": 5, "j": 9, "k": 4}),
    ("ik,jk->jbi", {"i": 6, "j": 7, "k": 3, "b": 2}),
    ("k,k->", {"k": 300}),
]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("spec", "sizes"), SHAPES)
@pytest.mark.parametrize("way", [None, *WAYS], ids=str)
def test_shapes(spec: str, sizes: dict[str, int], way: Tuning | None) -> None:
    op = of_spec(spec, DISTANCE, MAX)
    arrays = inputs_of(op, (F4, F4), sizes)
    join = FusedJoin(op, (F4, F4), F4)
    expected = reference(op, arrays, F4, sizes)
    found = computed(join, [tensor(a) for a in arrays], expected.shape, sizes, F4, way=way)
    assert_close(found, expected, F4)


REAL = [name for name, f in FUNCTIONS.items() if "complex" not in name and f.arity < 3]
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.5, 300.0, -7.0, np.inf, -np.inf, np.nan])


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("of", ["float32", "float64", "int8", "int64", "uint64", "bool"])
def test_functions_are_numpys(name: str, of: str) -> None:
    """Every value, or pair of values, in a tile of one summed step."""
    function, t = FUNCTIONS[name], dtype(of)
    expr = Call(name, (x, y)[: function.arity])
    op = of_spec("ik,kj->ij" if function.arity == 2 else "i->ij", expr, MAX)
    if name == "pow" and t.kind in "iub":
        assert fused_join(op, (t, t), dtype("int64")) is None
        return
    whole = [0, 1, 2, 3, 5, 100, *([-1, -7] * (t.kind == "i"))]
    values = (SPECIAL if t.kind == "f" else np.array(whole)).astype(t)
    operands = [values[:, None], values[None, :]] if function.arity == 2 else [values]
    out = concrete(type_of(expr, (t, t), {}))
    sizes = {"i": len(values), "k": 1, "j": len(values)}
    expected = reference(op, operands, out, sizes)
    join = FusedJoin(op, (t,) * function.arity, out)
    found = computed(join, [tensor(a) for a in operands], expected.shape, sizes, out)
    if kind(out) is Kind.FLOAT:
        close = np.testing.assert_allclose
        close(found.astype(float), expected.astype(float), rtol=1e-5, atol=1e-6)
        zeros = expected == 0
        if name in ("neg", "floordiv", "mod", "sub", "mul"):
            assert (np.signbit(found) == np.signbit(expected))[zeros].all()
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("power", [0, 1, 2, 3, 4, 5, 7])
def test_integers_to_literal_powers_wrap_around(power: int) -> None:
    t = dtype("int32")
    op = of_spec("ik,kj->ij", call("pow", call("sub", x, y), power), SUM)
    arrays = [np.arange(-40, 40, dtype=t).reshape(8, 10) * 31, np.ones((10, 3), t)]
    sizes = {"i": 8, "k": 10, "j": 3}
    expected = reference(op, arrays, t, sizes)
    join = FusedJoin(op, (t, t), t)
    found = computed(join, [tensor(a) for a in arrays], expected.shape, sizes, t)
    np.testing.assert_array_equal(found, expected)


def test_three_inputs_and_scalars() -> None:
    expr = call("max", call("mul", Scalar("low"), x), call("sub", call("mul", y, z), Scalar("by")))
    op = of_spec("ik,kj,ij->ij", expr, MIN)
    types = (("other", dtype("int32")), ("by", dtype("float64")), ("low", dtype("int64")))
    sizes = {"i": 12, "j": 20, "k": 6}
    arrays = inputs_of(op, (F4,) * 3, sizes)
    a, b, c = (v.astype(np.float64) for v in arrays)
    expected = np.maximum(3 * a[:, :, None], b[None] * c[:, None, :] - 0.25).min(1)
    join = fused_join(op, (F4,) * 3, F4, types)
    assert join is not None
    for scalars in ([7, 0.25, 3], [torch.tensor(7), torch.tensor(0.25), torch.tensor(3)]):
        operands = [tensor(v) for v in arrays]
        found = computed(join, operands, expected.shape, sizes, F4, scalars=scalars)
        assert_close(found, expected, F4)


def test_inputs_that_only_lend_sizes_may_be_none() -> None:
    op = EinSum((("i", "k"), ("k", "j"), ("l",)), ("i", "j"), DISTANCE, SUM)
    join = fused_join(op, (F4,) * 3, F4)
    assert join is not None
    sizes = {"i": 4, "j": 5, "k": 6, "l": 3}
    arrays = inputs_of(op, (F4, F4, F4), sizes)
    operands = [tensor(arrays[0]), tensor(arrays[1]), None]
    found = computed(join, operands, (4, 5), sizes, F4)
    expected = 3 * np.abs(arrays[0][:, :, None] - arrays[1][None]).sum(1)
    assert_close(found, expected, F4)


C8 = dtype("complex64")


@pytest.mark.parametrize(
    ("op", "types", "out"),
    [
        (of_spec("ik,kj->ij", product(2), SUM), (F4, F4), F4),
        (of_spec("ij->ij", call("exp", x), None), (F4,), F4),
        (of_spec("ij->i", call("exp", x), SUM), (F4,), F4),
        (of_spec("ik->i", Tuple((x, Const(1.0))), LOGSUMEXP), (F4,), F4),
        (of_spec("ik,kj->ij", call("eq", x, y), ALL), (C8, C8), dtype("bool")),
        (
            of_spec("ik,kj->ij", call("abs", call("complex64", call("sub", x, y))), MAX),
            (F4, F4),
            F4,
        ),
    ],
)
def test_what_does_not_suit(op: EinSum, types: tuple[DType, ...], out: DType) -> None:
    assert fused_join(op, types, out) is None


def test_without_the_interpreter_tensors_are_on_a_cuda_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    join = FusedJoin(of_spec("ik,kj->ij", DISTANCE, MIN), (F4, F4), F4)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(InputError, match="CUDA"):
        join.run([torch.ones(2, 3), torch.ones(3, 2)], [torch.ones(2, 2)], {"i": 2, "k": 3, "j": 2})


def test_tracing_keeps_the_kernel_whole() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    op = of_spec("ik,kj->ij", DISTANCE, MAX)
    join = fused_join(op, (F4, F4), F4)
    assert join is not None
    sizes = {"i": 9, "j": 6, "k": 4}

    def distances(a: Any, b: Any) -> Any:
        return fused_states(join, [a, b], sizes)[0] + 1.0

    a, b = (tensor(v) for v in inputs_of(op, (F4, F4), sizes))
    traced = make_fx(distances, tracing_mode="fake")(a, b)
    calls = [node for node in traced.graph.nodes if "fused_join" in str(node.target)]
    assert len(calls) == 1
    expected = (a[:, :, None] - b[None]).abs().amax(1) + 1.0
    torch.testing.assert_close(traced(a, b), expected)
