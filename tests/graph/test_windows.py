"""Windows: what they read, how they are written, their gradients, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eindecomp as ed
from eindecomp.graph.rewrites.rewrite import rewrite
from eindecomp.graph.windows import apart, together
from eindecomp.lang.index import Index, index_of
from window_cases import random_case

SEEDS = st.integers(0, 2**32)
MORE = settings(max_examples=12 * settings.default.max_examples)
SOME = settings(max_examples=5 * settings.default.max_examples)


@MORE
@given(SEEDS)
def test_reads_at_places_are_what_plain_loops_read(seed: int) -> None:
    case = random_case(seed)
    graph = case.graph
    assert ed.parse(str(graph)) == graph
    arrays = case.arrays(seed)
    found = ed.evaluate(graph, arrays)[case.statements[-1].name]
    np.testing.assert_allclose(found, case.run(arrays), rtol=1e-9, atol=1e-12)


@MORE
@given(SEEDS)
def test_passes_keep_what_windows_read(seed: int) -> None:
    case = random_case(seed)
    graph, arrays = case.graph, case.arrays(seed)
    wanted = ed.evaluate(graph, arrays)
    split = apart(graph)
    assert not any(vertex.windows for vertex in split.vertices.values())
    assert ed.parse(str(split)) == split
    for other in (split, together(split), rewrite(graph)):
        for name, array in ed.evaluate(other, arrays).items():
            np.testing.assert_allclose(array, wanted[name], rtol=1e-9, atol=1e-12)


@SOME
@given(SEEDS)
def test_gradients_are_differences(seed: int) -> None:
    """Along a random direction, of a sum that weighs every element differently."""
    case = random_case(seed, most=2, largest=5)
    last = case.statements[-1]
    shape, labels = tuple(last.output.values()), ",".join(last.output)
    weights = np.random.default_rng(seed).uniform(0.5, 1.5, shape)
    case.shapes["V"] = shape
    text = case.text.rpartition("\n")[0]
    graph = ed.parse(f"{text}\nloss[] <- sum {last.name}[{labels}] * V[{labels}]\noutput loss")
    wrt = [name for name in case.shapes if name != "V"]
    arrays = case.arrays(seed) | {"V": weights}
    found = ed.evaluate(ed.grad(graph, "loss", wrt=wrt), arrays)
    along = case.arrays(seed + 1)
    step = 1e-6

    def loss(by: float) -> float:
        moved = {name: arrays[name] + by * along[name] for name in wrt}
        return float(ed.evaluate(graph, arrays | moved)["loss"])

    if not np.isfinite(loss(0)):
        return
    wanted = (loss(step) - loss(-step)) / (2 * step)
    total = sum(float((found[f"grad_{name}"] * along[name]).sum()) for name in wrt)
    assert total == pytest.approx(wanted, rel=1e-5, abs=1e-5)


CONVOLUTIONS: dict[str, tuple[str, Any]] = {
    "plain": ("X[b, c, h + y, w + x]", {}),
    "padded": ("X[b, c, h + y - 1 else 0, w + x - 1 else 0]", {"padding": 1}),
    "strided": ("X[b, c, 2*h + y - 1 else 0, 3*w + x else 0]",
                {"stride": (2, 3), "padding": (1, 0)}),
    "dilated": ("X[b, c, h + 2*y - 2 else 0, w + x]", {"dilation": (2, 1), "padding": (2, 0)}),
}  # fmt: skip


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_convolutions_and_their_gradients_are_those_of_torch(kind: str) -> None:
    torch = pytest.importorskip("torch")
    read, options = CONVOLUTIONS[kind]
    rng = np.random.default_rng(0)
    x, k = rng.standard_normal((2, 3, 7, 8)), rng.standard_normal((4, 3, 3, 2))
    x_, k_ = (torch.tensor(a, requires_grad=True) for a in (x, k))
    wanted = torch.nn.functional.conv2d(x_, k_, **options)
    _, _, height, width = wanted.shape
    graph = ed.parse(f"""
        input X[b: 2, c: 3, i: 7, j: 8] float64, K[o: 4, c: 3, y: 3, x: 2] float64
        Z[b,o,h: {height},w: {width}] <- sum {read} * K[o,c,y,x]
        loss[] <- sum Z[b,o,h,w]**2
        output Z, loss
    """)
    found = ed.evaluate(ed.grad(graph, "loss", wrt=["X", "K"]), {"X": x, "K": k})
    np.testing.assert_allclose(found["Z"], wanted.detach(), rtol=1e-9)
    (wanted**2).sum().backward()
    np.testing.assert_allclose(found["grad_X"], x_.grad, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found["grad_K"], k_.grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("stride", "padding", "more"), [(1, 0, 0), (2, 1, 1), (3, 1, 0)])
def test_transposed_convolutions_are_those_of_torch(stride: int, padding: int, more: int) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, k = rng.standard_normal((2, 3, 5)), rng.standard_normal((3, 4, 3))
    wanted = torch.nn.functional.conv_transpose1d(
        torch.tensor(x), torch.tensor(k), stride=stride, padding=padding, output_padding=more
    )
    text = f"n: {wanted.shape[2]} = {stride}*w + r - {padding}"
    graph = ed.parse(
        "input X[b: 2, c: 3, w: 5] float64, K[c, o: 4, r: 3] float64\n"
        f"Z[b,o,{text}] <- sum X[b,c,w] * K[c,o,r]\noutput Z"
    )
    assert ed.parse(str(graph)) == graph
    np.testing.assert_allclose(ed.evaluate(graph, {"X": x, "K": k})["Z"], wanted, rtol=1e-9)


def test_pools_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((2, 3, 9))
    graph = ed.parse("""
        input X[b: 2, c: 3, n: 9] float64
        M[b,c,w: 5] <- max[r: 3] X[b, c, 2*w + r - 1 else identity]
        A[b,c,w: 4] <- sum[r: 2] X[b, c, 2*w + r] / 2
        loss[] <- sum M[b,c,w] * (w + 1)
        output M, A, loss
    """)
    found = ed.evaluate(ed.grad(graph, "loss", wrt=["X"]), {"X": x})
    x_ = torch.tensor(x, requires_grad=True)
    most = torch.nn.functional.max_pool1d(x_, 3, 2, 1)
    np.testing.assert_allclose(found["M"], most.detach())
    np.testing.assert_allclose(found["A"], torch.nn.functional.avg_pool1d(x_, 2).detach())
    (most * torch.arange(1.0, 6.0, dtype=torch.float64)).sum().backward()
    np.testing.assert_allclose(found["grad_X"], x_.grad)


HEAD = "input X[b: 2, n: 8], K[r: 3]\n"
WRITTEN = [
    ("Z[b,w: 8] <- X[b, -w else wrap]", "X[b, 8 - w else 0] + X[b, 0 - w else 0]"),
    ("Z[b,w: 8] <- X[b, w/2 else 0]", "X[b, w / 2 else 0]"),
    ("Z[b,w: 8] <- X[b, (0 - 3*w + 6) / 2 else 0.5]", "X[b, (6 - 3*w) / 2 else 0.5]"),
    ("Z[b] <- X[b, -3 else 1]", "X[b, -3 else 1]"),
    ("Z[b] <- X[b, 5 / 2 else -1]", "X[b, 5 / 2 else -1]"),
    ("Z[b, x: 9 = 2*w] <- X[b, w]", "X[b, x / 2 else 0]"),
    ("Z[b, x = w + 2*r] <- sum X[b, w] * K[r]", "sum X[b, x - 2*r else 0] * K[r]"),
    ("Z[b,w: 8] <- X[b, w + 1 else clamp] - X[b, w - 1 else clamp]",
     "X[b, w + 1 else clamp] - X[b, w - 1 else clamp]"),
    ("Z[b,w] <- max X[b, w + r - 1 else identity] + K[r]",
     "max X[b, w + r - 1 else -inf] + K[r]"),
    ("Z[b,w: 6] <- sum X[b, w + r] * K[r] + X[b, r + w]",
     "sum X[b, w + r] * K[r] + X[b, r + w]"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "shown"), WRITTEN, ids=[text for text, _ in WRITTEN])
def test_how_windows_are_written(text: str, shown: str) -> None:
    if "identity" in text:
        text = text.replace("w]", "w: 8]", 1)
    graph = ed.parse(f"{HEAD}{text}\noutput Z")
    assert str(graph).splitlines()[2].partition(" <- ")[2] == shown
    assert ed.parse(str(graph)) == graph


def test_one_place_under_several_spellings_is_read_once() -> None:
    graph = ed.parse(f"{HEAD}Z[b,w: 6] <- X[b, w + 2 - 1] * X[b, 1 + w]\noutput Z")
    assert graph["Z"].inputs == ("X",)


REFUSED = [
    ("Z[b,w: 8] <- X[b, w - 1]", 18, r"w - 1 of X goes from -1 to 6 for w in 0:8, outside 0 to 7"),
    ("Z[b] <- X[b, size(n)]", 13, r"index 8 of X goes from 8 to 8"),
    ("Z[b,w: 8] <- X[b, 2*w else 0] + X[b, w + 3]", 37, r"w \+ 3 of X goes from 3 to 10"),
    ("Z[b,w] <- X[b, w - 1 else nonsense]", 26, "'clamp', 'wrap' or 'identity', not nonsense"),
    ("Z[b,w] <- X[b, q + w]", 15, "label 'q' has no size"),
    ("Z[b,w,r] <- X[b, w*r]", 17, r"w\*r multiplies two"),
    ("Z[b,w: 8] <- X[b, (w + 1) / 2]", 19, "divides: say what stands between, 'else 0'"),
    ("Z[b,w: 8] <- X[b, (w + 1) / 2 else clamp]", 19, "divides: say what stands between"),
    ("Z[b,w: 8] <- X[b, w - w]", 13, "label 'w' moves no place of X"),
    ("Z[b,w: 8] <- X[b, w + 1.5]", 22, "'1.5' is not a whole number"),
    ("Z[b,w: 8] <- X[b, w + 99999999999999999999 else 0]", 22, "too large"),
    ("Z[b,w: 8] <- max X[b, w + r else identity] * K[r]", 17, "only a part of what max aggregates"),
]


@pytest.mark.parametrize(("text", "column", "message"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_is_refused_is_pointed_at(text: str, column: int, message: str) -> None:
    with pytest.raises(ed.TextError, match=message) as caught:
        ed.parse(f"{HEAD}{text}\noutput Z")
    first, *_, caret = str(caught.value).splitlines()
    assert first.startswith(f"<text>:2:{column + 1}:")
    assert caret.index("^") == column + 2


def test_indices_in_python() -> None:
    assert index_of({"w": 2, "r": -1}, 3, 2, 0) == Index((("w", 2), ("r", -1)), 3, 2, 0)
    for terms, options in [
        ((("w", 0),), {}), ((("w", 1), ("w", 2)), {}), ((("w", 1),), {"divisor": 0}),
        ((("w", 1),), {"divisor": 2}), ((("w", 1),), {"outside": "wrap"}),
        ((("w", 1),), {"outside": float("nan")}), ((("w", 2**63),), {}),
    ]:  # fmt: skip
        with pytest.raises(ed.EinDecompError):
            Index(terms, **options)
