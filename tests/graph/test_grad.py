"""Gradients against finite differences, torch's autograd and hand-computed values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given

import eindecomp as ed
from strategies import arrays, graphs

MONOIDS = """
monoid lse(a; b) = max(a, b) + log(1 + exp(-abs(a - b))) identity -inf grad exp(a - result)
monoid attend(m, s, v; n, t, w) = (
    max(m, n),
    s * exp(m - max(m, n)) + t * exp(n - max(m, n)),
    v * exp(m - max(m, n)) + w * exp(n - max(m, n))
  ) identity (-inf, 0, 0) finish v / s grad (
    (v - s * result) * exp(m - n) / t, -result * exp(m - n) / t, exp(m - n) / t
  )
"""


def numerical(graph: ed.Graph, given_: dict[str, Any], loss: str, name: str) -> Any:
    """Central differences of the loss by every element of an input."""
    step = 1e-6
    found = np.zeros(given_[name].shape)
    for index in np.ndindex(found.shape):
        losses: list[float] = []
        for sign in (1, -1):
            moved = {key: np.array(value) for key, value in given_.items()}
            moved[name][index] += sign * step
            losses.append(float(ed.evaluate(graph, moved)[loss]))
        found[index] = (losses[0] - losses[1]) / (2 * step)
    return found


def check(graph: ed.Graph, given_: dict[str, Any], loss: str, wrt: list[str]) -> None:
    gradient = ed.grad(graph, loss, wrt)
    gradient.verify()
    assert ed.parse(str(gradient)) == gradient
    found = ed.evaluate(gradient, given_)
    for name, vertex in zip(wrt, gradient.outputs[-len(wrt) :], strict=True):
        assert (vertex.name, vertex.shape) == (f"grad_{name}", graph[name].shape)
        assert vertex.dtype == graph[name].dtype
        expected = numerical(graph, given_, loss, name)
        np.testing.assert_allclose(found[vertex.name], expected, rtol=1e-4, atol=1e-5)


@given(graphs(smooth=True))
def test_random_graphs(graph: ed.Graph) -> None:
    for k, vertex in enumerate(graph.outputs):
        labels = ",".join(vertex.labels)
        term = f"sin(float64({vertex.name}[{labels}]))"
        ed.extend(graph, f"loss_{k}[] <- sum {term}")
    total = " + ".join(f"loss_{k}[]" for k in range(len(graph.outputs)))
    ed.extend(graph, f"loss[] <- {total}\noutput loss")
    values = arrays(graph)
    assume(np.isfinite(ed.evaluate(graph, values)["loss"]))
    check(graph, values, "loss", [v.name for v in graph.inputs])
    assert ed.grad(graph, "loss", [v.name for v in graph.inputs]).ties == graph.ties


STATEMENTS = [
    "A[i,k] <- sum X[i,j] * Y[j,k]\nloss[] <- sum A[i,k]**2",
    "A[i] <- max X[i,j]\nloss[] <- sum A[i]**3",
    "A[i,k] <- min gelu(X[i,j]) * Y[j,k]\nloss[] <- sum A[i,k]**2",
    "A[i] <- prod X[i,j]\nloss[] <- sum A[i] * sin(A[i])",
    "A[i,k] <- lse X[i,j] - Y[j,k]\nloss[] <- sum A[i,k]**2",
    "A[i,k] <- attend (X[i,j], 1, Y[j,k])\nloss[] <- sum A[i,k]**2",
    "A[i,k] <- attend (X[i,j], exp(X[i,j]), Y[j,k])\nloss[] <- sum A[i,k]**2",
    "A[n] <- S[n,n]\nloss[] <- sum A[n]**2",
    "A[n,m] <- sum S[n,n] * S[m,n]\nloss[] <- sum A[n,m]**2",
    "A[b,s,k] <- Y[I[b,s], k]\nloss[] <- sum A[b,s,k]**2",
    "A[b,i] <- X[i, I[b,b]]\nloss[] <- sum A[b,i]**2",
    "A[r: 5 = I[b,s], k] <- sum Y[I[b,s], k]**2\nloss[] <- sum A[r,k]**2",
    "A[i, r: 4 = J[j]] <- sum X[i,j]\nloss[] <- sum A[i,r]**3",
    "A[r: 2 = D[n]] <- sum S[n,n]\nloss[] <- sum A[r]**3",
    "A[i,j] <- X[i in 1:3, j in 0:2]\nloss[] <- sum A[i,j]**3",
    "A[i,j] <- concat[i](X[i,j], X[i,j]**2)\nloss[] <- sum A[i,j]**3",
    "A[(p, i), q] <- X[i, (p: 2, q)]\nloss[] <- sum A[u,q]**3 * A[u,q]",
    "A[i] <- sum X[i,j] * 0.5 with Y[j2,k]\nloss[] <- sum A[i]**2",
    "A[i] <- sum X[i,j] + Y[j2,k]\nloss[] <- sum A[i]**2",
    "A[i, w: 3] <- sum X[i,j]\nloss[] <- sum A[i,w]**2",
    "A[i,j] <- where(X[i,j] > 0, X[i,j]**2, exp(X[i,j]))\nloss[] <- sum A[i,j]**2",
    "A[i,j] <- max(X[i,j], 0.1) * min(X[i,j], 0.2) + relu(X[i,j])\nloss[] <- sum A[i,j]**2",
    "A[i,j] <- abs(X[i,j])**1.5 + sqrt(X[i,j]**2 + 1)\nloss[] <- sum A[i,j]",
    "A[i,j] <- rsqrt(X[i,j]**2 + 1) * silu(X[i,j])\nloss[] <- sum A[i,j]",
    "A[i,j] <- sum log(X[i,j]**2 + 1) / (Y[j,k] + 3)\nloss[] <- sum A[i,j]",
    "A[i,j] <- (X[i,j]**2 + 1)**sigmoid(X[i,j]) + cos(erf(X[i,j]))\nloss[] <- sum A[i,j]",
    "P[i,j] <- softmax[j] X[i,j]\nQ[i,j] <- log_softmax[j] X[i,j]\nloss[] <- sum P[i,j] * Q[i,j]",
    "A[n,m] <- layer_norm[m](S[n,m], g[m], g[m])\nloss[] <- sum A[n,m]**3",
    "A[n,m] <- rms_norm[m](S[n,m], g[m])\nloss[] <- sum A[n,m]**3",
    "A[n,e] <- causal_attention[n,m,d](S[n,d], S[m,d], S[m,e])\nloss[] <- sum A[n,e]**2",
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("text", STATEMENTS)
def test_every_kind_of_vertex(text: str) -> None:
    head = "input X[i: 3, j: 4] float64\ninput Y[j: 4, k: 2] float64\ninput S[n: 3, m: 3] float64\n"
    head += "input g[m: 3] float64\ninput I[b: 2, s: 2] int32\n"
    head += "J[j: 4] <- fill 3 - j\nD[n: 3] <- fill min(n, 1)\n"
    graph = ed.parse(f"{MONOIDS}{head}{text}\noutput loss")
    values = arrays(graph, seed=3)
    values["I"] = np.array([[1, 3], [3, 0]])
    check(graph, values, "loss", ["X", "Y", "S"])


def test_ties_share_equally_and_zeros_in_products_are_exact() -> None:
    text = "input X[j: 4] float64\nm[] <- {} X[j]\noutput m"
    x = np.array([2.0, 5.0, 5.0, 1.0])
    found = ed.evaluate(ed.grad(ed.parse(text.format("max")), "m", ["X"]), {"X": x})
    np.testing.assert_array_equal(found["grad_X"], [0, 0.5, 0.5, 0])
    product = ed.grad(ed.parse(text.format("prod")), "m", ["X"])
    for x, expected in (
        ([2, 3, 4, 5], [60, 40, 30, 24]),
        ([2, 0, 4, 5], [0, 40, 0, 0]),
        ([2, 0, 0, 5], [0, 0, 0, 0]),
    ):
        np.testing.assert_allclose(ed.evaluate(product, {"X": x})["grad_X"], expected)


def test_products_of_complex_numbers_are_torchs() -> None:
    text = "monoid m(x; y) = x * y identity 1 grad result / x\ninput X[i: 3] complex128\n"
    for agg in ("prod", "m"):
        graph = ed.parse(f"{text}Z[] <- {agg} X[i]\nl[] <- real(Z[])\noutput l")
        values = arrays(graph)
        found = ed.evaluate(ed.grad(graph, "l", ["X"]), values)["grad_X"]
        x = torch.tensor(values["X"], requires_grad=True)
        x.prod().real.backward()
        np.testing.assert_allclose(found, x.grad.numpy(), rtol=1e-9)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_rounded_maximum_still_finds_its_value(dtype: str) -> None:
    graph = ed.parse(f"input X[i: 2] {dtype}\nl[] <- max exp(X[i])\noutput l")
    found = ed.evaluate(ed.grad(graph, "l", ["X"]), {"X": [0.1, 0.2]})["grad_X"]
    np.testing.assert_allclose(found.astype(float), [0, np.exp(0.2)], rtol=2e-2)


def test_what_passes_an_adjoint_on_unchanged_has_a_gradient_of_its_own() -> None:
    graph = ed.parse("input X[i: 2]\nV[i] <- X[i in 0:2]\nl[] <- sum V[i]**2\noutput l")
    found = ed.evaluate(ed.grad(graph, "l", ["X", "V"]), {"X": [1, 2]})
    np.testing.assert_array_equal(found["grad_X"], [2, 4])
    np.testing.assert_array_equal(found["grad_V"], [2, 4])


def test_a_zeroth_power_is_flat_at_zero() -> None:
    graph = ed.parse("input X[i: 2], Y[i: 2]\nl[] <- sum X[i]**0 + X[i]**Y[i]\noutput l")
    found = ed.evaluate(ed.grad(graph, "l", "X"), {"X": [0, 2], "Y": [0, 3]})
    np.testing.assert_array_equal(found["grad_X"], [0, 12])


def test_second_derivatives() -> None:
    graph = ed.parse("input X[i: 3] float64\nl[] <- sum X[i]**3 * sin(X[i])\noutput l")
    first = ed.grad(graph, "l", ["X"])
    ed.extend(first, "s[] <- sum grad_X[i]**2\noutput s")
    values = arrays(first)
    second = ed.evaluate(ed.grad(first, "s", ["X"]), values)
    x = torch.tensor(values["X"], requires_grad=True)
    (g,) = torch.autograd.grad((x**3 * torch.sin(x)).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad((g**2).sum(), x)
    np.testing.assert_allclose(second["grad_grad_X"], h.numpy(), rtol=1e-9)


COMPLEX = [
    ("X[i] * conj(X[i]) + Y[i] * X[i]", lambda x, y: x * x.conj() + y * x),
    ("exp(X[i]) / (X[i] + 2) + sqrt(X[i] + 3)", lambda x, _: x.exp() / (x + 2) + (x + 3).sqrt()),
    ("real(X[i]) * X[i] + imag(X[i] * X[i])", lambda x, _: x.real * x + (x * x).imag),
    ("abs(X[i])**2 * Y[i] + tanh(X[i])", lambda x, y: x.abs() ** 2 * y + x.tanh()),
    ("sin(X[i]) * cos(X[i])", lambda x, _: x.sin() * x.cos()),
    ("X[i]**3 + log(X[i] + 4) * Y[i]**2", lambda x, y: x**3 + (x + 4).log() * y**2),
]


@pytest.mark.parametrize(("join", "same"), COMPLEX)
def test_complex_gradients_are_torchs(join: str, same: Any) -> None:
    graph = ed.parse(
        f"input X[i: 3] complex128\ninput Y[i: 3] float64\nZ[i] <- {join}\n"
        f"l[] <- sum real(Z[i])**2 + 2 * imag(Z[i])\noutput l"
    )
    values = arrays(graph)
    found = ed.evaluate(ed.grad(graph, "l", ["X", "Y"]), values)
    x = torch.tensor(values["X"], requires_grad=True)
    y = torch.tensor(values["Y"], requires_grad=True)
    z = same(x, y) + 0 * y
    (z.real**2 + 2 * z.imag).sum().backward()
    np.testing.assert_allclose(found["grad_X"], x.grad.numpy(), rtol=1e-9)
    np.testing.assert_allclose(found["grad_Y"], y.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_a_classifier_trains_like_torch() -> None:
    graph = ed.parse("""
    input X[b: 5, f: 7] float64
    input W[f, h: 4] float64
    input V[h, c: 3] float64
    input y[b: 5] int64
    H[b,h] <- sum X[b,f] * W[f,h]
    R[b,h] <- silu(H[b,h])
    O[b,c] <- sum R[b,h] * V[h,c]
    L[b,c] <- log_softmax[c] O[b,c]
    hit[b] <- L[b, y[b]]
    loss[] <- sum (-hit[b] / size(b))
    output loss
    """)
    values = arrays(graph)
    found = ed.evaluate(ed.rewrite(ed.grad(graph, "loss", ["W", "V"])), values)
    w, v = (torch.tensor(values[n], requires_grad=True) for n in "WV")
    out = torch.nn.functional.silu(torch.tensor(values["X"]) @ w) @ v
    loss = torch.nn.functional.cross_entropy(out, torch.tensor(values["y"]))
    loss.backward()
    np.testing.assert_allclose(found["loss"], loss.item(), rtol=1e-12)
    np.testing.assert_allclose(found["grad_W"], w.grad.numpy(), rtol=1e-9)
    np.testing.assert_allclose(found["grad_V"], v.grad.numpy(), rtol=1e-9)


def test_what_the_loss_does_not_need_gets_zeros() -> None:
    graph = ed.parse("input X[i: 3], Y[j: 2]\nl[] <- sum X[i]\noutput l")
    found = ed.evaluate(ed.grad(graph, "l", ["Y", "X"]), arrays(graph))
    np.testing.assert_array_equal(found["grad_Y"], [0, 0])
    np.testing.assert_array_equal(found["grad_X"], [1, 1, 1])


def test_gradients_by_intermediate_tensors_and_in_low_precision() -> None:
    graph = ed.parse("input X[i: 3] bfloat16\nY[i] <- X[i] * 2\nl[] <- sum Y[i]**2\noutput l")
    gradient = ed.grad(graph, "l", ["Y", "X"])
    assert [v.dtype.name for v in gradient.outputs] == ["bfloat16"] * 3
    found = ed.evaluate(gradient, {"X": [1, 2, 3]})
    np.testing.assert_array_equal(found["grad_Y"].astype(float), [4, 8, 12])
    np.testing.assert_array_equal(found["grad_X"].astype(float), [8, 16, 24])


WRONG = [
    ("Y", ["X"], "has shape"),
    ("l", ["k"], "its dtype is int32"),
    ("l", ["X", "X"], "twice"),
    ("l", ["nothing"], "no tensor 'nothing'"),
    ("c", ["Z"], "needs a real number"),
    ("h", ["X"], "aggregation 'm' has no gradient rule"),
]


@pytest.mark.parametrize(("loss", "wrt", "message"), WRONG)
def test_gradients_that_do_not_exist_are_refused(loss: str, wrt: list[str], message: str) -> None:
    graph = ed.parse(
        "monoid m(x; y) = max(x, y) identity -inf\ninput X[i: 3], k[] int32\n"
        "input Z[i: 3] complex64\nY[i] <- X[i] * k[]\nl[] <- sum Y[i]\nc[] <- sum Z[i]\n"
        "h[] <- m X[i]\noutput l"
    )
    with pytest.raises(ed.EinDecompError, match=message):
        ed.grad(graph, loss, wrt)
