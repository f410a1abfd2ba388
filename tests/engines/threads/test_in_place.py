"""Products added where the other term lies, and tiles cut for cores: the same results."""

from __future__ import annotations

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.engines.threads import shortcuts
from eindecomp.engines.threads.engine import ThreadsEngine
from eindecomp.engines.threads.shortcuts import cut_for_cores, find_sums
from eindecomp.engines.threads.tiled import SumInPlace, tile_program
from eindecomp.tra.program.make import program_of

HEAD = "input A[i: 40, j: 30], B[j, k: 50], C[i, j], D[j, k], E[k, n: 20]\n"
CHAIN = "X[i,k] <- sum A[i,j] * B[j,k]\nP[i,k] <- sum C[i,j] * D[j,k]\nZ[i,k] <- X[i,k] + P[i,k]\n"
RESIDUAL = """X[i,k] <- sum A[i,j] * B[j,k]
N[i] <- sum X[i,k]**2
U[i,j] <- A[i,j] * rsqrt(N[i])
P[i,k] <- sum U[i,j] * D[j,k]
Z[i,k] <- X[i,k] + P[i,k]
Q[i,n] <- sum Z[i,k] * E[k,n]
"""


def schedule_of(plan):
    return ThreadsEngine().prepare(plan).schedule


def run_both(text, devices, dtype="float32", **asked):
    graph = ed.parse(HEAD.replace("]", f"] {dtype}") + text)
    rng = np.random.default_rng(0)
    arrays = {v.name: rng.standard_normal(v.shape).astype(v.dtype) for v in graph.inputs}
    plan = ed.plan(graph, devices, rewrite=False, **asked)
    found = ed.run(plan, arrays, ThreadsEngine(workers=4))
    for name, right in ed.evaluate(graph, arrays).items():
        np.testing.assert_allclose(found[name], right, rtol=1e-4, atol=1e-4)
    assert found.stats.bytes_moved == plan.cost
    return plan


@pytest.mark.one_in(3)
@pytest.mark.parametrize("devices", [1, 2, 3, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("text", [CHAIN + "output Z", RESIDUAL + "output Q", RESIDUAL + "output Z"])
def test_a_product_is_added_in_place(text, dtype, devices):
    plan = run_both(text, devices, dtype)
    made = schedule_of(plan)
    assert made.key_of("Z") == "X"
    assert not {"P", "Z"} & set(made.shapes)


@pytest.mark.parametrize("labels", [["i"], ["k"], ["j"], ["n"]])
def test_any_cut_gives_the_same(labels):
    run_both(RESIDUAL + "output Q", 4, strategy=labels)


def test_sums_are_made_in_place_one_after_another():
    text = CHAIN + "R[i,k] <- sum A[i,j] * D[j,k]\nY[i,k] <- R[i,k] + Z[i,k]\noutput Y"
    made = schedule_of(run_both(text, 2))
    assert made.key_of("Z") == made.key_of("Y") == "X"


@pytest.mark.parametrize(
    "text",
    [
        CHAIN + "output X, Z",  # the other term is wanted
        CHAIN + "output P, Z",
        CHAIN + "W[i,k] <- X[i,k] * P[i,k]\noutput Z, W",  # read by others
        CHAIN + "W[i,k] <- exp(X[i,k])\noutput Z, W",  # the term is read later
        "X[i,j] <- exp(A[i,j])\nP[i,m] <- sum X[i,j] * C[m,j]\n"
        "T[i,m] <- P[i,m]\nZ[i,m] <- T[i,m] + P[i,m]\noutput Z",
        "P[i,k] <- sum A[i,j] * B[j,k]\nZ[i,k] <- P[i,k] + P[i,k]\noutput Z",
        "X[k,i] <- sum A[i,j] * B[j,k]\nP[i,k] <- sum C[i,j] * D[j,k]\n"
        "Z[i,k] <- X[k,i] + P[i,k]\noutput Z",  # lies otherwise
        "X[i,k] <- sum A[i,j] * B[j,k]\nP[i,k] <- max C[i,j] * D[j,k]\n"
        "Z[i,k] <- X[i,k] + P[i,k]\noutput Z",
    ],
)
def test_what_is_still_needed_is_not_overwritten(text):
    plan = run_both(text, 2)
    assert not schedule_of(plan).lies_in


def test_a_product_reduced_over_devices_is_not_folded():
    graph = ed.parse(f"{HEAD}{CHAIN}output Z")
    assert find_sums(graph, ()) == {"P": SumInPlace("Z", "X")}
    assert find_sums(graph, {"P"}) == {}


@pytest.mark.parametrize(("cores", "wide", "tiles"), [(1, 9, 1), (2, 99, 2), (3, 99, 3), (2, 8, 8)])
def test_products_have_as_many_tiles_as_cores_unless_all_are_wide(cores, wide, tiles, monkeypatch):
    monkeypatch.setattr(shortcuts, "_WIDE", wide)
    monkeypatch.setattr(shortcuts, "APART", 0)
    monkeypatch.setattr(shortcuts, "TOGETHER", 0)
    graph = ed.parse("input X[i: 64, j: 8], Y[j, k: 64]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z")
    plan = ed.plan(graph, 8, strategy="sqrt")
    [tiled] = cut_for_cores(tile_program(program_of(plan)), cores).vertices
    assert len(tiled.tiles) == tiles
    assert sorted(device for tile in tiled.tiles for device in tile.devices) == list(range(8))
    seen = np.zeros((64, 64), int)
    for tile in tiled.tiles:
        (a, b), (c, d) = tile.box
        seen[a:b, c:d] += 1
        assert tile.reads == (((a, b), (0, 8)), ((0, 8), (c, d)))
    assert (seen == 1).all()
    arrays = {v.name: np.random.default_rng(0).random(v.shape, np.float32) for v in graph.inputs}
    finished = []
    found = ed.run(plan, arrays, ThreadsEngine(cores), on_event=finished.append)
    np.testing.assert_allclose(found["Z"], arrays["X"] @ arrays["Y"], rtol=1e-5)
    assert {event.device for event in finished if hasattr(event, "device")} == set(range(8))
