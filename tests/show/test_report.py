from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html import unescape
from importlib.resources import files
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pytest

import eindecomp as ed
from eindecomp.engines.result import BytesMoved, TaskFinished
from eindecomp.errors import InputError
from eindecomp.planner.comparison import Compared, Comparison
from eindecomp.show.report.content import content
from eindecomp.show.report.run import Kernel, timeline
from eindecomp.show.report.write import json_in_html
from layered_graph import layers

NASTY = "</script><script>alert(1)</script><!-- &amp; {{DATA}} \u2028\u2029"


def arrays(graph: ed.Graph) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {v.name: rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs}


@pytest.fixture(scope="module")
def plan() -> ed.Plan:
    return ed.plan(layers(5), 4, inputs="sharded")


ASKED: dict[str, dict[str, Any]] = {
    "free": {"devices": 4},
    "sharded": {"devices": 4, "inputs": "sharded"},
    "three devices": {"devices": 3, "inputs": "sharded"},
    "one device": {"devices": 1},
    "bound": {"devices": 4, "objective": "bound"},
    "time": {"devices": 4, "objective": "time", "machine": "cpu-cluster"},
    "sqrt": {"devices": 4, "inputs": "sharded", "strategy": "sqrt"},
}


@pytest.mark.parametrize("name", ASKED)
def test_the_bytes_of_a_report_are_those_of_the_plan(name: str) -> None:
    own = ed.plan(layers(3), **ASKED[name])
    shown = content(own)
    moved = 0
    for vertex in shown["vertices"]:
        assert vertex["kept"] >= 0
        fetched = sum(amount for _, amount, _, _ in vertex["inputs"])
        assert fetched + vertex["reduced"] + vertex["kept"] == own.traffic.of(vertex["name"])
        moved += fetched + vertex["reduced"] + vertex["kept"]
    assert moved == own.traffic.total
    costs = [sum(vertex["cost"]) for vertex in shown["vertices"] if vertex["cost"] is not None]
    assert sum(costs) == pytest.approx(own.cost)
    assert shown["computes"] == (name == "time")


def test_a_second_layout_is_moved_once_and_has_tiles_of_its_own() -> None:
    text = """
    input A[i: 64, k: 256], B[k, j: 16]
    C[i,j] <- sum A[i,k] * B[k,j]
    F[i,l] <- max C[i,j] * C[l,j]
    G[i,l] <- sum C[i,j] * C[l,j]
    H[i,l] <- sum abs(C[i,j] - C[l,j])
    output F, G, H
    """
    own = ed.plan(ed.parse(text), 8)
    [kept] = [v for v in content(own)["vertices"] if v["name"] == "C"]
    assert own.decisions["C"].second is not None
    assert kept["kept"] == own.traffic.repartition["C"] > 0
    assert len(kept["grids"]) == 2


def test_every_vertex_is_told_of_and_drawn_once(plan: ed.Plan) -> None:
    shown = content(plan)
    names = list(plan.graph.vertices)
    assert [vertex["name"] for vertex in shown["vertices"]] == names
    drawn = [v for band in shown["bands"] for members, *_ in band["boxes"] for v in members]
    assert sorted(drawn) == list(range(len(names)))
    repeated = [band for band in shown["bands"] if band["times"] > 1]
    assert repeated
    for band in repeated:
        assert all(len(members) == band["times"] for members, *_ in band["boxes"])


@pytest.mark.parametrize("devices", [1, 4])
def test_boxes_do_not_overlap_and_lines_join_those_that_read(devices: int) -> None:
    own = ed.plan(layers(5), devices)
    shown = content(own)
    for band in shown["bands"]:
        boxes = [(x, y, x + w, y + h) for _, x, y, w, h in band["boxes"]]
        for k, (left, top, right, bottom) in enumerate(boxes):
            assert 0 <= left < right <= band["width"] + 1
            assert 0 <= top < bottom <= band["height"] + 1
            for other in boxes[:k]:
                assert (
                    left >= other[2] or right <= other[0] or top >= other[3] or bottom <= other[1]
                )
        for source, target, _, points in band["lines"]:
            reader = shown["vertices"][band["boxes"][target][0][0]]
            assert band["boxes"][source][0][0] in [number for number, *_ in reader["inputs"]]
            assert points[1] == pytest.approx(boxes[source][3], abs=1)
            assert points[-1] == pytest.approx(boxes[target][1], abs=1)


