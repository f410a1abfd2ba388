"""Objective `bound` where there are too many partition vectors to list."""

from __future__ import annotations

import pytest

import eindecomp as ed
from eindecomp.planner import budgets

CHAIN = ed.parse(
    "input A[i: 64, j: 64], B[j, k: 64], C[k, l: 64]\n"
    "Z[i,k] <- sum A[i,j] * B[j,k]\nY[i,l] <- sum Z[i,k] * C[k,l]\nS[l] <- sum Y[i,l]\noutput S"
)


def summed(rank: int, *, shared: bool) -> ed.Graph:
    """A sum over many labels, of a given tensor or of one that others read, too."""
    labels = [f"a{k}" for k in range(rank)]
    own, size = ",".join(labels), ", ".join(f"{label}: 2" for label in labels)
    read, more = ("Y", f"Y[{own}] <- exp(X[{own}])\nM[] <- max Y[{own}]\n") if shared else ("X", "")
    outputs = "S, M, Y" if shared else "S"
    return ed.parse(f"input X[{size}]\n{more}S[] <- sum {read}[{own}]\noutput {outputs}")


def test_what_the_papers_objective_cannot_list_is_named():
    with pytest.raises(ed.PlanError, match=r"Y\[a0,a1.*30 in all.* in 593,775 ways, too many"):
        ed.plan(summed(30, shared=True), 64, "bound")


def test_a_trimmed_list_of_choices_claims_no_more_than_is_so(monkeypatch):
    whole = ed.plan(CHAIN, 64, "bound")
    monkeypatch.setattr(budgets, "ALL_CELLS", 20)
    trimmed = ed.plan(CHAIN, 64, "bound")
    assert trimmed.bound <= whole.cost <= trimmed.cost
    with pytest.raises(ed.PlanError, match="no plan was proved optimal"):
        ed.plan(CHAIN, 64, "bound", solver="exact")
