"""Plans that DTensor carries out on real ranks: results are right, and bytes as counted before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jobs import launch, needs_torch, run_command

import eindecomp as ed

SCRIPT = Path(__file__).parent / "ranks" / "gloo_plans.py"
MLP = """
input X[s: 16, a: 8], W1[f: 32, a], W2[a, f]
H[s,f] <- sum X[s,a] * W1[f,a]
R[s,f] <- relu(H[s,f])
Y[s,o] <- sum R[s,f] * W2[o,f]
P[s,o] <- softmax[o] Y[s,o]
output P
"""
STRIDED = "input X[i: 24, j: 4]\nZ[i] <- sum X[i,j]\noutput Z"


@pytest.mark.long
@needs_torch
def test_gloo_moves_what_was_counted_without_it(tmp_path):
    plans = [
        ed.plan(ed.parse(MLP), 4, strategy=["f"], inputs="sharded"),
        ed.plan(ed.parse(MLP), 4, strategy=["s"], inputs="sharded"),
        ed.plan(
            ed.parse(STRIDED), mesh={"x": 2, "y": 2}, inputs="sharded",
            pin={"X": {"i": ("y", "x")}, "Z": {"i": ("x", "y")}},
        ),
        ed.plan(ed.parse(MLP.replace("16", "15")), 4, strategy=["s"], pieces="ceil"),
    ]  # fmt: skip
    paths = [tmp_path / f"{k}.json" for k in range(len(plans))]
    for plan, path in zip(plans, paths, strict=True):
        plan.save(path)
    job = run_command([*launch("torch", 4), str(SCRIPT), *map(str, paths)])
    assert job.status == 0, job.err
    counted = [plan.verify_torch(device="cpu").counted for plan in plans]
    assert json.loads(job.out) == counted
    assert all(counted[:3])


@pytest.mark.parametrize("strategy", [["f"], ["s"]])
def test_those_plans_move_what_was_planned(strategy):
    found = ed.plan(ed.parse(MLP), 4, strategy=strategy, inputs="sharded").verify_torch(
        device="cpu"
    )
    assert found.matches
    assert found.planned > 0