def test_tiles_name_every_device_that_holds_one(plan: ed.Plan) -> None:
    shown = content(plan)
    for vertex in shown["vertices"]:
        for (_, layout, number), grid in zip(
            vertex["grids"], _all_grids(plan, vertex["name"]), strict=True
        ):
            assert shown["words"][layout] == grid.layout
            tiles = [tile for row in shown["grids"][number]["tiles"] for tile in row]
            assert sorted(first for _, first in tiles) == sorted(
                min(d) for d in grid.holders.values()
            )


def _all_grids(plan: ed.Plan, name: str) -> list[Any]:
    grid = plan.draw_tiles(name)
    return [grid, *grid.others]


def test_vertices_that_are_alike_share_an_alternative(plan: ed.Plan) -> None:
    shown = content(plan)
    of, found = shown["alternatives"]["of"], shown["alternatives"]["found"]
    number = {vertex["name"]: k for k, vertex in enumerate(shown["vertices"])}
    assert all((of[number[name]] >= 0) == (name in plan.parts) for name in number)
    assert of[number["R1"]] == of[number["R2"]]
    assert len(found) < len(plan.parts)
    assert all("would cost" in each["words"] for each in found)


def test_what_there_was_no_time_for_is_said(plan: ed.Plan) -> None:
    shown = content(plan, compare=True, time_limit=0)
    assert set(shown["alternatives"]["of"]) == {-1}
    ours, *others = shown["strategies"]
    assert ours["cost"] == plan.cost
    assert others
    assert all("not computed" in row["refused"] for row in others)


def test_strategies_are_those_of_compare(plan: ed.Plan) -> None:
    compared = plan.compare()
    for shown in (content(plan, compare=True), content(plan, compare=compared)):
        assert [(row["name"], row["cost"], row["memory"]) for row in shown["strategies"]] == [
            (row.name, row.cost, row.memory) for row in compared
        ]


# The page


def _parts(page: str) -> tuple[str, str, str, str]:
    """The policy, the style, the data and the script of a page."""
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    style = re.search(r"<style>(.*?)</style>", page, re.S)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    script = re.search(r'<script type="module">(.*?)</script>', page, re.S)
    assert policy
    assert style
    assert data
    assert script
    return policy[1], style[1], data[1], script[1]


def test_a_vertex_more_takes_few_bytes_more() -> None:
    few, many = (ed.plan(layers(count), 4, inputs="sharded") for count in (5, 25))
    more = len(json_in_html(content(many))) - len(json_in_html(content(few)))
    assert more < 500 * (len(many.graph.vertices) - len(few.graph.vertices))


def test_names_cannot_leave_their_place(plan: ed.Plan, tmp_path: Any) -> None:
    compared = Comparison("bytes", (Compared(NASTY, None, plan.cost, 1.0, 0.0, NASTY),))
    path = plan.report(tmp_path / "plan.html", compare=compared)
    page = path.read_text(encoding="utf-8")
    assert len(re.findall("<script", page)) == len(re.findall("</script", page)) == 2
    data = _parts(page)[2]
    assert not set(data) & set("<>&\u2028\u2029")
    assert orjson.loads(data)["strategies"][0]["name"] == NASTY


def test_json_in_a_page_is_the_same_json() -> None:
    shown = {"nasty": [NASTY, "é\n\"'`\\"], "number": 1.5}
    assert orjson.loads(json_in_html(shown)) == shown


