"""Pictures of plans and graphs: all that moves is on them."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from drawn import classed, read_svg, texts
from hypothesis import given, settings
from hypothesis import strategies as st

import eindecomp as ed
from eindecomp.errors import EinDecompError
from eindecomp.planner.make import plan
from eindecomp.planner.plan import Plan
from eindecomp.show.graph_pictures import place_scene, plan_scene
from eindecomp.show.rows import graph_outline, moved_within, plan_outline
from eindecomp.show.svg import DARK, LIGHT, TILES
from layered_graph import normed_layers
from strategies import graphs

EXAMPLES = Path(__file__).parents[2] / "examples"


@cache
def attention(**asked: Any) -> Plan:
    return plan(ed.load(EXAMPLES / "multihead_attention.ein"), 8, **asked)


@cache
def planned_layers() -> Plan:
    return plan(normed_layers(6), 4)


@settings(max_examples=15)
@given(graphs(), st.sampled_from([2, 6]), st.booleans(), st.sampled_from(["free", "sharded"]))
def test_boxes_and_edges_carry_all_that_moves(
    graph: ed.Graph, devices: int, folded: bool, inputs: str
) -> None:
    made = plan(graph, devices, inputs=inputs)
    outline = plan_outline(made, folded=folded)
    edges = sum(edge.amount for edge in outline.edges)
    within = sum(sum(moved_within(made, box).values()) for box in outline.boxes)
    assert edges + within == made.traffic.total
    read_svg(made.draw(folded=folded).svg)


def test_attention_can_be_read() -> None:
    made = attention(inputs="sharded")
    root = read_svg(made.draw().svg)
    words = texts(root)
    assert (
        "384 KiB move between devices · objective bytes (proved optimal), inputs sharded" in words
    )
    assert {"T[h,s,t]", "sum QH[s,h,d] * KH[t,h,d]", "cut h/4 s/2", "reduce 32 KiB"} <= set(words)
    assert len(classed(root, "vertex")) == 9
    assert len(classed(root, "input")) == 7
    assert len(classed(root, "output")) == 1
    moving = [cost for cost in made.traffic.edges.values() if cost]
    assert len(classed(root, "tip-move")) == len(moving)
    thick = sorted(float(e.get("stroke-width", 0)) for e in classed(root, "move"))
    assert thick[0] < thick[-1]


def test_layers_are_folded_into_one() -> None:
    made = planned_layers()
    root = read_svg(made.draw().svg)
    assert "× 6" in texts(root)
    assert "X1[b,a] of the previous repetition" in texts(root)
    assert len(classed(root, "vertex")) + len(classed(root, "output")) == 5
    assert classed(root, "next")
    every = read_svg(made.draw(folded=False).svg)
    assert len(classed(every, "vertex")) + len(classed(every, "output")) == 30
    assert "× 6" not in texts(every)


def test_weights_that_both_passes_of_training_read_are_one_box() -> None:
    graph = normed_layers(6)
    graph.output(graph.einsum("b a ->", "X6", join="x**2", agg="sum", name="loss"))
    trained = ed.grad(graph, "loss", wrt=[f"W{i}" for i in range(6)])
    outline = graph_outline(trained)
    assert sorted(name for box in outline.boxes for name in box.names) == sorted(trained)
    weights = [box for box in outline.boxes if box.is_source and "W3" in box.names]
    assert [box.times > 1 for box in weights] == [True]
    readers = {edge.target for edge in outline.edges if outline.boxes[edge.source] == weights[0]}
    assert len({outline.boxes[reader].block for reader in readers}) > 1
    read_svg(trained.draw().svg)


def test_boxes_do_not_overlap() -> None:
    scene = plan_scene(planned_layers())
    boxes = [
        (x - node.width / 2, y, x + node.width / 2, y + node.height)
        for node, (x, y) in zip(scene.nodes, place_scene(scene).items, strict=True)
    ]
    for (a, b, c, d), (e, f, g, h) in combinations(boxes, 2):
        assert c <= e or g <= a or d <= f or h <= b


def test_graphs_are_drawn_before_they_are_planned(tmp_path: Path) -> None:
    graph = normed_layers(6)
    root = read_svg(graph.draw(tmp_path / "graph.svg").svg)
    assert "× 6" in texts(root)
    assert not classed(root, "move")
    assert (tmp_path / "graph.svg").exists()
    read_svg(ed.Graph().draw().svg)
    alone = ed.parse("input X[i: 4]\noutput X")
    read_svg(plan(alone, 2).draw().svg)


def test_names_are_text_and_nothing_else() -> None:
    evil = "<script>alert('1')</script>&\"]]>"
    graph = ed.parse("input X[i: 8, j: 8]\nZ[i] <- sum where(X[i,j] < 1, X[i,j], 0)\noutput Z")
    made = plan(graph, mesh={evil: 2})
    for text in (made.draw().svg, made.draw_tiles("Z").svg, made._repr_html_()):
        assert "<script" not in text
    assert any(evil in words for words in texts(read_svg(made.draw().svg)))
    assert any(evil in words for words in texts(read_svg(made.draw_tiles("Z").svg)))


def test_mistakes_are_named(tmp_path: Path) -> None:
    made = attention()
    with pytest.raises(EinDecompError, match=r"plan.jpg: .* ends in \.svg$"):
        made.draw(tmp_path / "plan.jpg")
    with pytest.raises(OSError, match="missing"):
        made.draw(tmp_path / "missing" / "plan.svg")
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(OSError, match="folder"):
        made.draw(tmp_path / "folder.svg")


def _luminance(colour: str) -> float:
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_text_stands_out(colours: dict[str, str]) -> None:
    """By 4.5 to 1, as the WCAG ask of text."""
    for behind in ("back", "vertex", "input", "output"):
        for ink in ("ink", "quiet", "move"):
            assert _contrast(colours[ink], colours[behind]) >= 4.5, (ink, behind)
    assert _contrast(colours["strong"], colours["output"]) >= 4.5
    tile_text = re.search(
        r"on-tile\{fill:(#\w+)", read_svg(attention().draw_tiles("T").svg)[2].text
    )
    assert tile_text is not None
    assert all(_contrast(tile_text[1], tile) >= 4.5 for tile in TILES)


@pytest.mark.parametrize("share", [0, 0.25])
def test_a_gap_is_told_as_explain_tells_it(share: float) -> None:
    made = attention(inputs="sharded")
    apart = replace(made, bound=int(share * made.cost))
    legend = plan_scene(apart).legend
    found = re.search(r"none costs less than .*, gap [0-9.]+ %", legend)
    assert found is not None
    assert found[0] in str(apart)
    assert "proved optimal" in plan_scene(made).legend
