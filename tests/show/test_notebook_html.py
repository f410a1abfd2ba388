"""What notebooks show: whole HTML, with what a reader looks for in it."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.planner.costs.cost import Cost
from eindecomp.planner.make import plan
from eindecomp.planner.plan import Plan

EXAMPLES = Path(__file__).parents[2] / "examples"
VOID = {"g", "rect", "path"}  # written as <rect/>


class Reader(HTMLParser):
    """Collects text, and checks that every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        assert tag in VOID

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    assert reader.open == []
    return reader


def chain(count: int) -> Plan:
    """The plan of vertices that all differ."""
    lines = [f"X{n + 1}[a] <- X{n}[a] * {n + 2}" for n in range(count)]
    text = "\n".join(["input X0[a: 4]", *lines, f"output X{count}"])
    return plan(ed.parse(text), 2, rewrite=False)


def test_a_graph_is_its_picture_and_its_text() -> None:
    graph = ed.load(EXAMPLES / "multihead_attention.ein")
    shown = read(graph._repr_html_())
    assert shown.seen.count("svg") == 1
    assert str(graph) in "".join(shown.text)
    read(ed.Graph()._repr_html_())


def test_a_plan_is_its_picture_its_summary_and_its_table() -> None:
    made = plan(ed.load(EXAMPLES / "multihead_attention.ein"), 8, inputs="sharded")
    shown = read(made._repr_html_())
    assert str(made) in shown.text
    assert shown.seen.count("tr") == 1 + len(made.parts)
    assert {"T[h,s,t] <- sum QH[s,h,d] * KH[t,h,d]", "h/4 s/2", "8.33 %"} <= set(shown.text)
    assert made.draw().svg in made._repr_html_()


def test_a_plan_that_is_too_large_is_not_drawn_unasked() -> None:
    made = chain(500)
    shown = read(made._repr_html_())
    assert "svg" not in shown.seen
    assert "plan.draw('plan.svg')" in "".join(shown.text)
    assert shown.seen.count("tr") == 1 + 200
    assert "… and 300 rows more" in "".join(shown.text)


def test_the_cost_of_a_plan_is_not_summed_for_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = [chain(8), chain(24)]
    total, sums = Cost.total.fget, []
    assert total is not None
    monkeypatch.setattr(Cost, "total", property(lambda cost: sums.append(1) or total(cost)))
    for show in (Plan._repr_html_, Plan.explain):
        counts = []
        for made in plans:
            sums.clear()
            show(made)
            counts.append(len(sums))
        assert counts[0] == counts[1] > 0


def test_a_result_shows_its_outputs_and_what_the_run_took() -> None:
    graph = ed.parse("input X[i: 8, j: 8]\nZ[i] <- sum X[i,j]\noutput Z")
    result = ed.run(plan(graph, 2), {"X": np.ones((8, 8), np.float32)})
    assert repr(result).startswith("<Result Z[8] float32; ")
    assert repr(result).endswith(f"{result.stats.bytes_moved:,} bytes moved>")
    words = read(result._repr_html_()).text
    assert {"Z", "8", "float32", "moved between devices"} <= set(words)
    assert "peak memory (devices that share memory count as one)" in words


def test_a_comparison_is_a_table() -> None:
    compared = plan(ed.load(EXAMPLES / "multihead_attention.ein"), 8).compare()
    shown = read(compared._repr_html_())
    assert shown.seen.count("tr") == 1 + len(compared)
    assert {row.name for row in compared} <= set(shown.text)
    assert repr(compared).startswith(f"<Comparison, bytes: this plan {compared.rows[0].cost:,}, ")