def test_only_our_script_and_style_may_run(plan: ed.Plan, tmp_path: Any) -> None:
    page = plan.report(tmp_path / "plan.html", compare=False).read_text(encoding="utf-8")
    policy, style, _, script = _parts(page)
    allowed = dict(rule.split(" ", 1) for rule in unescape(policy).split("; "))
    assert allowed["default-src"] == "'none'"
    for name, text in (("script-src", script), ("style-src", style)):
        digest = b64encode(sha256(text.encode()).digest()).decode()
        assert allowed[name] == f"'sha256-{digest}'"
    assert not re.search(r"https?://", page)
    assert not re.search(r"\sstyle=|\son\w+=", page.replace(script, ""))


def _luminance(colour: str) -> float:
    values = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(
    ("text", "behind"),
    [
        *((text, behind) for text in ("ink", "quiet") for behind in ("back", "raised", "sunk")),
        *(("accent", behind) for behind in ("back", "raised", "box", "accent-soft")),
        *(("move", behind) for behind in ("back", "raised", "box", "accent-soft")),
        *(("ink", behind) for behind in ("box", "source", "accent-soft")),
        *(("good", behind) for behind in ("back", "raised", "accent-soft")),
        *(("quiet", behind) for behind in ("box", "source", "accent-soft")),
        *(("back", f"kind-{k}") for k in range(5)),
        ("back", "accent"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dark", [0, 1])
def test_text_has_a_contrast_of_at_least_4_5(text: str, behind: str, dark: int) -> None:
    style = files("eindecomp.show.report").joinpath("page", "style.css").read_text()
    pairs = dict(re.findall(r"--([\w-]+): light-dark\((#\w{6}, #\w{6})\)", style))
    colours = [_luminance(pairs[name].split(", ")[dark]) for name in (text, behind)]
    assert (max(colours) + 0.05) / (min(colours) + 0.05) >= 4.5


# Runs


@pytest.mark.long
def test_a_run_is_set_beside_its_plan(plan: ed.Plan) -> None:
    events: list[Any] = []
    result = ed.run(plan, arrays(plan.graph), on_event=events.append)
    shown = content(plan, result, events, machine=ed.plan(
        plan.graph, 4, objective="time", machine="cpu-cluster").machine)["run"]  # fmt: skip
    names = list(plan.graph.vertices)
    assert {names[row[0]] for row in shown["vertices"]} == {*plan.parts}
    assert all(row[1] == row[2] for row in shown["vertices"])
    assert sum(row[2] for row in shown["vertices"]) == result.stats.bytes_moved == plan.cost
    assert all(row[3] > 0 for row in shown["vertices"])
    assert all(row[4] > 0 for row in shown["vertices"])
    assert "exactly as planned" in shown["words"][0]
    finished = [event for event in events if isinstance(event, TaskFinished)]
    drawn = shown["timeline"]
    assert len(drawn["start"]) == len(finished)
    busy = sum(event.end - event.start for event in finished)
    assert sum(drawn["length"]) / 1e9 == pytest.approx(busy)
    assert sorted(set(drawn["rows"])) == [0, 1, 2, 3]


def test_without_events_bytes_are_shown_and_without_a_result_too(plan: ed.Plan) -> None:
    events: list[Any] = []
    result = ed.run(plan, arrays(plan.graph), on_event=events.append)
    by_result, by_events = content(plan, result)["run"], content(plan, None, events)["run"]
    assert by_result["timeline"] is None
    assert any("on_event=events.append" in words for words in by_result["words"])
    assert [row[:3] for row in by_result["vertices"]] == [row[:3] for row in by_events["vertices"]]


def test_tasks_of_a_device_that_overlap_have_rows_of_their_own() -> None:
    kernels = [Kernel(("Z",), "compute", k % 2, 0.1 * k, 0.1 * k + 0.35) for k in range(12)]
    drawn = timeline(kernels, {"Z": 0})
    for row in set(drawn["row"]):
        own = sorted(
            (start, start + length)
            for start, length, at in zip(drawn["start"], drawn["length"], drawn["row"], strict=True)
            if at == row
        )
        assert all(end <= start for (_, end), (start, _) in pairwise(own))
    assert drawn["rows"] == sorted(drawn["rows"])


def test_a_name_that_is_none_of_the_plans_is_shown_as_it_is(plan: ed.Plan) -> None:
    events = [TaskFinished(NASTY, "compute", 0, 0, 0.0, 1.0)]
    shown = content(plan, None, events)["run"]
    assert shown["names"] == [NASTY]
    assert shown["timeline"]["vertex"] == [len(plan.graph.vertices)]


def test_a_simulated_run_has_a_timeline(plan: ed.Plan) -> None:
    run = ed.simulate(plan, "cpu-cluster")
    shown = content(plan, run)["run"]
    drawn = shown["timeline"]
    ends = [start + length for start, length in zip(drawn["start"], drawn["length"], strict=True)]
    assert shown["simulated"]
    assert max(ends) / 1e9 <= run.seconds * (1 + 1e-6)
    assert sum(row[2] for row in shown["vertices"]) == run.bytes_moved == plan.traffic.total


# Mistakes


def test_a_path_that_cannot_be_written_is_named(plan: ed.Plan, tmp_path: Any) -> None:
    with pytest.raises(OSError, match="nowhere"):
        plan.report(tmp_path / "nowhere" / "plan.html")
    with pytest.raises(IsADirectoryError):
        plan.report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_run_of_the_plan_is_refused(plan: ed.Plan, tmp_path: Any) -> None:
    path = tmp_path / "plan.html"
    other = ed.plan(ed.parse("input A[i: 4]\nB[i] <- exp(A[i])\noutput B"), 2)
    result = ed.run(other, {"A": np.ones(4, np.float32)})
    with pytest.raises(InputError, match="run of another plan: it did not compute 'H0'"):
        plan.report(path, result=result)
    with pytest.raises(InputError, match="run of another plan"):
        plan.report(path, result=ed.simulate(other, "cpu-cluster"))
    with pytest.raises(InputError, match="not str"):
        plan.report(path, events=["H0"])
    with pytest.raises(InputError, match="not dict"):
        plan.report(path, result={})
    with pytest.raises(InputError, match="compare is True, False or a Comparison"):
        plan.report(path, compare="all")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="time_limit"):
        plan.report(path, time_limit=-1)
    with pytest.raises(ed.PlanError, match="no-such-machine"):
        plan.report(path, machine="no-such-machine")
    assert not path.exists()


PRODUCT = "input A[i: 8, k: 8], B[k, j: 8]\nC[i,j] <- sum A[i,k] * B[k,j]\noutput C"


def _run(own: ed.Plan) -> tuple[Any, list[Any]]:
    events: list[Any] = []
    return ed.run(own, arrays(own.graph), on_event=events.append), events


def test_a_run_for_other_devices_is_refused(tmp_path: Any) -> None:
    graph, path = ed.parse(PRODUCT), tmp_path / "plan.html"
    two, four = (ed.plan(graph, n, inputs="sharded") for n in (2, 4))
    result, events = _run(four)
    with pytest.raises(InputError, match="another plan: it is for 4 devices, this plan for 2"):
        two.report(path, result=result)
    with pytest.raises(InputError, match=r"another plan: its events name device [23]"):
        two.report(path, events=events)
    with pytest.raises(InputError, match="another plan: it is for 4 devices, this plan for 2"):
        two.report(path, result=ed.simulate(four, "cpu-cluster"))
    four.report(path, result=result, events=events, compare=False)


def test_a_run_of_another_graph_is_refused(tmp_path: Any) -> None:
    own, path = ed.plan(ed.parse(PRODUCT), 2), tmp_path / "plan.html"
    more = ed.plan(ed.parse(PRODUCT.replace("output C", "D[i] <- sum C[i,j]\noutput C, D")), 2)
    longer = ed.plan(ed.parse(PRODUCT.replace("i: 8", "i: 16")), 2)
    renamed = ed.plan(ed.parse(PRODUCT.replace("C", "Z")), 2)
    for other, why in ((more, "it computed 'D'"), (longer, "has the shape"),
                       (renamed, "did not compute 'C'")):  # fmt: skip
        with pytest.raises(InputError, match=f"run of another plan: .*{why}"):
            own.report(path, result=_run(other)[0])
        with pytest.raises(InputError, match=f"run of another plan: .*{why}"):
            own.report(path, result=ed.simulate(other, "cpu-cluster"))
    with pytest.raises(InputError, match="another plan: its events name 'Z'"):
        own.report(path, events=_run(renamed)[1])
    assert not path.exists()


def test_a_run_of_an_engine_that_names_no_vertices_is_accepted(tmp_path: Any) -> None:
    own = ed.plan(ed.parse(PRODUCT), 2)
    events = [TaskFinished("program", "compute", 1, 1, 0.0, 1.0), BytesMoved("None", "move", 8, 1)]
    assert own.report(tmp_path / "plan.html", events=events, compare=False).exists()


def test_a_comparison_of_another_plan_is_refused(tmp_path: Any) -> None:
    graph, path = ed.parse(PRODUCT), tmp_path / "plan.html"
    own = ed.plan(graph, 2, inputs="sharded", strategy=["i"])
    for other, why in (
        (ed.plan(graph, 4, inputs="sharded", strategy=["i"]), "the cost of its first row is"),
        (ed.plan(graph, 2, inputs="sharded", strategy=["j"]), "first row is j, this plan's i"),
        (
            ed.plan(graph, 2, objective="bound", strategy=["i"]),
            "the objective of its first row is bound",
        ),
    ):
        with pytest.raises(InputError, match=f"comparison of another plan: .*{why}"):
            own.report(path, compare=other.compare({}))
    free, one = (ed.plan(graph, n, strategy=["i"]) for n in (2, 4))
    with pytest.raises(InputError, match=r"comparison of another plan: .*fullest device"):
        free.report(path, compare=one.compare({}))
    with pytest.raises(InputError, match="no cost"):
        own.report(path, compare=Comparison("bytes", ()))
    own.report(path, compare=own.compare({}))


def test_only_bytes_that_are_equal_by_vertex_are_as_planned() -> None:
    text = "input A[i: 8, j: 8]\nR[i] <- sum A[i,j]\nS[j] <- sum A[i,j]\noutput R, S"
    rows, columns = (
        ed.plan(ed.parse(text), 2, inputs="sharded", strategy=[label], pin={"A": {label: 2}})
        for label in "ij"
    )
    assert rows.cost == columns.cost > 0
    result, _ = _run(rows)
    assert "exactly as planned" in content(rows, result)["run"]["words"][0]
    assert "not for the same vertices" in content(columns, result)["run"]["words"][0]


def test_a_kernel_of_several_vertices_is_shown_once_and_its_time_shared(plan: ed.Plan) -> None:
    events = [TaskFinished(name, "compute", 0, 0, 1.0, 3.0) for name in ("H0", "R0")]
    events += [TaskFinished("X1", "compute", 0, 0, 3.0, 4.0)]
    shown = content(plan, None, events)["run"]
    names = [*plan.graph.vertices, *shown["names"]]
    measured = {names[row[0]]: row[4] for row in shown["vertices"] if row[4] is not None}
    assert measured == {"H0": 1.0, "R0": 1.0, "X1": 1.0}
    drawn = shown["timeline"]
    assert [names[k] for k in drawn["vertex"]] == ["one kernel with H0, R0", "X1"]
    assert sum(drawn["length"]) == 3e9
    assert any("shared out equally" in words for words in shown["words"])


@pytest.mark.parametrize("name", ["plan.pdf", "plan.svg", "plan"])
def test_a_report_is_html_and_no_other_file(plan: ed.Plan, tmp_path: Any, name: str) -> None:
    with pytest.raises(InputError, match=r"a report is written to .* \.html or \.htm"):
        plan.report(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value"), [("events", 5), ("time_limit", "3"), ("time_limit", float("nan"))]
)
def test_an_argument_of_the_wrong_kind_is_named(
    plan: ed.Plan, tmp_path: Any, name: str, value: Any
) -> None:
    with pytest.raises(InputError, match=name):
        plan.report(tmp_path / "plan.html", **{name: value})
