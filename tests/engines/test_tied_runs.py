"""State that lives on: with ties, n runs move n times what one costs, and nothing between them."""

from __future__ import annotations

import pytest
from agreement import JAX, RAY, TORCH, agree, arrays_for, precise
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import random_step

import eindecomp as ed

STEPS = 3
every_engine = pytest.mark.parametrize("engine", ["threads", "apart", TORCH, JAX])
UPDATE = (
    "input W[i: 8, j: 6], X[b: 4, i]\nY[b,j] <- sum X[b,i] * W[i,j]\n"
    "new_W[i,j] <- sum W[i,j] + X[b,i] * Y[b,j]\noutput Y, new_W\ntie W <- new_W"
)


def run_on(plan, arrays, engine, *, donate):
    """The results of some runs, each from what the last one left of the tied inputs."""
    results = []
    with ed.compile(plan, engine) as executable:
        state = executable.place({name: arrays[name] for name in plan.tie})
        for _ in range(STEPS):
            result = executable({**arrays, **state}, donate=state if donate else ())
            results.append(({name: result[name].copy() for name in result}, result.stats))
            state = {name: result.tensor(new) for name, new in plan.tie.items()}
    return results


@pytest.mark.long("jax")
@every_engine
@given(
    seed=st.integers(0, 10**6),
    devices=st.sampled_from([2, 4, 6]),
    inputs=st.sampled_from(["free", "sharded"]),
    rewrite=st.booleans(),
    donate=st.booleans(),
)
def test_runs_move_what_the_plan_costs_and_nothing_else(
    engine, seed, devices, inputs, rewrite, donate
):
    with precise():
        graph, tie = random_step(seed)
    for name, result in tie.items():
        graph.tie(name, result)
    plan = ed.plan(graph, devices, inputs=inputs, rewrite=rewrite)
    assert plan.tie == tie
    arrays = arrays_for(graph)
    for found, stats in run_on(plan, arrays, engine, donate=donate):
        assert stats.bytes_moved == plan.cost
        assert stats.bytes_placed == 0
        wanted = ed.evaluate(graph, arrays)
        agree(found, wanted, 1e-5)
        # From its own numbers, so that rounding does not grow from run to run.
        arrays |= {name: found[result] for name, result in tie.items()}


@pytest.mark.parametrize("engine", ["threads", "apart", TORCH, JAX, RAY])
@pytest.mark.parametrize("more", ["output W", "output Z\ntie V <- Z"])
def test_tied_inputs_may_be_outputs_or_read_by_nobody(engine, more):
    extra = "input V[b: 4, j: 6]\nZ[b,j] <- Y[b,j] * 2\n"
    graph = ed.parse(UPDATE.replace("output Y", f"{extra}output Y", 1) + "\n" + more)
    plan = ed.plan(graph, 4)
    arrays = arrays_for(graph)
    for found, stats in run_on(plan, arrays, engine, donate=False):
        assert (stats.bytes_moved, stats.bytes_placed) == (plan.cost, 0)
        agree(found, ed.evaluate(graph, arrays), 1e-5)
        arrays |= {name: found[result] for name, result in plan.tie.items()}


def test_the_ties_of_the_graph_hold_unless_others_are_given():
    graph = ed.parse(UPDATE)
    assert ed.plan(graph, 4).tie == {"W": "new_W"}
    assert ed.plan(graph, 4, tie={}).tie == {}
    untied = ed.parse(UPDATE.partition("tie")[0])
    assert ed.plan(untied, 4).tie == {}
    assert ed.plan(untied, 4, tie=graph.ties).cost == ed.plan(graph, 4).cost
    assert ed.plan(graph, 4, objective="bound").tie == {}


@pytest.mark.parametrize("tie", [None, {}, {"W": "new_W"}])
def test_plan_files_keep_which_ties_were_planned(tie, tmp_path):
    plan = ed.plan(ed.parse(UPDATE), 4, tie=tie)
    plan.save(tmp_path / "plan.json")
    again = ed.Plan.load(tmp_path / "plan.json")
    assert (again.tie, again.cost, again.graph) == (plan.tie, plan.cost, plan.graph)


@pytest.mark.parametrize(
    ("tie", "message"),
    [
        ({"V": "new_W"}, "tie: the graph has no input 'V'"),
        ({"W": "new_V"}, "tie: the graph has no output 'new_V'; did you mean 'new_W'"),
        (
            {"X": "new_W"},
            r"tie: X\[b,i\] is float32 \[4, 8\], but new_W\[i,j\] is float32 \[8, 6\]",
        ),
        ([("W", "new_W")], "a tie is {input: result}"),
    ],
)
def test_wrong_ties_are_refused(tie, message):
    with pytest.raises(ed.PlanError, match=message):
        ed.plan(ed.parse(UPDATE), 4, tie=tie)


def test_a_pin_of_a_tied_input_is_one_of_its_result():
    graph = ed.parse(UPDATE.replace("new_W[i,j] <- sum W[i,j]", "new_W[a,j] <- sum W[a,j]")
                     .replace("X[b,i] * Y", "X[b,a] * Y"))  # fmt: skip
    pinned = ed.plan(graph, 4, pin={"W": {"i": 4}})
    assert pinned.pin == {"W": {"i": 4}}
    assert pinned.given["W"].home == pinned.decisions["new_W"].home
    assert ed.plan(graph, 4, pin={"W": {"i": 4}, "new_W": {"a": 4}}).cost == pinned.cost
    with pytest.raises(ed.PlanError, match="are tied and have one home: pin only one"):
        ed.plan(graph, 4, pin={"W": {"i": 4}, "new_W": {"j": 2}})
    with pytest.raises(ed.PlanError, match="has no label 'q'"):
        ed.plan(graph, 4, pin={"W": {"q": 4}})
