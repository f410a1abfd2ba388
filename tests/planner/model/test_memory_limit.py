"""What a device holds: a plan keeps to its limit, and no more is counted than is held."""

from __future__ import annotations

import numpy as np
import pytest
from brute_memory import Setting, assignments, frontier, plan_way
from random_graphs import random_graph

import eindecomp as ed


def least_found(memory):
    """What an error says of the least memory."""
    return rf"found no plan that fits into .* least found: .* \({memory:,} bytes\), at step"


FEW = 60  # assignments of all vertices together, which have many homes each


@pytest.mark.one_in(6)
@pytest.mark.long("0-sharded")
@pytest.mark.parametrize("inputs", ["free", "sharded"])
@pytest.mark.parametrize("seed", range(10))
def test_every_limit_gets_its_best_plan(seed, inputs):
    """On the verge of every limit at which less can be moved, and just below the next."""
    graph = random_graph(seed, tree=False, most=3)
    for axes in ((2,), (2, 2), (3, 2)):
        setting = Setting(graph, axes, inputs)
        if assignments(setting) > FEW:
            continue
        asked = {
            "mesh": {f"axis{a}": size for a, size in enumerate(axes)},
            "inputs": inputs,
            "rewrite": False,
            "pending": False,
        }
        best = frontier(setting)
        ends = [most - 1 for most, _ in best[1:]] + [2 * best[-1][0]]
        for (most, cost), end in zip(best, ends, strict=True):
            for memory in {most, end}:
                found = ed.plan(graph, memory=memory, **asked)
                assert found.cost == found.bound == cost
                moved, held = plan_way(found)
                assert max(held, default=0) <= memory
                assert moved + sum(found.costs.aggregate.values()) == cost
        with pytest.raises(ed.PlanError, match=least_found(best[0][0])):
            ed.plan(graph, memory=best[0][0] - 1, **asked)


QUARTER = 64 * 64 * 4 // 4  # bytes of a matrix that four devices share


@pytest.mark.parametrize(
    ("text", "asked", "least"),
    [
        # Step 2 holds X, Y, which its reader sees as it lies, and what is made of it.
        ("Y[i,j] <- exp(X[i,j])\nZ[i] <- sum Y[i,j]", {}, 2 * QUARTER + 64),
        ("Y[i,j] <- exp(X[i,j])\nZ[i,j] <- Y[i,j] + 1", {}, 3 * QUARTER),
        # A window of what is held is a view too.
        ("Y[i,j] <- exp(X[i,j])\nZ[i,j] <- Y[i, j in 0:8]", {}, 2 * QUARTER + QUARTER // 8),
        ("Z[i,j] <- exp(X[i,j])", {"pin": {"X": {"i": 4}}}, 2 * QUARTER),
        ("Z[i,j] <- exp(X[i,j])", {"pin": {"X": {}}}, 5 * QUARTER),
        ("Z[i,j] <- exp(X[i,j])", {"inputs": "sharded"}, 2 * QUARTER),
    ],
)
def test_what_is_held_already_is_no_copy(text, asked, least):
    graph = ed.parse(f"input X[i: 64, j: 64]\n{text}\noutput Z")
    assert ed.plan(graph, 4, memory=least, rewrite=False, **asked).cost == 0
    with pytest.raises(ed.PlanError, match=least_found(least)):
        ed.plan(graph, 4, memory=least - 1, rewrite=False, **asked)


def test_what_is_read_across_a_sharded_input_is_copied():
    """Two of the four tiles lie off the diagonal, where the other reader needs another tile."""
    graph = ed.parse(
        "input X[i: 64, j: 64]\nA[i,j] <- exp(X[i,j])\nZ[i,j] <- A[i,j] + X[i,j] * X[j,i]\noutput Z"
    )
    found = ed.plan(graph, 4, inputs="sharded", memory=4 * QUARTER, rewrite=False)
    assert found.cost == found.bound == 2 * QUARTER
    with pytest.raises(ed.PlanError, match=least_found(4 * QUARTER)):
        ed.plan(graph, 4, inputs="sharded", memory=4 * QUARTER - 1, rewrite=False)


CHAIN = ed.parse(
    "input A[i: 64, j: 64], B[j, k: 64], C[k, l: 64]\n"
    "Z[i,k] <- sum A[i,j] * B[j,k]\nY[i,l] <- sum Z[i,k] * C[k,l]\nS[l] <- sum Y[i,l]\noutput S"
)
MAP = ed.parse("input X[i: 8, j: 8]\nZ[i,j] <- exp(X[i,j])\noutput Z")


def test_an_input_that_several_read_alike_is_held_once():
    graph = ed.parse(
        "input X[i: 64, j: 64]\nA[i] <- sum X[i,j]\nB[i] <- max X[i,j]\nC[i] <- min X[i,j]\n"
        "output A, B, C"
    )
    quarter = 64 * 64 * 4 // 4
    assert ed.plan(graph, 4, memory=quarter + 400).cost == 0
    with pytest.raises(
        ed.PlanError, match=r"found no plan .* at step 3 of 3, which computes C\[i\]"
    ):
        ed.plan(graph, 4, memory=quarter + 4)


@pytest.mark.long
def test_less_memory_never_costs_less():
    costs = [ed.plan(CHAIN, 8, memory=memory).cost for memory in ("50KB", "32KB", "26KB")]
    assert costs == sorted(costs)
    assert costs[0] == ed.plan(CHAIN, 8).cost


@pytest.mark.parametrize("memory", [1024, 20_000])
def test_whatever_is_too_little_the_least_is_said(memory):
    """24 KiB: an eighth of A and B in rows and columns, copied as squares, and of Z."""
    with pytest.raises(ed.PlanError, match=least_found(24 * 1024)) as error:
        ed.plan(CHAIN, 8, memory=memory)
    assert ("every plan needs 4.0 KiB or more" in str(error.value)) == (memory < 4096)
    assert ed.plan(CHAIN, 8, memory=24 * 1024).memory == 24 * 1024


@pytest.mark.parametrize("memory", ["lots", "70XB", -1, 1.5, 1e6, np.float64(1e6), True])
def test_what_is_no_amount_of_memory_is_named(memory):
    with pytest.raises(
        ed.PlanError, match="memory must be a number of bytes or a text such as '70GB'"
    ):
        ed.plan(MAP, 4, memory=memory)


def test_a_diagonal_of_a_stored_input_has_a_plan():
    graph = ed.parse("input X[i: 8, j: 8] float64\nT[i] <- X[i,i] * 2\noutput T")
    assert ed.plan(graph, 4, inputs="sharded", memory="1GB").cost == 0


def test_an_input_that_nobody_reads_takes_no_memory():
    graph = ed.parse("input U[i: 1000, j: 1000], X[k: 8]\nY[k] <- X[k] + 1\noutput Y")
    assert ed.plan(graph, 4, inputs="sharded", memory="1kB").cost == 0
