"""A plan against strategies: what is compared, and that nothing beats the plan."""

from __future__ import annotations

import re
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eindecomp as ed
from eindecomp.errors import PlanError
from eindecomp.planner.make import plan
from eindecomp.show.compare import THIS, compare
from eindecomp.store.plan_file import from_json, to_json
from strategies import graphs

ATTENTION = Path(__file__).parents[2] / "examples" / "multihead_attention.ein"
ASKED: dict[str, dict[str, Any]] = {
    "bytes": {},
    "sharded": {"inputs": "sharded"},
    "bound": {"objective": "bound"},
    "time": {"objective": "time", "machine": "cpu-cluster"},
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("asked", ASKED)
def test_no_strategy_beats_the_plan(asked: str) -> None:
    made = plan(ed.load(ATTENTION), 8, **ASKED[asked])
    found = made.compare()
    assert [row.name for row in found] == [THIS, "sqrt", "context", "ring", "ulysses", "attention"]
    assert len(found) == 6
    assert all((row.memory is None) == (asked == "bound") for row in found)
    for row in found:
        assert row.cost is not None
        assert row.ratio == pytest.approx(row.cost / made.cost)
        assert row.ratio >= 1 - 1e-9


@given(graphs(), st.sampled_from([2, 4, 6]), st.sampled_from(sorted(ASKED)))
def test_no_strategy_beats_the_plan_of_any_graph(graph: ed.Graph, devices: int, asked: str) -> None:
    made = plan(graph, devices, **ASKED[asked])
    labels = sorted({label for v in made.graph.vertices.values() for label in v.labels})
    strategies: dict[str, str | list[str]] = {label: [label] for label in labels}
    for row in made.compare(strategies | {"sqrt": "sqrt"}):
        assert row.ratio is not None
        assert row.ratio >= 1 - 1e-9


def test_the_table_can_be_read() -> None:
    made = plan(ed.load(ATTENTION), mesh={"node": 2, "gpu": 4})
    text = str(made.compare({"heads": ["h"], "square": "sqrt"}))
    lines = text.splitlines()
    assert re.match(
        r" this plan +free +28 KiB \(28,672 bytes\) +1.00× +optimal +250 KiB$", lines[2]
    )
    assert re.match(r" heads +h +224 KiB \(229,376 bytes\) +8.00× +optimal +\S+ KiB$", lines[3])
    assert re.match(r" square +sqrt ", lines[4])


def test_strategies_are_planned_as_the_plan_was() -> None:
    graph = ed.parse("input X[i: 8, j: 8]\nY[i,j] <- exp(X[i,j])\noutput Y")
    pinned = plan(graph, mesh={"node": 2, "gpu": 2}, pin={"X": {"i": ["node", "gpu"]}})
    [this, rows, columns] = pinned.compare({"rows": ["i"], "columns": ["j"]})
    assert (this.cost, rows.cost, rows.ratio) == (0, 0, 1.0)
    assert columns.cost == 4 * 64 * 3 // 4  # each device has a quarter of what it needs
    assert columns.ratio == inf
    assert "∞" in str(pinned.compare({"columns": ["j"]}))


def test_strategies_keep_what_is_pinned() -> None:
    graph = ed.parse(
        "input X[i: 8, j: 8]\nY[i,j] <- exp(X[i,j])\nZ[i,j] <- Y[i,j] + Y[j,i]\noutput Z"
    )
    made = plan(graph, 4, pin={"Y": {"j": 4}}, rewrite=False)
    for again in (made, from_json(to_json(made))):
        [this, columns, rows] = again.compare({"columns": ["j"], "rows": ["i"]})
        assert columns.cost == this.cost == 4 * 64 * 3 // 4
        assert (rows.cost, rows.refused) == (None, "found no plan that agrees with the pins")
    [_, free] = plan(graph, 4, rewrite=False).compare({"rows": ["i"]})
    assert free.cost is not None
    # A number of pieces leaves the axes to every strategy.
    split = plan(graph, mesh={"a": 2, "b": 2}, pin={"X": {"i": 2}}, rewrite=False)
    assert (
        split.compare({"rows": ["i"]}).rows[1].cost
        == plan(
            graph, mesh={"a": 2, "b": 2}, pin={"X": {"i": 2}}, strategy=["i"], rewrite=False
        ).cost
    )


def test_a_mistake_is_known_before_anything_is_planned() -> None:
    made = plan(ed.load(ATTENTION), 4)
    with pytest.raises(PlanError, match="strategy 'tensor' is not one of"):
        made.compare({"heads": ["h"], "mine": "tensor"})


def test_a_strategy_without_a_plan_says_why() -> None:
    graph = ed.parse("input X[i: 64, j: 64], W[j, k: 64]\nY[i,k] <- sum X[i,j] * W[j,k]\noutput Y")
    made = plan(graph, 4, memory="1MB")
    [_, row] = compare(replace(made, memory=10_000), {"rows": ["i"]})
    assert row.cost is row.ratio is row.gap is None
    assert "memory" in (row.refused or "")
    assert "no plan: " in str(compare(replace(made, memory=10_000), {"rows": ["i"]}))


@pytest.mark.parametrize("unnamed", ["data", ["data"]])
def test_strategies_without_names_are_refused(unnamed: Any) -> None:
    made = plan(ed.parse("input X[i: 8]\nZ[i] <- X[i] * 2\noutput Z"), 2)
    with pytest.raises(PlanError, match=r'by name, such as \{"data": "data"\}, not as'):
        made.compare(unnamed)
