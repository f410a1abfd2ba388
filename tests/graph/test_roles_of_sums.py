"""Which partial results travel in which type."""

from __future__ import annotations

import pytest

import eindecomp as ed
from eindecomp.graph.reduce_types import reduce_types, with_reduce_types

STEP = """
monoid average(s, n; t, m) = (s + t, n + m) identity (0, 0) finish s / n
input X[b: 8, i: 4] bfloat16, W[i, j: 4] bfloat16, M[i,j], V[j], n[b] int32
Y[b,j] <- sum X[b,i] * W[i,j]
A[b]   <- average (Y[b,j], 1)
C[b]   <- sum n[b] * n[b]
G[i,j] <- sum float32(X[b,i]) * float32(Y[b,j])
new_M[i,j] <- 0.9 * M[i,j] + G[i,j]
new_W[i,j] <- bfloat16(new_M[i,j])
U[j]   <- sum float32(Y[b,j])
new_V[j] <- V[j] - U[j]
output A, C, new_M, new_W, new_V
tie M <- new_M, W <- new_W, V <- new_V
"""


def travelling(types):
    graph = ed.parse(STEP)
    made = with_reduce_types(graph, reduce_types(graph, types), graph.ties)
    known = {v.name: v.reduce_dtype for v in made.vertices.values()}
    return {name: of.name for name, of in known.items() if of is not None and name in "YACGU"}


def test_one_type_for_all():
    """But means and whole numbers, whose parts are no single floating-point numbers."""
    assert travelling("bfloat16") == dict.fromkeys("YGU", "bfloat16")


def test_roles_and_names():
    assert travelling({"gradients": "float16"}) == {"G": "float16", "U": "float16"}
    assert travelling({"activations": "bfloat16"}) == {"Y": "bfloat16"}
    assert travelling({"all": "bfloat16", "G": "float16"}) == {
        "Y": "bfloat16", "G": "float16", "U": "bfloat16"
    }  # fmt: skip
    assert travelling({"all": "bfloat16", "gradients": "float32"}) == {"Y": "bfloat16"}
    assert travelling("float64") == travelling(None) == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("int8", "reduce_dtype: partial results travel as floating-point numbers, not int8"),
        ("bfloat", "reduce_dtype: unknown dtype 'bfloat'; did you mean 'bfloat16'"),
        ({"gradient": "float16"}, "'gradient' is no tensor and no role; did you mean 'gradients'"),
        ({"Q": "float16"}, "reduce_dtype: 'Q' is no tensor and no role"),
        (7, "reduce_dtype"),
    ],
)
def test_bad_types(given, message):
    with pytest.raises(ed.PlanError, match=message):
        ed.plan(ed.parse(STEP), 2, reduce_dtype=given)


def test_a_tensor_that_was_fused_is_named():
    text = "input X[i: 4]\nA[i] <- exp(X[i])\nB[i] <- sin(A[i])\noutput B"
    with pytest.raises(ed.PlanError, match="rewriting has fused 'A'"):
        ed.plan(ed.parse(text), 2, reduce_dtype={"A": "bfloat16"})


def test_a_plan_says_so(tmp_path):
    plan = ed.plan(ed.parse(STEP), 4, reduce_dtype={"activations": "bfloat16"})
    said = " ".join(plan.explain().split())
    assert "partial results that travel as bfloat16 (activations)" in said
    plan.save(tmp_path / "plan.json")
    assert ed.Plan.load(tmp_path / "plan.json") == plan
    text = (tmp_path / "plan.json").read_text("utf-8")
    (tmp_path / "bad.json").write_text(text.replace('"activations"', '"actions"'), "utf-8")
    with pytest.raises(ed.EinDecompError, match="'actions' is no tensor and no role"):
        ed.Plan.load(tmp_path / "bad.json")
