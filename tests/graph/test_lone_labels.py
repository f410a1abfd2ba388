"""Operands that are aggregated each over a label of its own are warned of, and only they."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import eindecomp as ed

HEAD = "input X[i: 2, j: 3], Y[j, k: 4], A[a: 3, b: 3], w[m: 5]\n"
MISSPELT = [
    "Z[i,k] <- sum X[i,jj] * Y[j,k]",
    "Z[i,k] <- sum X[i,j] * Y[jj,k]",
    "Z[i,k] <- sum -X[i,jj] * exp(Y[j,k]) / 3",
    "Z[i,k] <- sum X[i,jj] / Y[j,k]",
    "Z[i,k] <- sum (X[i,jj] - Y[j,k])**2",
    "Z[i,k] <- sum abs(X[i,jj] - Y[j,k])",
    "Z[i,k] <- max X[i,jj] + Y[j,k]",
    "Z[i,k] <- max abs(X[i,jj] - Y[j,k]) * 2",
]
MEANT = [
    "Z[i,k] <- sum X[i,j] * Y[j,k]",
    "Z[j] <- sum abs(X[i,j] - X[i2,j])",
    "Z[] <- max abs(Y[j,0] - Y[jj,0])",
    "Z[i] <- sum X[i,j] * w[m]",
    "Z[] <- sum A[a,a] * A[b,b]",
    "Z[i] <- max X[i,jj] + Y[j,0]",
    "Z[i] <- sum X[i,j]",
    "macro apart[j](U[*b,j], V[j,*c]) -> W[*b,*c] { W[*b,*c] <- sum U[*b,q] * V[j,*c] }\n"
    "Z[i,k] <- apart[j](X[i,j], Y[j,k])",
]


@pytest.mark.parametrize("text", MISSPELT)
def test_text_is_warned_of_once(text: str, tmp_path: Path) -> None:
    with pytest.warns(ed.LabelWarning, match="<text>:2:.*'jj' and 'j'|'j' and 'jj'") as told:
        graph = ed.parse(f"{HEAD}{text}\noutput Z")
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", ed.LabelWarning)
        plan = ed.plan(graph, 2)
        plan.save(tmp_path / "plan.json")
        assert ed.Plan.load(tmp_path / "plan.json").cost == plan.cost


@pytest.mark.parametrize("text", MEANT)
def test_what_is_meant_is_not(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ed.LabelWarning)
        ed.parse(f"{HEAD}{text}\noutput Z")


def test_python_is_warned_of() -> None:
    x, y = np.ones((2, 3)), np.ones((3, 4))
    with pytest.warns(
        ed.LabelWarning, match="ij,lk->ik: labels 'j' and 'l', both of size 3"
    ) as told:
        assert (ed.einsum("ij,lk->ik", x, y) == 9).all()
    assert told[0].filename == __file__


def test_our_own_graphs_have_none() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ed.LabelWarning)
        for path in Path(__file__).parents[2].glob("examples/**/*.ein"):
            ed.load(path)
        ed.models.ffnn(batch=4, features=4, hidden=4, classes=4)
        ed.models.chain(20)
