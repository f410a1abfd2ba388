"""Options whose text says more than one thing: strategies, ties, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import eindecomp as ed
from eindecomp.cli.options import strategy_from, tie_from
from eindecomp.cli.root import app

ATTENTION = Path(__file__).parents[2] / "examples" / "multihead_attention.ein"


def test_a_strategy_says_different_labels_for_different_vertices(tmp_path):
    asked, out = "d:2, Y=s, t=h+s, s", tmp_path / "plan.json"
    made = CliRunner().invoke(
        app, ["plan", str(ATTENTION), "-p8", "--strategy", asked, "-o", str(out)]
    )
    assert made.exit_code == 0, made.output
    plan = ed.Plan.load(out)
    labels = {"Y": ["s"], "t": ["h", "s"], "*": ["s"]}
    strategy = {"labels": labels, "degrees": {"d": 2}}
    assert plan == ed.plan(ed.load(ATTENTION), 8, strategy=strategy)
    assert (plan.parts["T"]["h"], plan.parts["QH"]["s"], plan.parts["QH"]["d"]) == (4, 4, 2)
    shown = CliRunner().invoke(app, ["compare", str(ATTENTION), "-p8", "--with", asked, "--json"])
    assert json.loads(shown.stdout)["rows"][1]["cost"] == plan.cost


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("free", None),
        ("sqrt", "sqrt"),
        ("sequence", "sequence"),
        ("h", ["h"]),
        ("h,f,state:replicated", {"labels": {"*": ["h", "f"]}, "state": "replicated"}),
        ("b:2", {"degrees": {"b": 2}}),
        ("s,t=h", {"labels": {"t": ["h"], "*": ["s"]}}),
        ("state:2,state", {"labels": {"*": ["state"]}, "degrees": {"state": 2}}),
    ],
)
def test_strategies(text, strategy):
    if isinstance(strategy, dict):
        strategy = {"labels": {}, "degrees": {}, "state": "free"} | strategy
    assert strategy_from(text) == strategy


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a label is missing"),
        ("i,,k", "a label is missing"),
        ("i=j+", "a label is missing"),
        ("=j", "strategy '=j' is such as"),
        (":2", "strategy ':2' is such as"),
        ("i,i", "'i' is there twice"),
        ("i:2,i:2", "'i' is given twice"),
        ("i=j,i=k", "'i' is given twice"),
        ("i=j+j", "'j' is there twice"),
        ("i:two", "'i:two' is neither such as b:2 nor one state"),
        ("i,state:lost", "free, replicated, gathered"),
        ("state:free,state:free", "'state' is given twice"),
    ],
)
def test_mistakes_in_strategies(text, message):
    with pytest.raises(typer.BadParameter, match=message):
        strategy_from(text)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["W"], "--tie is such as W=new_W, not 'W'"),
        (["W="], "--tie W: no result is named"),
        (["W=A", "W=B"], "--tie: 'W' is given twice"),
    ],
)
def test_mistakes_in_ties(texts, message):
    with pytest.raises(typer.BadParameter, match=message):
        tie_from(texts)
