"""The dataflow of a vertex moves what the plan says, and can be drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
from drawn import classed, read_svg, texts
from hypothesis import given, settings
from hypothesis import strategies as st

import eindecomp as ed
from eindecomp.errors import EinDecompError, PlanError
from eindecomp.planner.make import plan
from eindecomp.show.draw.vertex_dataflow import dataflow_of
from eindecomp.tra.program.make import program_of
from strategies import graphs

MATMUL = "input X[i: 8, j: 8], Y[j: 8, k: 8]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"


@settings(max_examples=15)
@given(graphs(), st.sampled_from([2, 4, 7]), st.sampled_from(["free", "sharded"]))
def test_arrows_carry_all_that_moves(graph: ed.Graph, devices: int, inputs: str) -> None:
    made = plan(graph, devices, inputs=inputs)
    moved = program_of(made).bytes_by_vertex
    for name in made.parts:
        flow = dataflow_of(made, name)
        assert flow.is_complete
        assert flow.moved == moved[name]


def test_the_paper_s_matrix_multiplication() -> None:
    """Cut along the summed label too: a join, then an aggregation."""
    made = plan(ed.parse(MATMUL), 8, pin={"X": {"i": 2, "j": 2}, "Y": {"j": 2, "k": 2}})
    flow = dataflow_of(made, "Z")
    assert flow.columns[:2] == ["tiles of X, Y", "kernel calls"]
    drawn = read_svg(made.draw_vertex("Z").svg)
    assert len(classed(drawn, "move")) == 1 + sum(arrow.moved > 0 for arrow in flow.arrows)
    assert len(classed(drawn, "rest")) == 1 + sum(arrow.moved == 0 for arrow in flow.arrows)


def test_of_many_devices_one_group_is_shown() -> None:
    graph = ed.parse("input X[i: 64, j: 64]\nZ[i] <- sum X[i,j]\noutput Z")
    made = plan(graph, 64, pin={"X": {"i": 16, "j": 4}})
    flow = dataflow_of(made, "Z")
    assert len(flow.shown) < 64
    rest = 64 - len(flow.shown)
    words = texts(read_svg(made.draw_vertex("Z").svg))
    assert any(f"of 64; the other {rest} devices work alike" in text for text in words)


def test_a_vertex_is_drawn_as_its_name_is() -> None:
    graph = ed.parse(MATMUL)
    made = plan(graph, 2)
    assert made.draw_vertex(graph["Z"]) == made.draw_vertex("Z")
    assert made.draw_tiles(graph["Z"]) == made.draw_tiles("Z")


def test_mistakes_are_named(tmp_path: Path) -> None:
    made = plan(ed.parse(MATMUL), 2)
    with pytest.raises(EinDecompError, match="'X' is not computed"):
        made.draw_vertex("X")
    with pytest.raises(EinDecompError, match="no tensor 'ZZ'"):
        made.draw_vertex("ZZ")
    with pytest.raises(EinDecompError, match=r"a file that ends in \.svg$"):
        made.draw_vertex("Z", tmp_path / "z.png")
    for wrong in (None, 3, ["Z"]):
        with pytest.raises(PlanError, match="a tensor or its name, not"):
            made.draw_vertex(wrong)  # pyright: ignore[reportArgumentType]
    made.draw_vertex("Z", tmp_path / "z.svg")
    read_svg((tmp_path / "z.svg").read_text())
